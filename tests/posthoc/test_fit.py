"""Fits to folders and to a model's validation cases, and what they say of held-out cases."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.posthoc import Fit, Link, Predictions, Temperature, apply_folder, fit
from tests.posthoc.generated import (
    ENDING,
    LABELS,
    description,
    fit_folder,
    known_case,
    probabilities,
    write_case,
    write_folder,
    write_model,
)

IMAGE = Settings(voxels=("image",))


@pytest.mark.parametrize("voxels", ["near", "image", "union", "foreground"])
@pytest.mark.parametrize("most", [10**6, 3000])
def test_the_sample(tmp_path: Path, voxels: Any, most: int) -> None:
    """More than one block of voxels; the metrics of all of them, or of a part, are the evaluation's."""
    ground_truth, predictions = write_folder(tmp_path, "")
    generator = np.random.default_rng(0)
    for name in "ab":
        p = generator.dirichlet([4, 0.5, 0.5], (10, 90, 100)).astype(np.float32)
        y = (p.cumsum(-1) < generator.random((10, 90, 100, 1))).sum(-1).clip(0, 2)
        write_case(ground_truth, predictions, name, np.moveaxis(p, -1, 0), y, regions=False)
    fit = fit_folder((ground_truth, predictions), voxels=voxels, num_voxels=most)
    whole = evaluate(Predictions.of_folder(ground_truth, predictions), settings=Settings(voxels=(voxels,))).pooled(
        voxels
    )
    size = 2 * 90000 if voxels == "image" else fit.sample.available
    assert fit.sample.available == size
    assert fit.sample.voxels == min(size, most)
    slack = 1e-6 if most > size else 0.1
    assert asdict(fit.fitted.before) == {metric: pytest.approx(whole[metric], abs=slack) for metric in ("NLL", "ECE")}
    again = fit_folder((ground_truth, predictions), voxels=voxels, num_voxels=most)
    assert again == fit
    other = fit_folder((ground_truth, predictions), voxels=voxels, num_voxels=most, seed=1)
    assert (other.calibrator == fit.calibrator) == (most > size)


def test_ignored_voxels_are_not_sampled(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "")
    content = json.loads(description())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    for number, name in enumerate("ab"):
        p, y = known_case(2.0, number)
        ignored = np.concatenate([y, np.full_like(y, 3)])
        noise = np.random.default_rng(0).dirichlet([1, 1, 1], y.shape).astype(np.float32)
        write_case(ground_truth, predictions, name, np.concatenate([p, np.moveaxis(noise, -1, 0)], 1), ignored, False)
    for voxels in ("image", "union"):
        fit = fit_folder((ground_truth, predictions), voxels=voxels)
        assert fit.sample.available <= 2400
    assert fit_folder((ground_truth, predictions)).calibrator == Temperature(
        pytest.approx(2.0, abs=1e-5), link=Link.SOFTMAX
    )


def test_a_model_is_held_out_by_fold(tmp_path: Path) -> None:
    model, preprocessed = write_model(tmp_path, ["abc", "de", "f"])
    result = fit(Predictions.of_validation(model, preprocessed, [0, 1, 2]))
    assert (model / "posthoc_temperature.json").is_file()
    assert result.model.trainer == "nnUNetTrainerNACL"
    assert result.model.configuration == "2d"
    parts = result.held_out.parts
    assert [(part.part, part.cases) for part in parts] == [
        ("fold 0", ["a", "b", "c"]), ("fold 1", ["d", "e"]), ("fold 2", ["f"])
    ]  # fmt: skip
    others = fit(Predictions.of_validation(model, preprocessed, [1, 2]), output=tmp_path / "others.json")
    first = model / "fold_0" / "validation"
    apply_folder(tmp_path / "others.json", first, tmp_path / "out")
    metrics = evaluate(Predictions.of_folder(preprocessed / "gt_segmentations", tmp_path / "out"), settings=IMAGE).mean(
        "image", "NLL"
    )
    assert pytest.approx(metrics, abs=1e-6) == parts[0].change.after.NLL
    assert len(others.held_out.parts) == 2
    one = fit(Predictions.of_validation(model, preprocessed, ["0"]), output=tmp_path / "one.json")
    assert len(one.held_out.parts) == 3
    total = sum(part.voxels * part.change.after.NLL for part in parts) / result.sample.voxels
    assert pytest.approx(total) == result.held_out.change.after.NLL


