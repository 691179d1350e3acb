import hashlib
import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nnunet_nacl.calibrate import (
    Fit,
    Sample,
    Score,
    Temperature,
    Unchanged,
    apply_folder,
    calibrate_folder,
    judge,
)
from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import AppliedCalibration, Predictions, calibration_of
from tests.generated import (
    ENDING,
    add_case,
    known_case,
    probabilities,
    read,
    softmax,
    write_case,
    write_folder,
    write_labels,
)

NAMES = "abcdef"


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Predictions whose right temperature is 2.5."""
    return write_folder(tmp_path_factory.mktemp("train"), NAMES)


@pytest.fixture(scope="module")
def fit_file(train: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fit") / "fit.json"
    calibrate_folder(Predictions.of_folder(*train), file)
    return file


@pytest.fixture(scope="module")
def temperature_file(train: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("temperature") / "fit.json"
    calibrate_folder(Predictions.of_folder(*train), file, method="temperature")
    return file


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    return write_folder(tmp_path / "new", "xyz", first=100)


def test_temperature_is_that_of_the_smallest_nll(train: tuple[Path, Path], temperature_file: Path) -> None:
    fit = Fit.read(temperature_file)
    p = np.concatenate([probabilities(train[1], name).reshape(3, -1) for name in NAMES], axis=1).astype(float)
    y = np.concatenate([read(train[0] / f"{name}{ENDING}").reshape(-1) for name in NAMES])
    oracle = minimize_scalar(
        lambda t: -np.log(softmax(np.log(p) / t)[y, np.arange(y.size)]).mean(), bounds=(1, 5), method="bounded"
    ).x
    assert isinstance(fit.calibration, Temperature)
    assert fit.calibration.temperature == pytest.approx(oracle, rel=1e-3)
    assert oracle == pytest.approx(2.5, rel=1e-3)
    assert fit.tried[fit.method].improves
    assert fit.tried["temperature"].Dice == fit.tried["as trained"].Dice


@pytest.mark.parametrize("regions", [False, True])
def test_scores_are_those_of_evaluate(regions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # no search for a vector
    monkeypatch.setattr("nnunet_nacl.calibrate._methods.minimum", lambda _, start: (start, ""))
    folders = write_folder(tmp_path / "made", NAMES[:5], temperature=1.5, regions=regions, structure=True)
    fit = calibrate_folder(Predictions.of_folder(*folders), tmp_path / "fit.json")
    trained = fit.tried["as trained"]
    evaluate(Predictions.of_folder(*folders), output=tmp_path / "calibration_summary.json")
    summary = json.loads((tmp_path / "calibration_summary.json").read_text())
    image, near = summary["pooled"]["image"], summary["pooled"]["near"]
    assert pytest.approx(image["NLL_per_foreground"], rel=1e-5) == trained.NLL
    assert pytest.approx(near["ECE"], abs=1e-6) == trained.ECE
    assert trained.over_confidence == pytest.approx(near["over_confidence"], abs=1e-6)
    assert trained.Dice == pytest.approx(summary["segmentation"]["foreground_mean"]["Dice"], abs=1e-6)
    assert fit.tried[fit.method].improves


@pytest.mark.parametrize("method", ["head", "temprature"])
def test_a_method_is_checked_before_any_case_is_read(method: str, train: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(train[1], tmp_path / "predictions")
    for file in (tmp_path / "predictions").glob("*.npz"):
        file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=f"method: expected temperature or vector; got '{method}'"):
        calibrate_folder(
            Predictions.of_folder(train[0], tmp_path / "predictions"), tmp_path / "fit.json", method=method
        )


def test_apply(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    done = apply_folder(fit_file, new[1], tmp_path / "calibrated")
    assert (list(done.results), done.skipped) == (["x", "y", "z"], [])
    assert done.summary() == f"Calibrated 3 of 3 cases into {tmp_path / 'calibrated'}."
    assert {file.name for file in new[1].iterdir()} | {"calibration_applied.json"} == {
        file.name for file in (tmp_path / "calibrated").iterdir()
    }
    fit = Fit.read(fit_file)
    for name in "xyz":
        p = probabilities(new[1], name).reshape(3, -1).astype(float)
        logits = np.log(p)
        logits = logits - logits.mean(0)
        expected = softmax(fit.calibration.logits(logits))
        assert probabilities(tmp_path / "calibrated", name).reshape(3, -1) == pytest.approx(expected, abs=1e-6)
        labels = read(tmp_path / "calibrated" / f"{name}{ENDING}")
        assert (labels == probabilities(tmp_path / "calibrated", name).argmax(0)).all()
    assert str(calibration_of(tmp_path / "calibrated")).startswith(fit.method)
    with pytest.raises(ValueError, match="is calibrated already"):
        apply_folder(fit_file, tmp_path / "calibrated", tmp_path / "twice")
    with pytest.raises(ValueError, match="is calibrated already"):
        calibrate_folder(Predictions.of_folder(new[0], tmp_path / "calibrated"), tmp_path / "fit.json")


def test_temperature_keeps_each_label(temperature_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    apply_folder(temperature_file, new[1], tmp_path / "calibrated", num_processes=2)
    for name in "xyz":
        before, after = (probabilities(folder, name) for folder in (new[1], tmp_path / "calibrated"))
        assert (before.argmax(0) == after.argmax(0)).all()
        assert (new[1] / f"{name}{ENDING}").read_bytes() == (tmp_path / "calibrated" / f"{name}{ENDING}").read_bytes()


@pytest.mark.parametrize("regions", [False, True])
def test_what_postprocessing_removed_stays_removed(
    regions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a method that may change labels; here it is a temperature, and changes none."""
    monkeypatch.setattr("nnunet_nacl.calibrate._methods.minimum", lambda _, start: (start, ""))
    folders = write_folder(tmp_path / "made", NAMES[:5], regions=regions, structure=True)
    calibrate_folder(Predictions.of_folder(*folders), tmp_path / "fit.json", method="vector")
    truth, predicted = write_folder(tmp_path / "new", "x", first=100, regions=regions, structure=True)
    processed = read(predicted / f"x{ENDING}")
    processed[: len(processed) // 2] = 0
    write_labels(processed, predicted / f"x{ENDING}")
    apply_folder(tmp_path / "fit.json", predicted, tmp_path / "calibrated")
    assert processed.any()
    assert np.array_equal(read(tmp_path / "calibrated" / f"x{ENDING}"), processed)
    assert evaluate(Predictions.of_folder(truth, tmp_path / "calibrated")).cases == ["x"]


def test_a_model_that_sees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No voxel is near, so that the ECE there is unknown."""
    monkeypatch.setattr("nnunet_nacl.calibrate._methods.minimum", lambda _, start: (start, ""))
    truth, predicted = write_folder(tmp_path / "made", [])
    for seed, name in enumerate(NAMES[:5]):
        p, y = known_case(1, seed, repeats=1)
        p[1:] /= 100
        p[0] = 1 - p[1:].sum(0)
        add_case(truth, predicted, name, p, y)
    fit = calibrate_folder(Predictions.of_folder(truth, predicted), tmp_path / "fit.json")
    assert np.isnan(fit.tried["as trained"].ECE)
    again = Fit.read(tmp_path / "fit.json")
    assert again.calibration == fit.calibration
    assert repr(again.tried) == repr(fit.tried)


def test_after_it_was_killed(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "calibrated" / ".nnunet_nacl_cases" / "x").mkdir(parents=True)
    assert list(apply_folder(fit_file, new[1], tmp_path / "calibrated").results) == ["x", "y", "z"]
    with pytest.raises(FileExistsError, match="calibrated exists"):
        apply_folder(fit_file, new[1], tmp_path / "calibrated")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_was_cut_short_is_refused_and_made_again(
    overwrite: bool, fit_file: Path, new: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "calibrated"
    if overwrite:
        apply_folder(fit_file, new[1], output)
    replace_file = Path.replace
    left = 6  # the marks, and some of the first two cases

    def stopped(self: Path, target: Path) -> Path:
        nonlocal left
        if target.parent == output:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return replace_file(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            apply_folder(fit_file, new[1], output, overwrite=overwrite)
    assert len([*output.glob("*.npz")]) < 3
    with pytest.raises(ValueError, match="calibrated is not whole: the command that wrote it was stopped"):
        Predictions.of_folder(None, output)
    assert list(apply_folder(fit_file, new[1], output).results) == ["x", "y", "z"]
    assert len(Predictions.of_folder(None, output).cases) == 3
    assert not any(file.name.startswith(".") for file in output.iterdir())


def test_overwrite_replaces_nothing_else(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "calibrated"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    shutil.copy(new[0] / f"x{ENDING}", output / f"mine{ENDING}")
    with pytest.raises(FileExistsError, match="calibrated exists"):
        apply_folder(fit_file, new[1], output)
    apply_folder(fit_file, new[1], output, overwrite=True)
    apply_folder(fit_file, new[1], output, overwrite=True)
    assert (output / "notes.txt").read_text() == "mine"
    assert (output / f"mine{ENDING}").exists()
    with pytest.raises(FileExistsError, match="holds predictions that apply has not written"):
        apply_folder(fit_file, new[1], new[1], overwrite=True)


def test_an_earlier_calibration_is_replaced_whole(
    fit_file: Path, temperature_file: Path, train: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path
) -> None:
    output = tmp_path / "calibrated"
    apply_folder(fit_file, new[1], output)
    (new[1] / "y.npz").write_bytes(b"damaged")
    done = apply_folder(temperature_file, new[1], output, overwrite=True)
    assert (list(done.results), [entry.case for entry in done.skipped]) == (["x", "z"], ["y"])
    assert not list(output.glob("y.*"))  # of the earlier calibration
    assert str(calibration_of(output)).startswith("temperature")

    with pytest.raises(FileExistsError, match="train/predictions holds predictions that apply has not written"):
        apply_folder(fit_file, new[1], shutil.copytree(train[1], tmp_path / "train" / "predictions"), overwrite=True)
    assert not (tmp_path / "train" / "predictions" / "calibration_applied.json").exists()
    (output / "decoded.json").write_text("{}")
    with pytest.raises(FileExistsError, match="calibrated holds predictions that apply has not written"):
        apply_folder(fit_file, new[1], output, overwrite=True)


def test_what_does_not_belong_together(
    fit_file: Path, train: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"cannot be applied to .*: it was fitted to 6 of its cases, such as a, which"):
        apply_folder(fit_file, train[1], tmp_path / "calibrated")
    dataset = new[1] / "dataset.json"
    dataset.write_text(dataset.read_text().replace('"one"', '"other"'))
    with pytest.raises(ValueError, match=r"cannot be applied to .*: it was fitted to the labels"):
        apply_folder(fit_file, new[1], tmp_path / "other")
    spoiled = tmp_path / "spoiled.json"
    content = json.loads(fit_file.read_text())
    for calibration, message in (
        ({"method": "temperature"}, r"calibration\.temperature\.temperature: Field required"),
        ({"method": "temperature", "temperature": 0}, r"expected a temperature from 0\.05 to 100; got 0"),
        ({"method": "temperature", "temperature": "2"}, "Input should be a valid number"),
        ({"method": "isotonic"}, "'isotonic' found using 'method' does not match any of the expected tags"),
        ({"method": "vector", "scale": [1], "shift": [0], "activation": "softmax"}, "the vector has 1 channels, the"),
    ):
        spoiled.write_text(json.dumps(content | {"calibration": calibration}))
        with pytest.raises(ValueError, match=r"spoiled\.json is not as expected: .*" + message):
            apply_folder(spoiled, new[1], tmp_path / "other")


def test_a_bad_case_and_a_fit_that_does_not_improve(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One case wants another temperature than the others: fits to it harm them, fits to them do not help it."""
    monkeypatch.setenv("nnUNet_def_n_proc", "1")
    ground_truth, predictions = write_folder(tmp_path / "made", "bcdef", temperature=1)
    p, y = known_case(3)
    write_labels(y, ground_truth / f"a{ENDING}")
    write_case(predictions, "a", p)
    (predictions / "b.npz").write_bytes((predictions / "b.npz").read_bytes()[:1000])
    command = ["calibrate", str(ground_truth), str(predictions), "-o", str(tmp_path / "fit.json")]
    assert main([*command, "--method", "temperature"]) == 1
    printed = capfd.readouterr().err
    assert "skipped b: " in printed
    assert "temperature does NOT lower the held-out NLL significantly" in printed
    assert Fit.read(tmp_path / "fit.json").cases == list("acdef")
    main([*command, "--overwrite"])
    assert "No method lowered the held-out NLL significantly and kept the Dice: the" in capfd.readouterr().out
    assert Fit.read(tmp_path / "fit.json").calibration == Unchanged()
    new = write_folder(tmp_path / "new", "xy", first=100)[1]
    apply_folder(tmp_path / "fit.json", new, tmp_path / "applied")
    assert probabilities(tmp_path / "applied", "x") == pytest.approx(probabilities(new, "x"), abs=1e-6)


def test_a_forced_method_that_costs_dice_or_labels_is_told(
    train: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_def_n_proc", "1")

    def spoiled(sample: Sample, logits: np.ndarray) -> Score:
        score = judge(sample, logits)
        is_trained = np.array_equal(logits, sample.logits)
        return replace(score, Dice=0.8, changed=0) if is_trained else replace(score, Dice=0.6, changed=0.3)

    monkeypatch.setattr("nnunet_nacl.calibrate._trials.judge", spoiled)
    command = ["calibrate", *map(str, train), "-o", str(tmp_path / "fit.json")]
    for method, said in (
        ("temperature", ""),  # which keeps the labels, whatever the drawn voxels say
        (
            "vector",
            (
                "predictions: vector LOWERS the held-out Dice from 0.800 to 0.600.\n"
                "predictions: vector CHANGES the labels of 30 % of the foreground.\n"
            ),
        ),
    ):
        assert main([*command, "--method", method, "--overwrite"]) == 0
        assert "".join(re.findall("predictions: .*\n", capfd.readouterr().err)) == said
        fit = Fit.read(tmp_path / "fit.json")
        assert (fit.method, bool(fit.shortcomings())) == (method, bool(said))


def test_a_fit_keeps_its_fingerprint(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    """review_fit.json has it: that of a method's name and parameters as JSON, with sorted keys."""
    apply_folder(fit_file, new[1], tmp_path / "out")
    fit = Fit.read(fit_file)
    parameters = json.dumps(asdict(fit.calibration), sort_keys=True)
    expected = hashlib.sha256(parameters.encode()).hexdigest()[:12]
    assert calibration_of(tmp_path / "out") == AppliedCalibration((fit.method,), expected)


ONE_FIT, OTHER_FIT = AppliedCalibration(("vector",), "1a"), AppliedCalibration(("vector",), "2b")
BY_FOLD = AppliedCalibration(("temperature", "vector"), None)


@pytest.mark.parametrize(("how", "other", "included"), [
    (ONE_FIT, ONE_FIT, True),
    (ONE_FIT, OTHER_FIT, False),
    (BY_FOLD, ONE_FIT, True),
    (BY_FOLD, AppliedCalibration(("head",), "3c"), False),
])  # fmt: skip
def test_whether_two_folders_are_calibrated_alike(
    how: AppliedCalibration, other: AppliedCalibration, included: bool
) -> None:
    assert how.includes(other) == included
