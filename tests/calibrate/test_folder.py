import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax as softmax_along

from nnunet_nacl.calibrate import AS_TRAINED, Fit, Temperature, apply_folder, calibrate_folder
from nnunet_nacl.calibrate._folder import _logits
from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import NLL_CLIP, Activation
from nnunet_nacl.nnunet import DECODED_NAME, CaseFiles, Predictions, calibration_of
from nnunet_nacl.use import decode_folder
from tests.generated import (
    ENDING,
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


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    return write_folder(tmp_path / "new", "xyz", first=100)


def test_temperature_is_that_of_the_smallest_nll(train: tuple[Path, Path], fit_file: Path) -> None:
    fit = Fit.read(fit_file)
    p = np.concatenate([probabilities(train[1], name).reshape(3, -1) for name in NAMES], axis=1).astype(float)
    y = np.concatenate([read(train[0] / f"{name}{ENDING}").reshape(-1) for name in NAMES])
    oracle = minimize_scalar(
        lambda t: -np.log(softmax(np.log(p) / t)[y, np.arange(y.size)]).mean(), bounds=(1, 5), method="bounded"
    ).x
    assert isinstance(fit.calibration, Temperature)
    assert fit.calibration.temperature == pytest.approx(oracle, rel=1e-3)
    assert oracle == pytest.approx(2.5, rel=1e-3)
    assert fit.tried[fit.calibration.method].NLL_change[1] < 0
    assert fit.tried["temperature"].Dice == fit.tried["as trained"].Dice


@pytest.mark.parametrize("regions", [False, True])
def test_scores_are_those_of_evaluate(regions: bool, tmp_path: Path) -> None:
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
    assert fit.tried[fit.calibration.method].NLL_change[1] < 0


def test_apply(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "calibrated"
    done = apply_folder(fit_file, new[1], output, num_processes=2)
    assert done.summary() == f"Calibrated 3 of 3 cases into {output}."
    made = {"calibration_applied.json", "provenance.json"}
    assert {file.name for file in output.iterdir()} == {file.name for file in new[1].iterdir()} | made
    fit = Fit.read(fit_file)
    for name in "xyz":
        p = probabilities(new[1], name)
        expected = softmax(fit.calibration.logits(np.log(p.reshape(3, -1).astype(float))))
        assert probabilities(output, name).reshape(3, -1) == pytest.approx(expected, abs=1e-6)
        assert (probabilities(output, name).argmax(0) == p.argmax(0)).all()
        assert (output / f"{name}{ENDING}").read_bytes() == (new[1] / f"{name}{ENDING}").read_bytes()
    # review_fit.json has this fingerprint
    parameters = json.dumps(asdict(fit.calibration), sort_keys=True)
    assert calibration_of(output) == f"{fit.calibration.method}@{hashlib.sha256(parameters.encode()).hexdigest()[:12]}"
    with pytest.raises(ValueError, match="to predictions that are not calibrated; these are"):
        apply_folder(fit_file, output, tmp_path / "twice")
    with pytest.raises(ValueError, match="is calibrated already"):
        calibrate_folder(Predictions.of_folder(new[0], output), tmp_path / "fit.json")


@pytest.mark.parametrize("regions", [False, True])
def test_what_postprocessing_removed_stays_removed(regions: bool, fit_file: Path, tmp_path: Path) -> None:
    truth, predicted = write_folder(tmp_path / "new", "x", first=100, regions=regions, structure=True)
    if regions:
        folders = write_folder(tmp_path / "made", NAMES[:5], regions=True, structure=True)
        fit_file = tmp_path / "fit.json"
        calibrate_folder(Predictions.of_folder(*folders), fit_file)
    processed = read(predicted / f"x{ENDING}")
    processed[: len(processed) // 2] = 0
    write_labels(processed, predicted / f"x{ENDING}")
    apply_folder(fit_file, predicted, tmp_path / "calibrated")
    assert processed.any()
    assert np.array_equal(read(tmp_path / "calibrated" / f"x{ENDING}"), processed)
    assert evaluate(Predictions.of_folder(truth, tmp_path / "calibrated")).cases == ["x"]


def test_decoded_segmentations_become_the_argmax(fit_file: Path, new: tuple[Path, Path], tmp_path: Path) -> None:
    decode_folder(new[1], tmp_path / "decoded", thresholds={"one": 0.9})
    mark = tmp_path / "decoded" / DECODED_NAME
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"cases": {}}))  # as if it had been interrupted
    apply_folder(fit_file, tmp_path / "decoded", tmp_path / "calibrated")
    assert Predictions.of_folder(None, tmp_path / "calibrated").provenance.decoded is None
    labels = read(tmp_path / "calibrated" / f"x{ENDING}")
    assert (labels == probabilities(tmp_path / "calibrated", "x").argmax(0)).all()
    assert (labels != read(tmp_path / "decoded" / f"x{ENDING}")).any()