def test_by_the_models_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, preprocessed = write_model(tmp_path, ["ab", "cd"])
    monkeypatch.setenv("nnUNet_results", str(model.parents[1]))
    monkeypatch.setenv("nnUNet_preprocessed", str(preprocessed.parent))
    result = fit(
        Predictions.of_model("Dataset001_Toy", "2d", trainer="nnUNetTrainerNACL", folds=(0, 1)), method="classwise"
    )
    assert Fit.read(model / "posthoc_classwise.json") == result


def test_no_improvement_is_said(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "")
    for name, temperature in zip("ab", (0.3, 5.0), strict=True):  # each needs the opposite of the other
        write_case(ground_truth, predictions, name, *known_case(temperature), regions=False)
    fit = fit_folder((ground_truth, predictions))
    assert not fit.improves
    assert "This does NOT improve the NLL on held-out cases: NLL" in fit.summary()


def test_a_single_case_has_no_held_out_values(tmp_path: Path) -> None:
    fit = fit_folder(write_folder(tmp_path, "a"))
    assert not fit.improves
    assert "part 1 of 1: no voxel in the others." in fit.summary()
    assert "No values for held-out cases: it is not known whether this improves anything." in fit.summary()


def test_held_out_parts_that_cannot_be_fitted_without(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "")
    p, y = known_case(2.0)
    write_case(ground_truth, predictions, "a", p, y, regions=False)
    write_case(ground_truth, predictions, "b", p, p.argmax(0), regions=False)
    fit = fit_folder((ground_truth, predictions))
    assert "without it, all 1200 sampled voxels are predicted correctly" in fit.summary()
    assert fit.held_out.change.before.NLL > 0


def test_no_voxel_of_the_set(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "")
    p = np.full((3, 4, 4, 4), [[[[0.8]]], [[[0.1]]], [[[0.1]]]], np.float32)
    write_case(ground_truth, predictions, "a", p, np.zeros((4, 4, 4)), regions=False)
    for voxels in ("foreground", "union"):
        with pytest.raises(ValueError, match=f"No voxel in the set {voxels} in any of 1 cases"):
            fit_folder((ground_truth, predictions), voxels=voxels)
    with pytest.raises(ValueError, match="all 64 sampled voxels are of class 0, so nothing can be learned from them"):
        fit_folder((ground_truth, predictions))
    (predictions / "dataset.json").write_text(json.dumps({"labels": {"background": 0}, "file_ending": ENDING}))
    with pytest.raises(ValueError, match="expected 2 labels or more, the background being one; got 1"):
        fit_folder((ground_truth, predictions))
    assert list(predictions.glob("posthoc*")) == []


def test_options_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(folder) for folder in write_folder(tmp_path, "abcd", temperature=2, structure=True)]
    assert main(["calibrate", "fit", *folders, "--margin_mm", "3"]) == 0
    assert "voxels (near) of 4 cases" in capsys.readouterr().out
    content = json.loads((tmp_path / "predictions" / "posthoc_temperature.json").read_text())
    assert (content["settings"]["voxels"], content["settings"]["margin_mm"]) == ("near", 3.0)
    assert main(["calibrate", "fit", *folders, "--voxels", "union"]) == 0
    printed = capsys.readouterr().out
    assert re.search(
        r"Fitted to the union: T = [345]\.\d\d\. Voxels chosen by .*; over near T = (1\.9|2\.0)\d\.", printed
    )


