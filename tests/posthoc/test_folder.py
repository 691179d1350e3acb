import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from nnunetv2.ensembling.ensemble import ensemble_folders
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.posthoc import (
    APPLIED_NAME,
    METHODS,
    Fit,
    Temperature,
    _apply,
    apply_folder,
    calibrate,
)
from nnunet_nacl.posthoc import fit as fit_predictions
from tests.posthoc.generated import (
    ENDING,
    LABELS,
    REGIONS,
    description,
    known_case,
    plans,
    region_case,
    softmax,
    write_case,
    write_labels,
)

IMAGE = Settings(voxels=("image",))


def make(
    folder: Path, names: str, *, temperature: float = 2.5, regions: bool = False, first: int = 0
) -> tuple[Path, Path]:
    """References, and predictions as nnU-Net leaves them; a case for each letter."""
    references, predictions = folder / "labels", folder / "predictions"
    references.mkdir(parents=True)
    predictions.mkdir()
    (predictions / "dataset.json").write_text(description(regions))
    (predictions / "plans.json").write_text(plans())
    (predictions / "predict_from_raw_data_args.json").write_text("{}")
    for number, name in enumerate(names):
        p, y = (region_case if regions else known_case)(temperature, first + number)
        write_case(references, predictions, name, p, y, regions)
        _, properties = SimpleITKIO().read_seg(str(predictions / f"{name}{ENDING}"))
        (predictions / f"{name}.pkl").write_bytes(pickle.dumps(properties))
    return references, predictions


@pytest.fixture
def train(tmp_path: Path) -> tuple[Path, Path]:
    return make(tmp_path / "train", "abcdef")


@pytest.fixture
def test(tmp_path: Path) -> tuple[Path, Path]:
    return make(tmp_path / "test", "xyz", first=10)


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as archive:
        return archive["probabilities"]


def labels(folder: Path, name: str) -> sitk.Image:
    return sitk.ReadImage(str(folder / f"{name}{ENDING}"))


