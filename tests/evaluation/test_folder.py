import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from nnunetv2.evaluation.evaluate_predictions import compute_metrics
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.nibabel_reader_writer import NibabelIO, NibabelIOWithReorient
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO, SimpleITKIOWithReorient
from nnunetv2.imageio.tif_reader_writer import Tiff3DIO

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import (
    METRICS,
    FolderResult,
    Settings,
    _folder,
    evaluate,
    evaluate_case,
)
from nnunet_nacl.nnunet import Predictions, read_labels
from tests.evaluation.test_case import random_case

LABELS = {"background": 0, "one": 1, "two": 2}
SUMMARY = "calibration_summary.json"
Folders = tuple[Path, Path]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Three cases as nnU-Net leaves them: references, and predictions with probabilities and dataset.json."""
    references, predictions = tmp_path / "labelsTs", tmp_path / "predictions"
    references.mkdir()
    predictions.mkdir()
    (predictions / "dataset.json").write_text(json.dumps({"labels": LABELS, "file_ending": ".nii.gz"}))
    for number in range(3):
        add_case(references, predictions, f"case_{number}", *random_case(number))
    return references, predictions


def add_case(references: Path, predictions: Path, name: str, p: np.ndarray, y: np.ndarray) -> None:
    write(y, references / f"{name}.nii.gz")
    write(p.argmax(0), predictions / f"{name}.nii.gz")
    np.savez_compressed(predictions / f"{name}.npz", probabilities=p)


def write(labels: np.ndarray, file: Path, spacing: tuple[float, ...] = (1, 1, 1)) -> None:
    image = sitk.GetImageFromArray(labels.astype(np.uint8))
    image.SetSpacing(spacing)
    sitk.WriteImage(image, str(file))


def run_evaluate(folders: Folders, *options: object) -> int:
    return main(["evaluate", *map(str, folders), "-np", "1", *map(str, options)])


def summary_of(folders: Folders) -> dict[str, object]:
    return json.loads((folders[1] / SUMMARY).read_text())


def reasons(folders: Folders) -> dict[str, str]:
    return {entry["case"]: entry["reason"] for entry in summary_of(folders)["skipped"]}


def test_the_command(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_evaluate(folders) == 0
    printed = capsys.readouterr().out
    summary = summary_of(folders)
    assert f"{summary['mean']['foreground']['ECE']:.3f}" in printed
    assert f"Evaluated 3 of 3 cases; all figures are in {folders[1] / SUMMARY}" in printed
    assert list(folders[1].glob(".*")) == []

    expected = [evaluate_case(*random_case(number)) for number in range(3)]
    for voxels in ("foreground", "union"):
        for metric in METRICS:
            values = [case.calibration[voxels].metrics()[metric] for case in expected]
            assert summary["mean"][voxels][metric] == pytest.approx(np.mean(values), abs=1e-12)
            low, high = summary["interval"][voxels][metric]
            slack = 1e-12  # sums in another order
            assert min(values) - slack <= low <= np.mean(values) <= high <= max(values) + slack
            found = [case["calibration"][voxels][metric] for case in summary["metric_per_case"]]
            assert found == pytest.approx(values, abs=1e-12)
    pooled = sum((case.calibration["union"] for case in expected[1:]), expected[0].calibration["union"])
    classes = summary["pooled"]["union"].pop("classes")
    assert summary["pooled"]["union"] == pytest.approx(pooled.metrics())
    assert list(classes) == ["0", "1", "2"]
    assert [values["ECE"] for values in classes.values()] == [values["ECE"] for values in pooled.class_metrics()]
    by_class = [case.calibration["union"].class_metrics()[2]["ECE"] for case in expected]
    assert summary["mean"]["union"]["classes"]["2"]["ECE"] == pytest.approx(np.mean(by_class), abs=1e-12)
    assert summary["interval"]["union"]["classes"]["2"]["ECE"][0] < np.mean(by_class)
    assert summary["skipped"] == []
    assert summary["settings"]["labels"] == LABELS
    assert set(summary["versions"]) == {"python", "nnunet-nacl", "nnunetv2", "numpy", "scipy"}
    assert list(summary["metric_per_case"][0]) == [
        "case", "reference_file", "prediction_file", "probabilities_file", "calibration", "segmentation"
    ]  # fmt: skip


def test_cases_in_long_form(folders: Folders) -> None:
    run_evaluate(folders, "--surface")
    with (folders[1] / "calibration_cases.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["case", "voxels", "class", "metric", "value"]
    found = {(row["case"], row["voxels"], row["class"], row["metric"]): float(row["value"]) for row in rows}
    assert len(found) == len(rows)
    summary = summary_of(folders)
    for case in summary["metric_per_case"]:
        for voxels, figures in case["calibration"].items():
            metrics = [metric for metric in METRICS if metric in figures]
            lacking = set() if voxels in {"foreground", "union"} else {"ECE_expected", "CECE_expected"}
            assert set(METRICS) - set(metrics) == lacking
            for metric in metrics:
                assert found[case["case"], voxels, "", metric] == figures[metric]
            for label in ("0", "1", "2"):
                assert found[case["case"], voxels, label, "ECE"] == figures["classes"][label]["ECE"]
        for label in ("1", "2"):
            assert found[case["case"], "", label, "HD95"] == case["segmentation"][label]["HD95"]


def test_every_figure_can_be_computed_again_from_the_bin_tables(folders: Folders) -> None:
    result = evaluate(Predictions.of_folder(*folders), settings=Settings(voxels=("image", "boundary"), surface=True))
    again = FolderResult.read(folders[1] / SUMMARY)
    assert json.dumps(again.to_json()) == json.dumps(result.to_json())
    with np.load(folders[1] / "calibration_bins.zip") as archive:
        assert archive["image_top_count"].shape == (3, 1, 15)
        assert archive["image_classwise_count"].shape == (3, 3, 15)
        assert archive["image_top_count"].sum() == 3 * 6 * 20 * 20


def test_dice_equals_nnunets(folders: Folders) -> None:
    result = evaluate(Predictions.of_folder(*folders))
    per_class = {1: [], 2: []}
    for case in result.cases:
        peer = compute_metrics(str(case.files.reference), str(case.files.prediction), SimpleITKIO(), [1, 2])
        for label in (1, 2):
            assert case.result.segmentation[label]["Dice"] == peer["metrics"][label]["Dice"]
            per_class[label].append(peer["metrics"][label]["Dice"])
    assert result.foreground_mean() == pytest.approx(np.mean([np.mean(values) for values in per_class.values()]))


def test_nnunets_summary_is_not_touched(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    (folders[1] / "summary.json").write_text("nnU-Net's")
    run_evaluate(folders)
    assert run_evaluate(folders, "-o", folders[1] / "summary.json") == 1
    assert "summary.json is nnU-Net's own file; choose another name." in capsys.readouterr().err
    assert main(["merge", str(folders[1] / SUMMARY), "-o", str(folders[1] / "summary.json")]) == 1
    assert (folders[1] / "summary.json").read_text() == "nnU-Net's"


def test_a_duplicated_case_leaves_the_mean(folders: Folders) -> None:
    references, predictions = folders
    for name in ("case_1", "case_2"):
        (references / f"{name}.nii.gz").unlink()
        (predictions / f"{name}.npz").unlink()
    before = evaluate(Predictions.of_folder(*folders))
    add_case(references, predictions, "case_9", *random_case(0))
    after = evaluate(Predictions.of_folder(*folders))
    for voxels in ("foreground", "union"):
        for metric in METRICS:
            assert after.mean(voxels, metric) == pytest.approx(before.mean(voxels, metric), abs=1e-15)


def test_a_case_without_foreground_is_left_out_of_the_mean(folders: Folders) -> None:
    before = evaluate(Predictions.of_folder(*folders)).mean("foreground", "ECE")
    p, y = random_case(8)
    add_case(*folders, "empty", p, np.zeros_like(y))
    after = evaluate(Predictions.of_folder(*folders))
    assert after.mean("foreground", "ECE") == before
    assert after.to_json()["num_cases"] == {
        "evaluated": 4,
        "foreground": 3,
        "union": 4,
        "near": 4,
        "image": 4,
    }
    assert math.isnan(after.to_json()["metric_per_case"][-1]["calibration"]["foreground"]["ECE"])


def test_options(folders: Folders, tmp_path: Path) -> None:
    (folders[1] / "dataset.json").rename(tmp_path / "my.json")
    output = tmp_path / "mine.json"
    options = ["-djfile", tmp_path / "my.json", "-o", output, "--voxels", "boundary", "image", "--bins", 10]
    assert run_evaluate(folders, *options, "--boundary_mm", 1, "--surface", "--tolerance_mm", 2) == 0
    summary = json.loads(output.read_text())
    assert {path.name for path in tmp_path.glob("mine*")} == {"mine.json", "mine.cases.csv", "mine.bins.zip"}
    settings = Settings(voxels=("image", "boundary"), num_bins=10, boundary_mm=1, surface=True, tolerance_mm=2)
    expected = evaluate_case(*random_case(0), settings=settings)
    case = summary["metric_per_case"][0]
    assert case["calibration"]["boundary"]["ECE"] == expected.calibration["boundary"].metrics()["ECE"]
    assert case["segmentation"]["1"] == pytest.approx(expected.segmentation[1], nan_ok=True)
    # An output in the predictions' folder is not taken for a case the next time.
    assert run_evaluate(folders, "-djfile", tmp_path / "my.json", "-o", folders[1] / "again.json") == 0
    assert run_evaluate(folders, "-djfile", tmp_path / "my.json") == 0


FORMATS = [
    (".nii.gz", SimpleITKIO), (".nii.gz", SimpleITKIOWithReorient), (".nii.gz", NibabelIO),
    (".nii.gz", NibabelIOWithReorient), (".mha", SimpleITKIO), (".nrrd", SimpleITKIO), (".tif", Tiff3DIO),
    (".png", NaturalImage2DIO), (".tif", NaturalImage2DIO), (".mha", "2D"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "reader"), FORMATS)
@pytest.mark.parametrize("plans", [True, False])
def test_formats(tmp_path: Path, ending: str, reader: type | str, plans: bool) -> None:
    """Every reader of nnU-Net, named in plans.json or found by the file ending."""
    flat = reader in {"2D", NaturalImage2DIO}
    name = "SimpleITKIO" if reader == "2D" else reader.__name__
    p, y = random_case(0, 3, (1, 30, 40) if flat else (6, 20, 25))
    references, predictions = tmp_path / "r", tmp_path / "p"
    references.mkdir()
    predictions.mkdir()
    content = {"labels": LABELS, "file_ending": ending}
    if plans:
        (predictions / "plans.json").write_text(json.dumps({"image_reader_writer": name}))
    else:
        content["overwrite_image_reader_writer"] = name
    (predictions / "dataset.json").write_text(json.dumps(content))
    for folder, labels in ((references, y), (predictions, p.argmax(0))):
        write(labels[0] if flat else labels, folder / f"a{ending}", (1, 2) if flat else (1, 2, 3))
    # nnU-Net saves probabilities as its reader lays out the image.
    if name.endswith("WithReorient"):
        p, y = p[:, :, ::-1, ::-1], y[:, ::-1, ::-1]
    if not isinstance(reader, str):
        assert np.array_equal(reader().read_seg(str(references / f"a{ending}"))[0][0], y)
    np.savez_compressed(predictions / "a.npz", probabilities=p)
    result = evaluate(Predictions.of_folder(references, predictions))
    assert result.skipped == []
    expected = evaluate_case(p, y)
    for voxels, tables in expected.calibration.items():
        assert result.mean(voxels, "ECE") == tables.metrics()["ECE"]


def test_labels_are_read_as_nnunets_reader_reads_them(tmp_path: Path) -> None:
    _, y = random_case(0)
    for file, labels, spacing in (("a.nii.gz", y, (1, 2, 3)), ("b.mha", y[0], (0.5, 4))):
        write(labels, tmp_path / file, spacing)
        expected, properties = SimpleITKIO().read_seg(str(tmp_path / file))
        found, steps = read_labels(tmp_path / file, SimpleITKIO())
        assert np.array_equal(found, expected[0])
        assert steps == pytest.approx(properties["spacing"])


def test_surface_distances_use_the_files_spacing(folders: Folders) -> None:
    references, predictions = folders
    y = np.zeros((6, 20, 20), int)
    y[2:4, 5:9, 5:9] = 1
    p = np.moveaxis(np.eye(3)[np.roll(y, 1, 0)], -1, 0)
    add_case(references, predictions, "case_0", p, y)
    for folder, labels in ((references, y), (predictions, np.roll(y, 1, 0))):
        write(labels, folder / "case_0.nii.gz", (1, 1, 5))
    result = evaluate(Predictions.of_folder(*folders), settings=Settings(surface=True))
    found = result.cases[0].result.segmentation[1]
    assert (found["HD95"], found["HD95_voxels"]) == (5, 1)


# Bad input


def truncated(_: Path, predictions: Path) -> None:
    file = predictions / "case_1.npz"
    file.write_bytes(file.read_bytes()[:3000])


def corrupted(_: Path, predictions: Path) -> None:
    file = predictions / "case_1.npz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def save(_: Path, predictions: Path, *, change: Callable[[np.ndarray], np.ndarray], key: str = "probabilities") -> None:
    np.savez_compressed(predictions / "case_1.npz", **{key: change(random_case(1)[0])})


def objects(p: np.ndarray) -> np.ndarray:
    return np.array([p, None], dtype=object)


def with_nan(p: np.ndarray) -> np.ndarray:
    return np.where(p > 0.8, np.nan, p)


def reference_with(references: Path, _: Path, *, change: Callable[[np.ndarray], np.ndarray]) -> None:
    write(change(random_case(1)[1]), references / "case_1.nii.gz")


def prediction_with(_: Path, predictions: Path, *, change: Callable[[np.ndarray], np.ndarray]) -> None:
    write(change(random_case(1)[1]), predictions / "case_1.nii.gz")


BAD = {
    "truncated": (truncated, "case_1.npz cannot be read: File is not a zip file"),
    "corrupted": (corrupted, "case_1.npz cannot be read: "),  # whatever its values look like
    "wrong key": (partial(save, change=abs, key="softmax"), "expected the key 'probabilities'; it holds softmax"),
    "objects": (
        partial(save, change=objects),
        "case_1.npz: expected an array of dtype float16, float32 or float64; got",
    ),
    "NaN": (partial(save, change=with_nan), "case_1.npz: NaN or infinite values in channel 0."),
    "logits": (
        partial(save, change=np.log),
        "case_1.npz: expected probabilities in [0, 1]; channel 0 has values from -",
    ),
    "not 1": (partial(save, change=lambda p: 0.9 * p), "case_1.npz: the probabilities of a voxel must sum to 1"),
    "shape": (
        partial(save, change=lambda p: p[:, :5]),
        "case_1.npz: the shape (3, 5, 20, 20) does not match the refere",
    ),
    "transposed": (partial(save, change=lambda p: np.moveaxis(p, 1, 3)), "so is it transposed?"),
    "channels last": (partial(save, change=lambda p: np.moveaxis(p, 0, 3)), "the classes seem to be the last axis"),
    "another model's": (
        partial(save, change=lambda p: p[:, :, ::-1, ::-1]),
        "Are they of another model, or is the orientation read wrongly?",
    ),
    "channels": (
        partial(save, change=lambda p: np.concatenate([p, 0 * p[:1]])),
        "shape (4, 6, 20, 20) has 4 channels (the first axis), but the data set has 3 labels.",
    ),
    "unknown label": (
        partial(reference_with, change=lambda y: y + 1),
        "labelsTs/case_1.nii.gz holds labels that are not in the data set: 3; known are 0, 1, 2.",
    ),
    "unknown predicted label": (
        partial(prediction_with, change=lambda y: 9 * y),
        "predictions/case_1.nii.gz holds labels that are not in the data set: 9, 18; known are 0, 1, 2.",
    ),
    "predicted shape": (
        partial(prediction_with, change=lambda y: y[:4]),
        "predictions/case_1.nii.gz: the shape (4, 20, 20) does not match the reference's, (6, 20, 20).",
    ),
    "reference no image": (
        lambda r, p: (r / "case_1.nii.gz").write_bytes(b"nothing"),
        "labelsTs/case_1.nii.gz cannot be read: ",
    ),
    "no reference": (
        lambda r, p: (r / "case_1.nii.gz").unlink(),
        "labelsTs/case_1.nii.gz does not exist: no reference.",
    ),
    "no segmentation": (
        lambda r, p: (p / "case_1.nii.gz").unlink(),
        "predictions/case_1.nii.gz does not exist: no predicted segmentation.",
    ),
    "no probabilities": (
        lambda r, p: (p / "case_1.npz").unlink(),
        "case_1.npz does not exist: no probabilities (predict with --save_probabilities).",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_case_is_named_and_the_others_are_evaluated(
    folders: Folders, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    spoil, message = BAD[name]
    spoil(*folders)
    assert run_evaluate(folders, "--chill") == 1
    assert message in reasons(folders)["case_1"]
    assert f"skipped case_1: {reasons(folders)['case_1']}" in capsys.readouterr().err
    assert [case["case"] for case in summary_of(folders)["metric_per_case"]] == ["case_0", "case_2"]
    assert run_evaluate(folders) == 1  # also when the good ones need not be evaluated again


def test_labels_that_are_no_whole_numbers(folders: Folders) -> None:
    image = sitk.GetImageFromArray(random_case(1)[1].astype(np.float32) + 0.5)
    sitk.WriteImage(image, str(folders[0] / "case_1.nii.gz"))
    assert run_evaluate(folders) == 1
    assert "case_1.nii.gz holds labels that are not whole numbers." in reasons(folders)["case_1"]


def test_whole_numbers_may_be_floats(folders: Folders) -> None:
    image = sitk.GetImageFromArray(random_case(1)[1].astype(np.float32))
    sitk.WriteImage(image, str(folders[0] / "case_1.nii.gz"))
    assert run_evaluate(folders) == 0


def test_chill_forgives_missing_predictions(folders: Folders) -> None:
    for file in ("case_1.npz", "case_1.nii.gz"):
        (folders[1] / file).unlink()
    assert run_evaluate(folders) == 1
    assert run_evaluate(folders, "--chill") == 0
    assert list(reasons(folders)) == ["case_1"]


def test_a_segmentation_without_the_rest_is_reported(folders: Folders) -> None:
    write(np.zeros((6, 20, 20)), folders[1] / "extra.nii.gz")
    assert run_evaluate(folders, "--chill") == 1
    assert reasons(folders) == {"extra": f"{folders[0] / 'extra.nii.gz'} does not exist: no reference."}


def test_nothing_predicted_is_not_forgiven(folders: Folders) -> None:
    for file in folders[1].glob("case_*"):
        file.unlink()
    assert run_evaluate(folders, "--chill") == 1


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_broken_reference_does_not_hide_the_reader(folders: Folders, broken: int) -> None:
    """Without plans.json the reader is found by trying references."""
    (folders[0] / f"case_{broken}.nii.gz").write_bytes(b"")
    assert run_evaluate(folders) == 1
    assert list(reasons(folders)) == [f"case_{broken}"]


def test_hidden_files_are_no_cases(folders: Folders) -> None:
    (folders[0] / "._case_0.nii.gz").write_bytes(b"what macOS leaves")
    assert run_evaluate(folders) == 0


def with_dataset(**changes: object) -> Callable[[Path, Path], object]:
    content = {"labels": LABELS, "file_ending": ".nii.gz", **changes}
    return lambda _, predictions: (predictions / "dataset.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r, p: r.rename(r.with_name("elsewhere")), "labelsTs is not a folder."),
        (lambda r, p: (p / "dataset.json").unlink(), "dataset.json does not exist; name the data set's dataset.json"),
        (lambda r, p: (p / "dataset.json").write_text("{"), "dataset.json is not valid JSON"),
        (lambda r, p: (p / "dataset.json").write_text("{}"), "dataset.json is no dataset.json of nnU-Net: it has no"),
        (lambda r, p: (p / "dataset.json").write_text("5"), "dataset.json: expected a JSON object; got int."),
        (with_dataset(labels=["a"]), "dataset.json: "),
        (with_dataset(labels={"background": 1}), "dataset.json: "),
        (with_dataset(labels={"background": 0, "a": [1, 2]}), "dataset.json: "),
        (with_dataset(labels={"background": 0, "ignore": 1, "a": 2}), "dataset.json: "),
        (
            with_dataset(labels={"background": 0, "a": 1, "b": 3}),
            "without a gap; got 0, 1, 3",
        ),
        (with_dataset(file_ending=5), "dataset.json: expected file_ending to be a text; got 5."),
        (lambda r, p: (p / "plans.json").write_text("[]"), "plans.json: expected a JSON object; got list."),
        (lambda r, p: (p / "plans.json").write_text('{"image_reader_writer": "X"}'), "plans.json: "),
        (lambda r, p: (p / "plans.json").write_text("{}"), "plans.json is no plans.json of nnU-Net: it has no 'image_"),
        (lambda r, p: [file.unlink() for file in (*r.iterdir(), *p.glob("case_*"))], "No case found: no *.nii.gz"),
        (lambda r, p: (p / SUMMARY).mkdir(), f"{SUMMARY} is a folder; expected the summary's path."),
    ],
)
def test_nothing_to_evaluate(folders: Folders, capsys: pytest.CaptureFixture[str], spoil: object, message: str) -> None:
    spoil(*folders)  # type: ignore[operator]
    assert run_evaluate(folders) == 1
    assert message in capsys.readouterr().err
    assert not (folders[1] / SUMMARY).is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-np", 0], "num_processes must be at least 1; got 0."),
        (["--num_parts", 2, "--part_id", 2], "part_id must be from 0 to num_parts - 1 = 1; got 2."),
        (["--bins", 0], "num_bins must be from 1 to 1000; got 0."),
        (["-pfile", "nowhere.json"], "nowhere.json does not exist."),
    ],
)
def test_wrong_options(
    folders: Folders, capsys: pytest.CaptureFixture[str], options: list[object], message: str
) -> None:
    assert run_evaluate(folders, *options) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["gt", "pred", "-d", "4", "-c", "2d"], "GT_FOLDER, PRED_FOLDER, -djfile and -pfile do not go"),
        (["gt", "pred", "-f", "0"], "expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIG"),
        (["-d", "4"], "expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIG"),
        (["gt"], "expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIG"),
        (
            ["-d", "4", "-c", "2d", "-djfile", "dataset.json"],
            "GT_FOLDER, PRED_FOLDER, -djfile and -pfile do not go",
        ),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", *options])
    assert message in capsys.readouterr().err


def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nnUNet_results", "nnUNet_preprocessed"):
        monkeypatch.delenv(name, raising=False)
    for name in ("nnUNet_results", "nnUNet_preprocessed"):
        with pytest.raises(RuntimeError, match=f"^{name} is not defined"):
            evaluate(Predictions.of_model("Dataset004_X", "2d"))
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"Dataset004_X.nnUNetTrainer__nnUNetPlans__2d is not a folder\.$"):
        evaluate(Predictions.of_model("Dataset004_X", "2d"))


def test_an_output_that_cannot_be_written_is_named_before_the_work(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    for missing in (tmp_path / "no" / "mine.json", tmp_path / "file" / "mine.json"):
        assert run_evaluate(folders, "-o", missing) == 1
        printed = capsys.readouterr().err
        assert f"{missing.parent} cannot be written: " in printed
        assert "evaluating" not in printed


# Resuming, processes and parts


def content(summary: Path) -> str:
    """Every figure to the last bit, and the bin tables' counts."""
    result = FolderResult.read(summary)
    tables = [
        [getattr(table, part).tolist() for part in ("count", "hits", "confidence", "unbinned")]
        for case in result.cases
        for one in case.result.calibration.values()
        for table in (one.top, one.classwise, one.fine)
    ]
    return json.dumps([json.loads(summary.read_text()), tables])


