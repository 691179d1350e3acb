"""Calibrated copies of folders of predictions."""

import json
import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from nnunetv2.ensembling.ensemble import ensemble_folders
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.nnunet import CALIBRATED_NAME
from nnunet_nacl.posthoc import METHODS, Fit, Link, Predictions, Temperature, apply_folder, fit
from tests.posthoc.generated import (
    ENDING,
    LABELS,
    REGIONS,
    description,
    fit_folder,
    known_case,
    plans,
    probabilities,
    softmax,
    write_case,
    write_folder,
    write_labels,
    write_model,
)

IMAGE = Settings(voxels=("image",))


@pytest.fixture
def test(tmp_path: Path) -> tuple[Path, Path]:
    return write_folder(tmp_path / "test", "xyz", first=10)


def labels(folder: Path, name: str) -> sitk.Image:
    return sitk.ReadImage(str(folder / f"{name}{ENDING}"))


def test_fit_and_apply(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit = fit_folder(train)
    file = train[1] / "posthoc_temperature.json"
    content = json.loads(file.read_text())
    assert content["method"] == "temperature"
    assert content["temperature"] == pytest.approx(2.5, abs=1e-5)
    assert content["sample"] == {"voxels": 7200, "available": 7200, "zeros": 0}
    assert content["cases"]["names"] == list("abcdef")
    assert content["model"] == {
        "labels": LABELS, "regions_class_order": None, "channels": 3, "dataset": "Dataset001_Toy", "trainer": None,
        "plans": "nnUNetPlans", "configuration": None,
    }  # fmt: skip
    assert content["skipped"] == []
    assert content["settings"]["voxels"] == "near"
    assert content["settings"]["margin_mm"] == 5.0
    assert content["bias"] is None
    assert content["settings"]["num_voxels"] == 666666
    assert Fit.read(file) == fit
    assert [entry["part"] for entry in content["held_out"]["parts"]] == [f"part {n} of 5" for n in range(1, 6)]
    assert sorted(name for entry in content["held_out"]["parts"] for name in entry["cases"]) == list("abcdef")
    assert fit.improves
    before, after = (
        evaluate(Predictions.of_folder(*train), settings=IMAGE).mean("image", metric) for metric in ("NLL", "ECE")
    )
    assert content["fitted"]["before"] == {"NLL": pytest.approx(before), "ECE": pytest.approx(after)}
    assert "temperature: temperature 2.5000\nFitted to 7,200 of 7,200 voxels (near) of 6 cases; 0 of" in fit.summary()
    assert re.search(r"On held-out cases: NLL 1\.\d+ → 0\.\d+, ECE 0\.\d+ → 0\.\d+$", fit.summary())

    output = tmp_path / "calibrated"
    applied = apply_folder(file, test[1], output)
    assert applied.cases == ["x", "y", "z"]
    assert applied.skipped == []
    assert {path.name for path in output.iterdir()} == {path.name for path in test[1].iterdir()} | {CALIBRATED_NAME}
    for name in "xyz":
        p, q = probabilities(test[1], name), probabilities(output, name)
        assert q.dtype == np.float32
        assert q == pytest.approx(softmax(np.log(p.astype(float)) / 2.5), abs=1e-6)
        for ending in (ENDING, ".pkl"):
            assert (output / (name + ending)).read_bytes() == (test[1] / (name + ending)).read_bytes()
    marked = json.loads((output / CALIBRATED_NAME).read_text())
    assert {key: marked[key] for key in content} == content
    assert marked["applied"]["fitted_to_same_cases"] == []
    assert marked["applied"]["not_compared"] == applied.not_compared == ["trainer", "configuration"]
    assert applied.summary() == (
        f"Calibrated 3 of 3 cases into {output}.\n"
        "Not known of both the fit and the folder, so not compared: trainer, configuration."
    )
    before, after = (evaluate(Predictions.of_folder(test[0], folder), settings=IMAGE) for folder in (test[1], output))
    assert after.mean("image", "NLL") < before.mean("image", "NLL") - 0.1
    assert after.mean("image", "ECE") < before.mean("image", "ECE") - 0.1
    assert after.foreground_mean() == before.foreground_mean()


@pytest.mark.parametrize("method", [method for method in METHODS if method != "local"])  # see test_local.py
@pytest.mark.parametrize("regions", [False, True])
def test_each_method_helps_new_cases(tmp_path: Path, method: str, regions: bool) -> None:
    train = write_folder(tmp_path / "train", "abcdef", temperature=3, regions=regions)
    test = write_folder(tmp_path / "test", "xy", temperature=3, regions=regions, first=10)
    output = tmp_path / "calibrated"
    fit = fit_folder(train, method=method)
    assert fit.improves
    apply_folder(train[1] / f"posthoc_{method}.json", test[1], output)
    before, after = (evaluate(Predictions.of_folder(test[0], folder), settings=IMAGE) for folder in (test[1], output))
    assert after.skipped == []
    assert after.mean("image", "NLL") < before.mean("image", "NLL") - 0.05
    manager = LabelManager(REGIONS if regions else LABELS, regions_class_order=[1, 2] if regions else None)
    for name in "xy":
        p = probabilities(output, name)
        assert np.array_equal(p, fit.calibrator.apply(probabilities(test[1], name)))
        image, old = labels(output, name), labels(test[1], name)
        assert np.array_equal(sitk.GetArrayFromImage(image), manager.convert_probabilities_to_segmentation(p))
        assert image.GetSpacing() == old.GetSpacing()
        assert image.GetOrigin() == pytest.approx(old.GetOrigin())
        assert image.GetDirection() == pytest.approx(old.GetDirection())
        assert np.array_equal(sitk.GetArrayFromImage(image), sitk.GetArrayFromImage(old)) or method == "vector"


@pytest.mark.parametrize("regions", [False, True])
def test_vector_scaling_writes_changed_segmentations(tmp_path: Path, regions: bool) -> None:
    train = write_folder(tmp_path / "train", "abcdef", regions=regions)
    fit_folder(train, method="vector")
    file = train[1] / "posthoc_vector.json"
    content = json.loads(file.read_text())
    content["biases"][-1] += 3
    file.write_text(json.dumps(content))
    test = write_folder(tmp_path / "test", "x", regions=regions, first=10)
    apply_folder(file, test[1], tmp_path / "out")
    p = probabilities(tmp_path / "out", "x")
    manager = LabelManager(REGIONS if regions else LABELS, regions_class_order=[1, 2] if regions else None)
    segmentation = sitk.GetArrayFromImage(labels(tmp_path / "out", "x"))
    assert np.array_equal(segmentation, manager.convert_probabilities_to_segmentation(p))
    assert (segmentation == 2).sum() > 1.2 * (sitk.GetArrayFromImage(labels(test[1], "x")) == 2).sum()


def test_nnunet_can_ensemble_the_folder(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit_folder(train)
    apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "calibrated")
    merged = tmp_path / "merged"
    ensemble_folders([str(test[1]), str(tmp_path / "calibrated")], str(merged), True, num_processes=1)
    mean = (probabilities(test[1], "x") + probabilities(tmp_path / "calibrated", "x")) / 2
    assert probabilities(merged, "x") == pytest.approx(mean)


def test_bad_cases_are_named_and_the_others_used(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path
) -> None:
    p, y = known_case(2.5)
    write_labels(y[:-1], train[0] / f"a{ENDING}")
    np.savez_compressed(train[1] / "b.npz", probabilities=np.log(p))
    (train[1] / "c.npz").write_bytes((train[1] / "c.npz").read_bytes()[:-100])
    (train[0] / f"d{ENDING}").unlink()
    fit = fit_folder(train)
    reasons = {entry.case: entry.reason for entry in fit.skipped}
    assert fit.cases == ["e", "f"]
    assert fit.calibrator == Temperature(pytest.approx(2.5, abs=1e-5), link=Link.SOFTMAX)
    assert "axis 0 is 15, not 14" in reasons["a"]
    assert "Are these logits?" in reasons["b"]
    assert "c.npz cannot be read" in reasons["c"]
    assert set(reasons) == {"a", "b", "c"}  # d has no ground truth: there is nothing to fit to
    assert f"Not used: c: {reasons['c']}" in fit.summary()

    np.savez_compressed(test[1] / "x.npz", probabilities=p / 2)
    (test[1] / f"y{ENDING}").unlink()
    applied = apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert applied.cases == ["z"]
    assert {entry.case for entry in applied.skipped} == {"x", "y"}
    assert "must sum to 1" in applied.skipped[0].reason
    assert "Calibrated 1 of 3 cases" in applied.summary()
    assert f"Not calibrated: y: {test[1] / f'y{ENDING}'} does not exist." in applied.summary()
    assert {path.stem for path in (tmp_path / "out").glob("*.npz")} == {"z"}
    assert not (tmp_path / "out" / "x.pkl").exists()


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_files_of_a_case_that_do_not_belong_together(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, method: str
) -> None:
    """Probabilities of another case, a segmentation cut short, and probabilities of other sizes."""
    fit_folder(train, method=method)
    shutil.copy(train[1] / "a.npz", test[1] / "x.npz")
    segmentation = test[1] / f"y{ENDING}"
    segmentation.write_bytes(segmentation.read_bytes()[:-1])
    bomb = np.zeros((3, 32, 512, 512), np.float16)  # 50 MB in 50 kB; ours would be 100
    bomb[0] = 1
    np.savez_compressed(test[1] / "z.npz", probabilities=bomb)
    write_case(*test, "w", *known_case(2.5, 20), regions=False)
    tracemalloc.start()
    applied = apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    reasons = {entry.case: entry.reason for entry in applied.skipped}
    assert applied.cases == ["w"]
    assert "x.npz: the segmentation x.nii.gz has another label than these probabilities give" in reasons["x"]
    assert f"{segmentation} cannot be read: its compressed stream ends too early" in reasons["y"]
    assert "z.npz: the shape (3, 32, 512, 512) does not match" in reasons["z"]


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_no_case_at_all(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, method: str) -> None:
    fit_folder(train, method=method)
    for name in "xyz":
        write_labels(np.zeros((2, 2, 2)), test[1] / f"{name}{ENDING}")
        (test[1] / f"{name}.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"None of 3 cases can be calibrated; the first: x: .*x.npz cannot be read"):
        apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / "out")
    with pytest.raises(ValueError, match=r"None of 3 cases can be used; the first: x: .*x.npz"):
        fit_folder(test)
    assert not (tmp_path / "out").exists()
    for file in test[1].glob("[xyz]*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"holds no probabilities \(\.npz\); predict with nnUNetv2_predict"):
        fit_folder(test)


def test_a_segmentation_of_another_shape(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit_folder(train, method="vector")
    write_labels(np.zeros((3, 8, 10)), test[1] / f"x{ENDING}")
    applied = apply_folder(train[1] / "posthoc_vector.json", test[1], tmp_path / "out")
    assert applied.cases == ["y", "z"]
    assert "axis 0 is 15, not 3" in applied.skipped[0].reason


def test_nothing_is_left_of_a_case_that_fails_late(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_folder(train)
    save = np.savez_compressed

    def fail_once(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(np, "savez_compressed", save)
        raise RuntimeError("something")

    monkeypatch.setattr(np, "savez_compressed", fail_once)
    applied = apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert applied.skipped[0].reason == f"{test[1] / 'x.npz'}: RuntimeError: something"
    assert list((tmp_path / "out").glob("x*")) == []


def test_interrupted_apply_leaves_nothing(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_folder(train)
    before = sorted(tmp_path.rglob("*"))
    calls = []

    def interrupt(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return apply(*arguments, **keywords)

    apply = Temperature.apply
    monkeypatch.setattr(Temperature, "apply", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Temperature, "apply", apply)
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left on device"):
        apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_cases_are_refused_unless_forced(train: tuple[Path, Path], tmp_path: Path) -> None:
    fit_folder(train)
    file, output = train[1] / "posthoc_temperature.json", tmp_path / "out"
    message = (
        f"{file} was fitted to 6 of the 6 cases in {train[1]}: a, b, c, d, e, …. Metrics of these would be too good"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        apply_folder(file, train[1], output)
    assert not output.exists()
    applied = apply_folder(file, train[1], output, force=True)
    assert applied.fitted_to_same_cases == list("abcdef")
    assert "6 of them are cases that it was fitted to: they do not test it." in applied.summary()
    assert json.loads((output / CALIBRATED_NAME).read_text())["applied"]["fitted_to_same_cases"] == list("abcdef")


def test_another_model_or_label_set_is_refused(test: tuple[Path, Path], tmp_path: Path) -> None:
    model, preprocessed = write_model(tmp_path, ["ab", "cd"])
    fit(Predictions.of_validation(model, preprocessed, [0, 1]))
    file = model / "posthoc_temperature.json"

    def refused(folder: Path, message: str) -> None:
        with pytest.raises(
            ValueError, match=re.escape(f"{file} cannot be applied to {folder}: it was fitted to {message}")
        ):
            apply_folder(file, folder, tmp_path / "out", force=True)
        assert not (tmp_path / "out").exists()

    trainer = tmp_path / "nnUNetTrainerFL" / "fold_0"
    shutil.copytree(test[1], trainer)
    refused(trainer, "the trainer nnUNetTrainerNACL, not nnUNetTrainerFL.")
    other = tmp_path / "Dataset001_Toy" / "nnUNetTrainerNACL__nnUNetPlans__3d_fullres" / "predictions"
    shutil.copytree(test[1], other)
    refused(other, "the configuration 2d, not 3d_fullres.")
    (test[1] / "plans.json").write_text(plans("Dataset002_Other"))
    refused(test[1], "the dataset Dataset001_Toy, not Dataset002_Other.")
    content = json.loads(description())
    content["labels"] = {"background": 0, "two": 1, "one": 2}
    (test[1] / "dataset.json").write_text(json.dumps(content))
    refused(test[1], 'the labels {"background": 0, "one": 1, "two": 2}, not {"background": 0, "two": 1, "one": 2}.')


def test_the_order_of_labels_matters_for_regions_only(tmp_path: Path) -> None:
    for regions in (False, True):
        folder = tmp_path / str(regions)
        train = write_folder(folder / "train", "ab", regions=regions)
        test = write_folder(folder / "test", "x", regions=regions)
        fit_folder(train)
        content = json.loads(description(regions))
        content["labels"] = dict(reversed(content["labels"].items()))
        content["regions_class_order"] = [2, 1]
        (test[1] / "dataset.json").write_text(json.dumps(content))
        if regions:
            with pytest.raises(ValueError, match="it was fitted to the labels"):
                apply_folder(train[1] / "posthoc_temperature.json", test[1], folder / "out")
        else:
            apply_folder(train[1] / "posthoc_temperature.json", test[1], folder / "out")


def test_a_calibrated_folder_is_not_calibrated_again(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path
) -> None:
    fit_folder(train)
    file, output = train[1] / "posthoc_temperature.json", tmp_path / "out"
    apply_folder(file, test[1], output)
    with pytest.raises(FileExistsError, match="out exists already"):
        apply_folder(file, test[1], output)
    with pytest.raises(ValueError, match=re.escape(f"{output} is calibrated already (posthoc_applied.json).")):
        apply_folder(file, output, tmp_path / "again")
    with pytest.raises(ValueError, match=r"is calibrated already .*; fit to what the model predicted"):
        fit_folder((test[0], output))


def test_the_commands(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit, output = tmp_path / "fit.json", tmp_path / "calibrated"
    assert main(["calibrate", "fit", *map(str, train), "-o", str(fit)]) == 0
    printed = capsys.readouterr().out
    assert "temperature: temperature 2.5" in printed
    assert f"Wrote {fit}" in printed
    assert main(["calibrate", "apply", str(fit), str(test[1]), "-o", str(output)]) == 0
    assert "Calibrated 3 of 3 cases" in capsys.readouterr().out
    assert main(["evaluate", str(test[0]), str(output), "-np", "1"]) == 0
    assert main(["calibrate", "apply", str(fit), str(train[1]), "-o", str(tmp_path / "same")]) == 1
    assert "--force" in capsys.readouterr().err
    for wrong in (["-d", "4"], ["a"], ["a", "b", "-tr", "nnUNetTrainer"], ["a", "b", "-d", "4", "-c", "2d"]):
        with pytest.raises(SystemExit):
            main(["calibrate", "fit", *wrong])


def test_segmentations_are_looked_at_whatever_the_method(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path
) -> None:
    fit_folder(train)
    (test[1] / f"x{ENDING}").write_bytes(b"no image")
    image = sitk.GetArrayFromImage(labels(test[1], "y"))
    write_labels(image[1:], test[1] / f"y{ENDING}")
    applied = apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert applied.cases == ["z"]
    reasons = {entry.case: entry.reason for entry in applied.skipped}
    assert f"x{ENDING} cannot be read" in reasons["x"]
    assert "does not match" in reasons["y"]
    write_labels(np.full_like(image, 9), test[1] / f"y{ENDING}")
    applied = apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "again")
    reasons = {entry.case: entry.reason for entry in applied.skipped}
    assert "holds labels that are not in the data set: 9" in reasons["y"]


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 0.7])
def test_what_are_no_probabilities_is_not_written(
    wrong: float, train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_folder(train)
    right = Temperature.apply_to_case

    def spoil(self: Temperature, p: np.ndarray, **options: Any) -> None:
        right(self, p, **options)
        p[1, 2, 3, 4] = wrong

    monkeypatch.setattr(Temperature, "apply_to_case", spoil)
    with pytest.raises(ValueError, match=r"None of 3 cases can be calibrated; the first: x: .*x\.npz, once calibrated"):
        apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert not (tmp_path / "out").exists()