def test_an_earlier_calibration_is_replaced_case_by_case(
    fit_file: Path, new: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "calibrated"
    write = CaseFiles.write

    def stopped(self: CaseFiles, *given: Any, **more: Any) -> None:
        if self.name == "z":
            raise KeyboardInterrupt
        write(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(CaseFiles, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            apply_folder(fit_file, new[1], output)
    assert sorted(file.name for file in output.glob("*.n*")) == ["x.nii.gz", "x.npz", "y.nii.gz", "y.npz"]
    assert calibration_of(output) is not None
    (output / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="calibrated exists"):
        apply_folder(fit_file, new[1], output)
    (new[1] / "y.npz").write_bytes(b"damaged")
    done = apply_folder(fit_file, new[1], output, overwrite=True)
    assert (list(done.results), [entry.case for entry in done.skipped]) == (["x", "z"], ["y"])
    assert not list(output.glob("y.*"))  # of the earlier calibration
    assert (output / "notes.txt").read_text() == "mine"
    other = write_folder(tmp_path / "other", "vw", first=200)[1]
    for folder, message in ((new[1], "is the folder that is read"), (other, "predictions of other cases, such as v")):
        with pytest.raises(FileExistsError, match=message):
            apply_folder(fit_file, new[1], folder, overwrite=True)
    assert not (other / "calibration_applied.json").exists()


def test_what_does_not_belong_together(fit_file: Path, train: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be applied to .*: it was fitted to 6 of its cases, such as a, which"):
        apply_folder(fit_file, train[1], tmp_path / "calibrated")


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
    assert "temperature does NOT lower the held-out NLL by 0.5 % or more" in printed
    assert Fit.read(tmp_path / "fit.json").provenance.cases == list("acdef")
    main([*command, "--overwrite"])
    printed = capfd.readouterr().out
    assert "No method lowered the held-out NLL, with a 95 % interval below 0, and kept the Dice" in printed
    assert "Next:" not in printed  # there is nothing to apply
    assert Fit.read(tmp_path / "fit.json").calibration == AS_TRAINED
    new = write_folder(tmp_path / "new", "xy", first=100)[1]
    apply_folder(tmp_path / "fit.json", new, tmp_path / "applied")
    assert probabilities(tmp_path / "applied", "x") == pytest.approx(probabilities(new, "x"), abs=1e-6)


def logits_folder(
    folder: Path, dtype: type, logits: np.ndarray, labels: np.ndarray, names: list[str], factor: float
) -> tuple[Path, Path]:
    """Cases of softmax(factor · logits) stored as a type; logits (cases, K, Z, Y, X)."""
    truth, predicted = write_folder(folder, [])
    for name, z, y in zip(names, logits, labels, strict=True):
        p = softmax(factor * z).astype(dtype)
        write_case(predicted, name, p)
        write_labels(y, truth / f"{name}{ENDING}")
    return truth, predicted


def drawn_logits(spread: float, shape: tuple[int, ...] = (16, 16, 16)) -> tuple[np.ndarray, np.ndarray]:
    """Logits of eight cases, and labels drawn from their softmax."""
    generator = np.random.default_rng(0)
    z = generator.normal(0, spread, (8, 3, *shape))
    y = (generator.random((8, 1, *shape)) > softmax_along(z, axis=1).cumsum(1)).sum(1).clip(0, 2)
    return z, y


def test_what_float16_rounds_to_0(tmp_path: Path) -> None:
    """p = 0 may be any below 3e-8. Taken for 1e-38, T would be 14; so the table says that. ``apply`` agrees."""
    for dtype, steps in ((np.float16, 12), (np.float32, 25)):  # of a region, 1 − p = 0 may be any below half a step
        logit = _logits(np.ones((1, 1), dtype), Activation.SIGMOID, np.float64).item()
        assert logit == pytest.approx(steps * np.log(2), rel=1e-3)
    z, y = drawn_logits(3)
    for dtype, factor, tolerance, is_coarse in (
        (np.float32, 6, 0.02, False),
        (np.float16, 3, 0.05, False),
        (np.float16, 6, 0.25, True),
    ):
        folders = logits_folder(tmp_path / f"{dtype.__name__}_{factor}", dtype, z, y, list("abcdefgh"), factor)
        fit = calibrate_folder(
            Predictions.of_folder(*folders), tmp_path / "fit.json", method="temperature", overwrite=True
        )
        assert isinstance(fit.calibration, Temperature)
        assert fit.calibration.temperature == pytest.approx(factor, rel=tolerance)
        assert ("float16 rounds p to 0 or 1 in 7 % of the errors" in fit.tried["temperature"].remark) == is_coarse
        assert not fit.tried["as trained"].remark
        other_names = list("ijklmnop")
        _, others = logits_folder(folders[1].parent / "others", dtype, z, y, other_names, factor)
        apply_folder(tmp_path / "fit.json", others, folders[1].parent / "applied")
        p = np.stack([probabilities(folders[1].parent / "applied", name) for name in other_names])
        nll = -np.log(np.take_along_axis(p, y[:, None], 1).clip(NLL_CLIP)).sum() / (y > 0).sum()
        assert nll == pytest.approx(fit.tried["temperature"].NLL, rel=0.01)


def test_a_model_that_sees_nothing_has_no_ece_near(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No p of the foreground is above 0.05, so no voxel is near; in the file, NaN is null."""
    z, y = drawn_logits(0.2)
    truth, predicted = logits_folder(
        tmp_path, np.float32, z + np.array([9, 0, 0])[:, None, None, None], y, [*NAMES, "g", "h"], 1
    )
    assert main(["calibrate", str(truth), str(predicted), "-o", str(tmp_path / "fit.json")]) == 0
    assert "nan" in capfd.readouterr().out
    assert json.loads((tmp_path / "fit.json").read_text())["tried"]["temperature"]["ECE"] is None
    fit = Fit.read(tmp_path / "fit.json")
    for score in fit.tried.values():
        assert np.isnan([score.ECE, score.over_confidence]).all()
        assert np.isfinite([score.NLL, *score.NLL_change, score.Dice]).all()
    fit.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "fit.json").read_bytes()


@pytest.mark.parametrize("voxels", [20, 380])
def test_structures_where_nnunet_has_cropped(tmp_path: Path, voxels: int) -> None:
    """p = (1, 0, 0) there, which no temperature changes: its NLL is clipped, in the fit as in evaluate."""
    z, y = drawn_logits(2, (20, 20, 20))
    inside = np.zeros((20, 20, 20), bool)
    inside[4:-4, 4:-4, 4:-4] = True
    z = np.where(inside, z, np.array([200.0, 0, 0])[:, None, None, None])
    y = np.where(inside, y, 0)
    y[:, 0].reshape(8, -1)[:, :voxels] = 1  # up to a fifth of the structures
    folders = logits_folder(tmp_path / "made", np.float32, z, y, list("abcdefgh"), 2)
    fit = calibrate_folder(Predictions.of_folder(*folders), tmp_path / "fit.json", method="temperature")
    assert isinstance(fit.calibration, Temperature)
    assert fit.calibration.temperature == pytest.approx(2, rel=0.03)


def test_images_of_a_patient_are_no_independent_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = write_folder(tmp_path / "few", [f"patient{number // 2}_{number}" for number in range(8)])
    command = ["calibrate", *map(str, few), "-o", str(tmp_path / "fit.json")]
    assert main([*command, "--by_patient"]) == 1
    assert "at least 5 patients with a structure in the ground truth; 4 of 4 have one" in capsys.readouterr().err
    assert main(command) == 0
    five = write_folder(tmp_path / "five", [f"{number % 2}_patient{number // 2}" for number in range(10)])
    command = ["calibrate", *map(str, five), "-o", str(tmp_path / "fit5.json"), "--by_patient", "(patient.)"]
    assert main(command) == 0
    assert Fit.read(tmp_path / "fit5.json").calibration.method == "temperature"