def test_processes_change_nothing(folders: Folders) -> None:
    run_evaluate(folders)
    alone = content(folders[1] / SUMMARY)
    assert run_evaluate(folders, "-np", 2, "--overwrite") == 0
    assert content(folders[1] / SUMMARY) == alone


def evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str], *options: object) -> int:
    """How many cases were evaluated, from the progress bar's start."""
    capsys.readouterr()
    assert run_evaluate(folders, *options) == 0
    return 3 - int(re.search(r"(\d+)/3", capsys.readouterr().err)[1])


def test_only_what_changed_is_evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated_again(folders, capsys) == 3
    first = content(folders[1] / SUMMARY)
    assert evaluated_again(folders, capsys) == 0
    assert content(folders[1] / SUMMARY) == first
    assert evaluated_again(folders, capsys, "--overwrite") == 3
    os.utime(folders[1] / "case_1.npz", ns=(1, 1))
    assert evaluated_again(folders, capsys) == 1
    assert evaluated_again(folders, capsys, "--bins", 10) == 3
    assert evaluated_again(folders, capsys, "--bins", 10) == 0
    bins = folders[1] / "calibration_bins.zip"
    whole = bins.read_bytes()
    flipped = bytearray(whole)
    flipped[1000:1200] = bytes(byte ^ 0xFF for byte in whole[1000:1200])
    for damaged in (b"damaged", whole[:-30], flipped):
        bins.write_bytes(damaged)
        assert evaluated_again(folders, capsys, "--bins", 10) == 3