def test_fit_and_apply(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit = fit_predictions(Predictions.of_folder(*train))
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
    assert re.search(r"On cases held out: NLL 1\.\d+ → 0\.\d+, ECE 0\.\d+ → 0\.\d+$", fit.summary())

    output = tmp_path / "calibrated"
    applied = apply_folder(file, test[1], output)
    assert applied.cases == ["x", "y", "z"]
    assert applied.skipped == []
    assert {path.name for path in output.iterdir()} == {path.name for path in test[1].iterdir()} | {APPLIED_NAME}
    for name in "xyz":
        p, q = probabilities(test[1], name), probabilities(output, name)
        assert q.dtype == np.float32
        assert q == pytest.approx(softmax(np.log(p.astype(float)) / 2.5), abs=1e-6)
        for ending in (ENDING, ".pkl"):
            assert (output / (name + ending)).read_bytes() == (test[1] / (name + ending)).read_bytes()
    marked = json.loads((output / APPLIED_NAME).read_text())
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
    train = make(tmp_path / "train", "abcdef", temperature=3, regions=regions)
    test = make(tmp_path / "test", "xy", temperature=3, regions=regions, first=10)
    output = tmp_path / "calibrated"
    fit = fit_predictions(Predictions.of_folder(*train), method=method)
    assert fit.improves
    apply_folder(train[1] / f"posthoc_{method}.json", test[1], output)
    before, after = (evaluate(Predictions.of_folder(test[0], folder), settings=IMAGE) for folder in (test[1], output))
    assert after.skipped == []
    assert after.mean("image", "NLL") < before.mean("image", "NLL") - 0.05
    manager = LabelManager(REGIONS if regions else LABELS, regions_class_order=[1, 2] if regions else None)
    for name in "xy":
        p = probabilities(output, name)
        assert np.array_equal(p, calibrate(fit.calibrator, probabilities(test[1], name), regions=regions))
        image, old = labels(output, name), labels(test[1], name)
        assert np.array_equal(sitk.GetArrayFromImage(image), manager.convert_probabilities_to_segmentation(p))
        assert image.GetSpacing() == old.GetSpacing()
        assert image.GetOrigin() == pytest.approx(old.GetOrigin())
        assert image.GetDirection() == pytest.approx(old.GetDirection())
        assert np.array_equal(sitk.GetArrayFromImage(image), sitk.GetArrayFromImage(old)) or method == "vector"


@pytest.mark.parametrize("regions", [False, True])
def test_vector_scaling_writes_changed_segmentations(tmp_path: Path, regions: bool) -> None:
    train = make(tmp_path / "train", "abcdef", regions=regions)
    fit_predictions(Predictions.of_folder(*train), method="vector")
    file = train[1] / "posthoc_vector.json"
    content = json.loads(file.read_text())
    content["biases"][-1] += 3
    file.write_text(json.dumps(content))
    test = make(tmp_path / "test", "x", regions=regions, first=10)
    apply_folder(file, test[1], tmp_path / "out")
    p = probabilities(tmp_path / "out", "x")
    manager = LabelManager(REGIONS if regions else LABELS, regions_class_order=[1, 2] if regions else None)
    found = sitk.GetArrayFromImage(labels(tmp_path / "out", "x"))
    assert np.array_equal(found, manager.convert_probabilities_to_segmentation(p))
    assert (found == 2).sum() > 1.2 * (sitk.GetArrayFromImage(labels(test[1], "x")) == 2).sum()


def test_nnunet_can_ensemble_the_folder(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit_predictions(Predictions.of_folder(*train))
    apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "calibrated")
    merged = tmp_path / "merged"
    ensemble_folders([str(test[1]), str(tmp_path / "calibrated")], str(merged), True, num_processes=1)
    mean = (probabilities(test[1], "x") + probabilities(tmp_path / "calibrated", "x")) / 2
    assert probabilities(merged, "x") == pytest.approx(mean)


@pytest.mark.parametrize("voxels", ["near", "image", "union", "foreground"])
@pytest.mark.parametrize("most", [10**6, 3000])
def test_the_sample(tmp_path: Path, voxels: Any, most: int) -> None:
    """More than one block of voxels; the figures of all of them, or of a part, are the evaluation's."""
    references, predictions = make(tmp_path, "")
    generator = np.random.default_rng(0)
    for name in "ab":
        p = generator.dirichlet([4, 0.5, 0.5], (10, 90, 100)).astype(np.float32)
        y = (p.cumsum(-1) < generator.random((10, 90, 100, 1))).sum(-1).clip(0, 2)
        write_case(references, predictions, name, np.moveaxis(p, -1, 0), y, regions=False)
    fit = fit_predictions(Predictions.of_folder(references, predictions), voxels=voxels, num_voxels=most)
    whole = evaluate(Predictions.of_folder(references, predictions), settings=Settings(voxels=(voxels,))).to_json()[
        "pooled"
    ][voxels]
    size = 2 * 90000 if voxels == "image" else fit.sample["available"]
    assert fit.sample["available"] == size
    assert fit.sample["voxels"] == min(size, most)
    slack = 1e-6 if most > size else 0.1
    assert fit.fitted["before"] == {metric: pytest.approx(whole[metric], abs=slack) for metric in ("NLL", "ECE")}
    again = fit_predictions(Predictions.of_folder(references, predictions), voxels=voxels, num_voxels=most)
    assert again == fit
    other = fit_predictions(Predictions.of_folder(references, predictions), voxels=voxels, num_voxels=most, seed=1)
    assert (other.calibrator == fit.calibrator) == (most > size)


def test_ignored_voxels_are_not_sampled(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "")
    content = json.loads(description())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    for number, name in enumerate("ab"):
        p, y = known_case(2.0, number)
        ignored = np.concatenate([y, np.full_like(y, 3)])
        noise = np.random.default_rng(0).dirichlet([1, 1, 1], y.shape).astype(np.float32)
        write_case(references, predictions, name, np.concatenate([p, np.moveaxis(noise, -1, 0)], 1), ignored, False)
    for voxels in ("image", "union"):
        fit = fit_predictions(Predictions.of_folder(references, predictions), voxels=voxels)
        assert fit.sample["available"] <= 2400
    assert fit_predictions(Predictions.of_folder(references, predictions)).calibrator == Temperature(
        pytest.approx(2.0, abs=1e-5)
    )


def make_model(folder: Path, folds: list[str]) -> tuple[Path, Path]:
    model = folder / "results" / "Dataset001_Toy" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    references = folder / "preprocessed" / "Dataset001_Toy" / "gt_segmentations"
    for number, names in enumerate(folds):
        made, predictions = make(folder / f"made_{number}", names, temperature=2 + number / 10, first=10 * number)
        shutil.copytree(
            predictions, model / f"fold_{number}" / "validation", ignore=lambda *_: ["dataset.json", "plans.json"]
        )
        shutil.copytree(made, references, dirs_exist_ok=True)
        shutil.copy(predictions / "dataset.json", model)
        shutil.copy(predictions / "plans.json", model)
    return model, references.parent


def test_a_model_is_held_out_by_fold(tmp_path: Path) -> None:
    model, preprocessed = make_model(tmp_path, ["abc", "de", "f"])
    fit = fit_predictions(Predictions.of_validation(model, preprocessed, [0, 1, 2]))
    assert (model / "posthoc_temperature.json").is_file()
    assert fit.model.trainer == "nnUNetTrainerNACL"
    assert fit.model.configuration == "2d"
    parts = fit.held_out["parts"]
    assert [(entry["part"], entry["cases"]) for entry in parts] == [
        ("fold 0", ["a", "b", "c"]), ("fold 1", ["d", "e"]), ("fold 2", ["f"])
    ]  # fmt: skip
    others = fit_predictions(Predictions.of_validation(model, preprocessed, [1, 2]), output=tmp_path / "others.json")
    first = model / "fold_0" / "validation"
    apply_folder(tmp_path / "others.json", first, tmp_path / "out")
    figures = evaluate(Predictions.of_folder(preprocessed / "gt_segmentations", tmp_path / "out"), settings=IMAGE).mean(
        "image", "NLL"
    )
    assert parts[0]["after"]["NLL"] == pytest.approx(figures, abs=1e-6)
    assert len(others.held_out["parts"]) == 2
    one = fit_predictions(Predictions.of_validation(model, preprocessed, ["0"]), output=tmp_path / "one.json")
    assert len(one.held_out["parts"]) == 3
    total = sum(entry["voxels"] * entry["after"]["NLL"] for entry in parts) / fit.sample["voxels"]
    assert fit.held_out["after"]["NLL"] == pytest.approx(total)


def test_by_the_models_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, preprocessed = make_model(tmp_path, ["ab", "cd"])
    monkeypatch.setattr("nnunetv2.paths.nnUNet_preprocessed", str(preprocessed.parent))
    for module in ("file_path_utilities", "dataset_name_id_conversion"):
        monkeypatch.setattr(f"nnunetv2.utilities.{module}.nnUNet_results", str(model.parents[1]), raising=False)
        monkeypatch.setattr(f"nnunetv2.utilities.{module}.nnUNet_preprocessed", str(preprocessed.parent), raising=False)
    fit = fit_predictions(
        Predictions.of_model("Dataset001_Toy", "2d", trainer="nnUNetTrainerNACL", folds=(0, 1)), method="classwise"
    )
    assert Fit.read(model / "posthoc_classwise.json") == fit


def test_no_improvement_is_said(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "")
    for name, temperature in zip("ab", (0.3, 5.0), strict=True):  # each needs the opposite of the other
        write_case(references, predictions, name, *known_case(temperature), regions=False)
    fit = fit_predictions(Predictions.of_folder(references, predictions))
    assert not fit.improves
    assert "This does NOT improve the NLL on cases held out: NLL" in fit.summary()


def test_a_single_case_has_no_held_out_figures(tmp_path: Path) -> None:
    fit = fit_predictions(Predictions.of_folder(*make(tmp_path, "a")))
    assert not fit.improves
    assert "part 1 of 1: no voxel in the others." in fit.summary()
    assert "No figures on cases held out: it is not known whether this improves anything." in fit.summary()


def test_held_out_parts_that_cannot_be_fitted_without(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "")
    p, y = known_case(2.0)
    write_case(references, predictions, "a", p, y, regions=False)
    write_case(references, predictions, "b", p, p.argmax(0), regions=False)
    fit = fit_predictions(Predictions.of_folder(references, predictions))
    assert "without it, all 1200 sampled voxels are predicted rightly" in fit.summary()
    assert fit.held_out["before"]["NLL"] > 0


def test_bad_cases_are_named_and_the_others_used(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path
) -> None:
    p, y = known_case(2.5)
    write_labels(y[:-1], train[0] / f"a{ENDING}")
    np.savez_compressed(train[1] / "b.npz", probabilities=np.log(p))
    (train[1] / "c.npz").write_bytes((train[1] / "c.npz").read_bytes()[:-100])
    (train[0] / f"d{ENDING}").unlink()
    fit = fit_predictions(Predictions.of_folder(*train))
    reasons = {entry.case: entry.reason for entry in fit.skipped}
    assert fit.cases == ["e", "f"]
    assert fit.calibrator == Temperature(pytest.approx(2.5, abs=1e-5))
    assert "axis 0 is 15, not 14" in reasons["a"]
    assert "Are these logits?" in reasons["b"]
    assert "c.npz cannot be read" in reasons["c"]
    assert reasons["d"] == f"{train[0] / f'd{ENDING}'} does not exist: no reference."
    assert f"Not used: d: {reasons['d']}" in fit.summary()

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


def test_probabilities_of_another_orientation_are_refused(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "ab")
    p = probabilities(predictions, "a")
    np.savez_compressed(predictions / "a.npz", probabilities=p[:, ::-1, ::-1])
    fit = fit_predictions(Predictions.of_folder(references, predictions))
    assert "the probabilities are right in" in fit.skipped[0].reason


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_no_case_at_all(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, method: str) -> None:
    fit_predictions(Predictions.of_folder(*train), method=method)
    for name in "xyz":
        write_labels(np.zeros((2, 2, 2)), test[1] / f"{name}{ENDING}")
        (test[1] / f"{name}.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"None of 3 cases can be calibrated; the first: x: .*x.npz cannot be read"):
        apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / "out")
    with pytest.raises(ValueError, match=r"None of 3 cases can be used; the first: x: .*x.npz"):
        fit_predictions(Predictions.of_folder(*test))
    assert not (tmp_path / "out").exists()
    for file in test[1].glob("[xyz]*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"No prediction found in .*; train or validate with --npz"):
        fit_predictions(Predictions.of_folder(*test))


def test_a_segmentation_of_another_shape(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit_predictions(Predictions.of_folder(*train), method="vector")
    write_labels(np.zeros((3, 8, 10)), test[1] / f"x{ENDING}")
    applied = apply_folder(train[1] / "posthoc_vector.json", test[1], tmp_path / "out")
    assert applied.cases == ["y", "z"]
    assert "axis 0 is 15, not 3" in applied.skipped[0].reason


def test_nothing_is_left_of_a_case_that_fails_late(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_predictions(Predictions.of_folder(*train))
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
    fit_predictions(Predictions.of_folder(*train))
    before = sorted(tmp_path.rglob("*"))
    calls = []

    def interrupt(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return calibrate(*arguments, **keywords)

    monkeypatch.setattr(_apply, "calibrate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_apply, "calibrate", calibrate)
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left on device"):
        apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_cases_are_refused_unless_forced(train: tuple[Path, Path], tmp_path: Path) -> None:
    fit_predictions(Predictions.of_folder(*train))
    file, output = train[1] / "posthoc_temperature.json", tmp_path / "out"
    message = (
        f"{file} was fitted to 6 of the 6 cases in {train[1]}: a, b, c, d, e, …. Figures of these would be too good"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        apply_folder(file, train[1], output)
    assert not output.exists()
    applied = apply_folder(file, train[1], output, force=True)
    assert applied.fitted_to_same_cases == list("abcdef")
    assert "6 of them are cases that it was fitted to: no test of it." in applied.summary()
    assert json.loads((output / APPLIED_NAME).read_text())["applied"]["fitted_to_same_cases"] == list("abcdef")


def test_another_model_or_label_set_is_refused(test: tuple[Path, Path], tmp_path: Path) -> None:
    model, preprocessed = make_model(tmp_path, ["ab", "cd"])
    fit_predictions(Predictions.of_validation(model, preprocessed, [0, 1]))
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
        train = make(folder / "train", "ab", regions=regions)
        test = make(folder / "test", "x", regions=regions)
        fit_predictions(Predictions.of_folder(*train))
        content = json.loads(description(regions))
        content["labels"] = dict(reversed(content["labels"].items()))
        (test[1] / "dataset.json").write_text(json.dumps(content))
        if regions:
            with pytest.raises(ValueError, match="it was fitted to the labels"):
                apply_folder(train[1] / "posthoc_temperature.json", test[1], folder / "out")
        else:
            apply_folder(train[1] / "posthoc_temperature.json", test[1], folder / "out")


def test_a_calibrated_folder_is_not_calibrated_again(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path
) -> None:
    fit_predictions(Predictions.of_folder(*train))
    file, output = train[1] / "posthoc_temperature.json", tmp_path / "out"
    apply_folder(file, test[1], output)
    with pytest.raises(FileExistsError, match="out exists already"):
        apply_folder(file, test[1], output)
    with pytest.raises(ValueError, match=re.escape(f"{output} is calibrated already (posthoc_applied.json).")):
        apply_folder(file, output, tmp_path / "again")
    with pytest.raises(ValueError, match=r"is calibrated already .*; fit to what the model predicted"):
        fit_predictions(Predictions.of_folder(test[0], output))


def test_arguments(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="method must be one of temperature, classwise, vector, irm, local; got 'platt'"
    ):
        fit_predictions(Predictions.of_folder(*train), method="platt")
    with pytest.raises(ValueError, match="voxels must be one of near, image, union, foreground; got 'boundary'"):
        fit_predictions(Predictions.of_folder(*train), voxels="boundary")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"vector scaling changes segmentations.*; voxels must be image; got union"):
        fit_predictions(Predictions.of_folder(*train), method="vector", voxels="union")
    with pytest.raises(ValueError, match="num_voxels must be at least the number of cases, 6; got 5"):
        fit_predictions(Predictions.of_folder(*train), num_voxels=5)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        fit_predictions(Predictions.of_folder(*train), output=tmp_path / "nowhere" / "fit.json")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        fit_predictions(Predictions.of_folder(tmp_path / "nowhere", train[1]))
    with pytest.raises(FileNotFoundError, match="fold_7/validation is not a folder"):
        fit_predictions(Predictions.of_validation(*make_model(tmp_path / "m", ["ab"]), [0, 7]))
    with pytest.raises(ValueError, match="folds must name at least one fold; got none"):
        fit_predictions(Predictions.of_validation(tmp_path, tmp_path, []))
    with pytest.raises(ValueError, match="fold all is validated on the cases that it was trained with"):
        fit_predictions(Predictions.of_validation(tmp_path, tmp_path, ["all"]))
    fit_predictions(Predictions.of_folder(*train))
    file = train[1] / "posthoc_temperature.json"
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        apply_folder(file, tmp_path / "nowhere", tmp_path / "out")
    (test[1] / "dataset.json").rename(tmp_path / "my.json")
    with pytest.raises(FileNotFoundError, match=r"name the data set's dataset.json with -djfile"):
        apply_folder(file, test[1], tmp_path / "out")
    apply_folder(file, test[1], tmp_path / "out", dataset_json=tmp_path / "my.json")
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["labels"] == LABELS


def test_no_voxel_of_the_set(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "")
    p = np.full((3, 4, 4, 4), [[[[0.8]]], [[[0.1]]], [[[0.1]]]], np.float32)
    write_case(references, predictions, "a", p, np.zeros((4, 4, 4)), regions=False)
    for voxels in ("foreground", "union"):
        with pytest.raises(ValueError, match=f"No voxel in the set {voxels} in any of 1 cases"):
            fit_predictions(Predictions.of_folder(references, predictions), voxels=voxels)
    with pytest.raises(ValueError, match="all 64 sampled voxels are of class 0, so there is nothing to tell from it"):
        fit_predictions(Predictions.of_folder(references, predictions))
    (predictions / "dataset.json").write_text(json.dumps({"labels": {"background": 0}, "file_ending": ENDING}))
    with pytest.raises(ValueError, match="expected 2 labels or more, the background being one; got 1"):
        fit_predictions(Predictions.of_folder(references, predictions))
    assert list(predictions.glob("posthoc*")) == []


def test_folds_must_not_share_cases(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the case b is in .*: folds must not share cases"):
        fit_predictions(Predictions.of_validation(*make_model(tmp_path, ["ab", "bc"]), [0, 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [1], "is no fit of nnunet_nacl"),
        (lambda content: {}, "is no fit of nnunet_nacl: it has no 'model'"),
        (lambda content: {**content, "method": "guess"}, "method must be one of"),
        (
            lambda content: {**content, "cases": {**content["cases"], "names": ["a"]}},
            "the list of cases is not the one",
        ),
        (lambda content: {key: content[key] for key in content if key != "held_out"}, "it has no 'held_out'"),
    ],
)
def test_a_damaged_fit(train: tuple[Path, Path], change: Any, message: str) -> None:
    fit_predictions(Predictions.of_folder(*train))
    file = train[1] / "posthoc_temperature.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}.*{re.escape(message)}"):
        Fit.read(file)
    file.write_text("{")
    with pytest.raises(ValueError, match="is no fit of nnunet_nacl"):
        Fit.read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Fit.read(file)


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