def test_folds_must_not_share_cases(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the case b is in .*: folds must not share cases"):
        fit(Predictions.of_validation(*write_model(tmp_path, ["ab", "bc"]), [0, 1]))


def test_probabilities_of_another_orientation_are_refused(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "ab")
    p = probabilities(predictions, "a")
    np.savez_compressed(predictions / "a.npz", probabilities=p[:, ::-1, ::-1])
    fit = fit_folder((ground_truth, predictions))
    assert "a.npz: the segmentation a.nii.gz has another label than these probabilities" in fit.skipped[0].reason


def test_arguments(train: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="method must be one of temperature, classwise, vector, irm, local; got 'platt'"
    ):
        fit_folder(train, method="platt")
    with pytest.raises(ValueError, match="voxels must be one of near, image, union, foreground; got 'boundary'"):
        fit_folder(train, voxels="boundary")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"vector scaling changes segmentations.*; voxels must be image; got union"):
        fit_folder(train, method="vector", voxels="union")
    with pytest.raises(ValueError, match="num_voxels must be at least the number of cases, 6; got 5"):
        fit_folder(train, num_voxels=5)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        fit_folder(train, output=tmp_path / "nowhere" / "fit.json")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        fit_folder((tmp_path / "nowhere", train[1]))
    model, preprocessed = write_model(tmp_path / "m", ["ab"])
    with pytest.raises(FileNotFoundError, match="fold_7/validation is not a folder"):
        fit(Predictions.of_validation(model, preprocessed, [0, 7]))
    with pytest.raises(ValueError, match="folds must name at least one fold; got none"):
        fit(Predictions.of_validation(model, preprocessed, []))
    (model / "fold_0").rename(model / "fold_all")
    with pytest.raises(ValueError, match="fold all is validated on the cases that it was trained with"):
        fit(Predictions.of_validation(model, preprocessed, ["all"]))
    fit_folder(train)
    file = train[1] / "posthoc_temperature.json"
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        apply_folder(file, tmp_path / "nowhere", tmp_path / "out")
    test = write_folder(tmp_path / "test", "x", first=10)
    (test[1] / "dataset.json").rename(tmp_path / "my.json")
    with pytest.raises(FileNotFoundError, match=r"name the data set's dataset.json with -djfile"):
        apply_folder(file, test[1], tmp_path / "out")
    apply_folder(file, test[1], tmp_path / "out", dataset_json=tmp_path / "my.json")
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["labels"] == LABELS


def test_held_out_values_are_pooled(tmp_path: Path) -> None:
    """Two cases, one over- and one under-confident by as much: each is off, both together are not."""
    ground_truth, predictions = write_folder(tmp_path, "")
    right = np.array([[[[0.75]]], [[[0.25]]], [[[0.0]]]])
    for name, share in (("a", 0.95), ("b", 0.55)):
        y = (np.arange(2000) >= 2000 * share).astype(int).reshape(2, 10, 100)
        write_case(ground_truth, predictions, name, np.broadcast_to(right, (3, *y.shape)).astype(np.float32), y, False)
    held_out = fit_folder((ground_truth, predictions)).held_out
    assert [part.change.before.ECE for part in held_out.parts] == pytest.approx([0.2, 0.2])
    assert pytest.approx(0, abs=1e-6) == held_out.change.before.ECE
    parts = [part.change.after.NLL for part in held_out.parts]
    assert pytest.approx(np.mean(parts)) == held_out.change.after.NLL


def test_which_sets_a_method_takes(tmp_path: Path) -> None:
    train = write_folder(tmp_path, "ab")
    for method in ("temperature", "classwise", "irm", "local"):
        assert fit_folder(train, method=method, num_voxels=600).settings.voxels == "near"
    assert fit_folder(train, method="vector").settings.voxels == "image"
    for method, voxels, possible in (("vector", "near", "image"), ("local", "union", "near or image")):
        with pytest.raises(ValueError, match=f"{method} scaling .*; voxels must be {possible}; got {voxels}"):
            fit_folder(train, method=method, voxels=voxels)  # type: ignore[arg-type]
    for margin_mm in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"margin_mm must be at least 0 and finite; got {margin_mm}"):
            fit_folder(train, margin_mm=margin_mm)
    file = train[1] / "posthoc_local.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"margin_mm": -2}))
    with pytest.raises(ValueError, match=r"is no fit of nnunet_nacl: margin_mm must be at least 0 and finite; got -2"):
        Fit.read(file)