def test_files_of_the_same_size_and_time_are_not_taken_for_each_other(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    for file in (*folders[1].iterdir(), *other.iterdir()):
        os.utime(file, ns=(1, 1))
    assert evaluated_again(folders, capsys, "-o", tmp_path / "x.json") == 3
    assert evaluated_again((folders[0], other), capsys, "-o", tmp_path / "x.json") == 3


def test_an_interrupted_overwrite_goes_on(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """What was there before --overwrite is not taken up again."""
    run_evaluate(folders)
    journal = folders[1] / ".calibration_bins.partial"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_folder, "_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_evaluate(folders, "--overwrite")
    assert list(journal.iterdir()) == []
    assert evaluated_again(folders, capsys) == 3


def test_a_case_that_kills_its_process_is_skipped(folders: Folders) -> None:
    """The kernel's out-of-memory killer, say. The others are evaluated."""
    kill = "import os, signal\nfrom nnunet_nacl.evaluation import _worker\n"
    kill += "check = _worker.check_shape\n"
    kill += "def dies(shape, reference_shape, name):\n"
    kill += "    os.kill(os.getpid(), signal.SIGKILL) if 'case_1' in name else check(shape, reference_shape, name)\n"
    kill += "_worker.check_shape = dies\n"
    run = "from nnunet_nacl.cli import main\nimport sys\nif __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    script = folders[0].parent / "dies.py"  # worker processes import it, too
    script.write_text(kill + run)
    command = [sys.executable, script, "evaluate", *folders, "-np", "2"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "case_1.npz: the process evaluating it was killed, perhaps for lack of memory." in reasons(folders)["case_1"]
    assert len(summary_of(folders)["metric_per_case"]) == 2


def test_killed_and_run_again_gives_the_same_to_the_last_bit(folders: Folders) -> None:
    """kill -9 in mid-run, with two processes, which must not outlive it."""
    for number in range(3, 40):
        add_case(*folders, f"case_{number}", *random_case(number, 3, (24, 64, 64)))
    assert run_evaluate(folders) == 0
    whole = content(folders[1] / SUMMARY)
    for file in folders[1].glob("calibration_*"):
        file.unlink()

    command = [sys.executable, "-m", "nnunet_nacl.cli", "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    journal = folders[1] / ".calibration_bins.partial"
    until = time.monotonic() + 60
    while len(list(journal.glob("case_*.zip"))) < 3 and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(journal.glob("case_*.zip")))
    assert 3 <= kept < 40
    assert list(folders[1].glob("calibration_*")) == []
    until = time.monotonic() + 20
    while processes_of(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(process.pid) == []

    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{kept}/40" in again.stderr
    assert content(folders[1] / SUMMARY) == whole
    assert not journal.exists()


def processes_of(session: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--sid", str(session)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "defunct" not in line]


def test_merged_parts_equal_one_run(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncated(*folders)
    run_evaluate(folders, "-o", tmp_path / "whole.json")
    for part in range(2):
        run_evaluate(folders, "--num_parts", 2, "--part_id", part)
    parts = [str(folders[1] / f"calibration_part{part}of2_summary.json") for part in range(2)]
    capsys.readouterr()
    # What was skipped in a part is reported by the merge, too.
    assert main(["merge", *parts, "-o", str(tmp_path / "merged.json")]) == 1
    assert "skipped case_1" in capsys.readouterr().err
    assert content(tmp_path / "merged.json") == content(tmp_path / "whole.json")
    assert (tmp_path / "merged.cases.csv").read_text() == (tmp_path / "whole.cases.csv").read_text()


def test_what_cannot_be_merged(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_evaluate(folders, "-o", tmp_path / "a.json")
    run_evaluate(folders, "-o", tmp_path / "b.json", "--bins", 10)
    for part in (0, 2):
        run_evaluate(folders, "-o", tmp_path / "p.json", "--num_parts", 3, "--part_id", part)
    for names, message in (
        (("a", "a"), "the case case_0 is in two parts."),
        (("a", "b"), "parts differ in num_bins: 15 and 10."),
        (("a", "c"), "c.bins.zip does not exist."),
        (
            ("p_part0of3", "p_part2of3"),
            "expected all of the 3 parts, numbered from 0, and nothing else; got 0 of 3, 2",
        ),
        (
            ("p_part0of3", "a"),
            "numbered from 0, and nothing else; got 0 of 3, a whole folder.",
        ),
    ):
        capsys.readouterr()
        assert main(["merge", *(str(tmp_path / f"{name}.json") for name in names), "-o", str(tmp_path / "m.json")]) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "m.json").exists()


def test_folders_with_one_set_of_references_merge(folders: Folders, tmp_path: Path) -> None:
    """What one lacks the other has: nothing is skipped."""
    references, first = folders
    second = tmp_path / "second"
    shutil.copytree(first, second)
    for folder, names in ((first, ("case_0", "case_1")), (second, ("case_2",))):
        for name in names:
            (folder / f"{name}.npz").unlink()
            (folder / f"{name}.nii.gz").unlink()
        assert run_evaluate((references, folder), "--chill") == 0
    merged = tmp_path / "merged.json"
    assert main(["merge", str(first / SUMMARY), str(second / SUMMARY), "-o", str(merged)]) == 0
    assert len(json.loads(merged.read_text())["metric_per_case"]) == 3
    assert FolderResult.read(merged).settings["pred_folder"] == [str(first), str(second)]


def test_summaries_do_not_share_their_tables(folders: Folders, tmp_path: Path) -> None:
    run_evaluate(folders, "-o", tmp_path / "a.json")
    run_evaluate(folders, "-o", tmp_path / "a_summary.json", "--bins", 5)
    assert FolderResult.read(tmp_path / "a.json").settings["num_bins"] == 15


@pytest.fixture
def model(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder of two folds, whose second is empty."""
    references, predictions = folders
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "results"))
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    preprocessed = tmp_path / "preprocessed" / "Dataset007_Toy"
    shutil.copytree(references, preprocessed / "gt_segmentations")
    splits = [{"train": [], "val": ["case_0", "case_1", "case_2"]}, {"train": [], "val": []}]
    (preprocessed / "splits_final.json").write_text(json.dumps(splits))
    folder = tmp_path / "results" / "Dataset007_Toy" / "nnUNetTrainer__nnUNetPlans__2d"
    shutil.copytree(predictions, folder / "fold_0" / "validation")
    (folder / "fold_1" / "validation").mkdir(parents=True)
    (folder / "fold_0" / "validation" / "dataset.json").rename(folder / "dataset.json")
    (folder / "plans.json").write_text(json.dumps({"image_reader_writer": "SimpleITKIO"}))
    return folder


def test_folds_of_a_model(model: Path, tmp_path: Path) -> None:
    assert len(evaluate(Predictions.of_model(7, "2d", folds=[0])).cases) == 3
    validation = model / "fold_0" / "validation"
    assert (validation / SUMMARY).is_file()
    for file in validation.glob("case_2*"):
        file.rename(model / "fold_1" / "validation" / file.name)
    # a case that the fold should have validated on, and has not
    assert [entry.case for entry in evaluate(Predictions.of_model(7, "2d", folds=[0])).skipped] == ["case_2"]
    splits = [{"val": ["case_0", "case_1"]}, {"val": ["case_2"]}]
    (tmp_path / "preprocessed" / "Dataset007_Toy" / "splits_final.json").write_text(json.dumps(splits))
    both = evaluate(Predictions.of_model("7", "2d", folds=[0, 1]))
    assert [case.files.probabilities.parents[1].name for case in both.cases] == ["fold_0", "fold_0", "fold_1"]
    assert (model / "calibration_folds_0_1_summary.json").is_file()


def test_folds_must_not_share_cases(model: Path) -> None:
    for file in (model / "fold_0" / "validation").glob("case_1*"):
        shutil.copy(file, model / "fold_1" / "validation")
    with pytest.raises(ValueError, match=r"^the case case_1 is in .*fold_0.* and in .*fold_1.*: folds must not share"):
        evaluate(Predictions.of_model(7, "2d", folds=[0, 1]))


def test_a_model_without_probabilities(model: Path) -> None:
    shutil.rmtree(model / "fold_0" / "validation")
    (model / "fold_0" / "validation").mkdir()
    with pytest.raises(ValueError, match=r"^No case found in .*fold_0.*; train or validate with --npz\.$"):
        evaluate(Predictions.of_model(7, "2d", folds=[0]))
