"""Segmentations for another metric than nnU-Net's argmax."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.cli import main
from nnunet_nacl.confidence import StructureSums, dice_optimal_labels, dice_optimal_mask, expected_dice
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import DECODED_NAME
from nnunet_nacl.prediction_folders import PredictionFolder, RecallThresholds, decode_folder
from tests.prediction_folders.generated import (
    LABELS,
    REGIONS,
    SHAPE,
    geometry,
    names,
    probabilities,
    random_probabilities,
    random_regions,
    read,
    segment,
    write_folder,
)


def decode(folder: Path, output: Path, *options: object) -> int:
    return main(["decode", str(folder), "-o", str(output), "-np", "1", *map(str, options)])


def check_all(folder: Path) -> None:
    """Every case's segmentation is what its probabilities give, by the folder's own rule."""
    predictions = PredictionFolder.read(folder)
    for case in predictions.cases:
        SavedCase(case, predictions.data_set).probabilities()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "in", {name: random_probabilities(seed) for seed, name in enumerate("abc")})


def test_classes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert decode(folder, output) == 0
    printed = capsys.readouterr().out
    assert f"Decoded 3 of 3 cases into {output}.\nThresholds, mean over cases: liver 0." in printed
    assert "If nnunet_nacl evaluate finds these over- or under-confident" in printed
    assert names(output) == names(folder) | {DECODED_NAME}
    mark = json.loads((output / DECODED_NAME).read_text())
    assert mark["metric"] == "dice"
    for name in "abc":
        p = probabilities(folder, name)
        best = dice_optimal_labels(p)
        segmentation = read(output / f"{name}.nii.gz")
        np.testing.assert_array_equal(segmentation, best.labels)
        assert (segmentation != p.argmax(0)).any()
        assert geometry(output / f"{name}.nii.gz") == geometry(folder / f"{name}.nii.gz")
        assert mark["cases"][name]["thresholds"] == best.thresholds.tolist()
        assert (output / f"{name}.npz").samefile(folder / f"{name}.npz")
    check_all(output)


def test_expected_dice_does_not_fall(folder: Path, tmp_path: Path) -> None:
    assert decode(folder, tmp_path / "out") == 0
    for name in "abc":
        p = probabilities(folder, name)

        def mean(labels: np.ndarray, p: np.ndarray = p) -> float:
            return np.mean([expected_dice(StructureSums.of(p[k], labels == k)) for k in (1, 2)])

        assert mean(read(tmp_path / "out" / f"{name}.nii.gz")) > mean(p.argmax(0))


def test_regions_write_in_their_order(tmp_path: Path) -> None:
    cases = {name: random_regions(seed) for seed, name in enumerate("ab")}
    folder = write_folder(tmp_path / "in", cases, labels=REGIONS)
    assert decode(folder, tmp_path / "out") == 0
    for name, p in cases.items():
        whole, core = (dice_optimal_mask(region).mask for region in p)
        np.testing.assert_array_equal(read(tmp_path / "out" / f"{name}.nii.gz"), np.where(core, 2, whole))
    check_all(tmp_path / "out")


def test_decoding_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    """A decoded folder is a folder of predictions; its probabilities are the same ones."""
    assert decode(folder, tmp_path / "once") == 0
    assert decode(tmp_path / "once", tmp_path / "twice") == 0
    for name in "abc":
        assert (read(tmp_path / "once" / f"{name}.nii.gz") == read(tmp_path / "twice" / f"{name}.nii.gz")).all()


@pytest.mark.parametrize("labels", [LABELS, REGIONS], ids=["classes", "regions"])
def test_recall(tmp_path: Path, labels: dict[str, object]) -> None:
    made = random_regions if labels is REGIONS else random_probabilities
    p = made(0)
    folder = write_folder(tmp_path / "in", {"a": p}, labels=labels)
    low, high = (str(name) for name in list(labels)[1:])
    exact = float(p[-1].reshape(-1)[7])  # a voxel that equals its threshold belongs to the mask
    recall = RecallThresholds({low: 0.15, high: exact}, 0.1, "fit.json")
    decoded = decode_folder(PredictionFolder.read(folder), tmp_path / "out", recall=recall)
    labels_of = read(tmp_path / "out" / "a.nii.gz")
    first, second = p[-2] >= 0.15, p[-1] >= exact
    if labels is REGIONS:
        np.testing.assert_array_equal(labels_of, np.where(second, 2, first))
    else:
        assert (first & second).any()
        np.testing.assert_array_equal(labels_of, np.where(second & ~(first & (p[1] >= p[2])), 2, first))
        shared = np.count_nonzero(first & second)
        assert decoded.cases.results["a"].shared_voxels == shared
        assert f"In {shared} voxels several structures reach their thresholds" in decoded.summary()
    assert labels_of.reshape(-1)[7] > 0
    assert "not calibrated" not in decoded.summary()
    check_all(tmp_path / "out")


def test_recall_of_other_structures(folder: Path, tmp_path: Path) -> None:
    recall = RecallThresholds({"liver": 0.1}, 0.1, "fit.json")
    with pytest.raises(ValueError, match=r"fit\.json is of the structures liver; .*in has liver, left kidney\."):
        decode_folder(PredictionFolder.read(folder), tmp_path / "out", recall=recall)
    assert names(tmp_path) == {"in"}


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (["--metric", "recall"], "--metric recall needs --fit FIT.json"),
        (["--alpha", "0.1"], "--fit, --alpha and --force are for --metric recall."),
    ):
        with pytest.raises(SystemExit) as end:
            main(["decode", "in", "-o", "out", *options])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_calibrated_folders_stay_known(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "posthoc_applied.json").write_text('{"method": "temperature"}')
    assert decode(folder, tmp_path / "out") == 0
    assert "not calibrated" not in capsys.readouterr().out
    assert (tmp_path / "out" / "posthoc_applied.json").is_file()


def change(file: Path, change: object) -> None:
    image = sitk.ReadImage(str(file))
    array = sitk.GetArrayFromImage(image)
    other = sitk.GetImageFromArray(np.ascontiguousarray(change(array)))  # type: ignore[operator]
    other.CopyInformation(image)
    sitk.WriteImage(other, str(file))


@pytest.mark.parametrize("labels", [LABELS, REGIONS], ids=["classes", "regions"])
@pytest.mark.parametrize("metric", ["dice", "recall"])
def test_exchanged_and_flipped_cases_are_found(tmp_path: Path, metric: str, labels: dict[str, object]) -> None:
    made = random_regions if labels is REGIONS else random_probabilities
    folder = write_folder(tmp_path / "in", {name: made(seed) for seed, name in enumerate("ab")}, labels=labels)
    recall = RecallThresholds(dict.fromkeys(list(labels)[1:], 0.3), 0.1, "fit.json") if metric == "recall" else None
    for wrong in ("exchanged", "flipped", "a voxel more"):
        output = tmp_path / wrong
        decode_folder(PredictionFolder.read(folder), output, recall=recall)
        check_all(output)
        if wrong == "exchanged":
            shutil.copyfile(output / "a.nii.gz", output / "b.nii.gz")
        elif wrong == "flipped":
            change(output / "b.nii.gz", lambda array: array[:, ::-1])
        else:
            array = read(output / "b.nii.gz")
            borders = array[:, :, 1:] != array[:, :, :-1]
            z, y, x = np.argwhere(borders & (array[:, :, 1:] == 0 if wrong == "a voxel more" else array[:, :, 1:] > 0))[
                0
            ]

            def flip(array: np.ndarray, place: tuple[int, ...] = (z, y, x + 1)) -> np.ndarray:
                array[place] = 0 if array[place] else 2
                return array

            change(output / "b.nii.gz", flip)
        with pytest.raises(ValueError, match=r"b\.npz: the segmentation b\.nii\.gz"):
            check_all(output)


def test_without_its_mark_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    assert decode(folder, tmp_path / "out") == 0
    (tmp_path / "out" / DECODED_NAME).unlink()
    with pytest.raises(ValueError, match="has another label than these probabilities give"):
        check_all(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("{}", "is no mark of nnunet_nacl decode: it has no 'inclusive'"),
        ('{"inclusive": false, "cases": {"a": {"thresholds": [0.5]}}}', "should have a threshold for each of 2"),
    ],
)
def test_a_damaged_mark(folder: Path, content: str, message: str) -> None:
    (folder / DECODED_NAME).write_text(content)
    with pytest.raises(ValueError, match=message):
        check_all(folder)


def test_half_precision_and_a_structure_that_is_not_there(tmp_path: Path) -> None:
    p = random_probabilities(0)
    p[0] += p[2]
    p[2] = 0
    folder = write_folder(tmp_path / "in", {"a": p.astype(np.float16), "b": p})
    assert decode(folder, tmp_path / "out") == 0
    check_all(tmp_path / "out")
    assert set(np.unique(read(tmp_path / "out" / "a.nii.gz"))) == {0, 1}


def test_a_bad_case_is_named_and_the_others_are_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez_compressed(folder / "a.npz", probabilities=np.full((3, *SHAPE), np.nan, np.float32))
    np.savez_compressed(folder / "b.npz", probabilities=random_probabilities(1)[:2])
    assert decode(folder, tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert f"Not decoded: a: {folder / 'a.npz'}: NaN or infinite values in channel 0." in printed
    assert "has 2 channels (the first axis), but the data set has 3 labels." in printed
    left = names(folder) - {f"{name}.{ending}" for name in "ab" for ending in ("npz", "pkl", "nii.gz")}
    assert names(tmp_path / "out") == left | {DECODED_NAME}


def test_several_processes_write_the_same(folder: Path, tmp_path: Path) -> None:
    assert decode(folder, tmp_path / "one") == 0
    assert decode(folder, tmp_path / "two", "-np", 2) == 0
    for name in names(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_killed_and_run_again(tmp_path: Path) -> None:
    """Nothing of a killed run is in the way of the next one, nor taken for an output."""
    cases = {f"case_{number}": random_probabilities(number, shape=(20, 64, 64)) for number in range(12)}
    folder, output = write_folder(tmp_path / "in", cases), tmp_path / "out"
    command = [sys.executable, "-m", "nnunet_nacl.cli", "decode", str(folder), "-o", str(output), "-np", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob(".out*.partial/case_2.npz")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists()
    assert decode(folder, output) == 0
    check_all(output)
    assert names(output) == names(folder) | {DECODED_NAME}


def test_evaluate_reads_it(folder: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    truth.mkdir()
    for name in "abc":
        shutil.copyfile(folder / f"{name}.nii.gz", truth / f"{name}.nii.gz")
    assert decode(folder, tmp_path / "out") == 0
    assert main(["evaluate", str(truth), str(tmp_path / "out"), "-np", "1"]) == 0
    shutil.copyfile(tmp_path / "out" / "a.nii.gz", tmp_path / "out" / "b.nii.gz")
    assert main(["evaluate", str(truth), str(tmp_path / "out"), "-np", "1"]) == 1


def test_calibrate_reads_it_and_its_output_is_not_decoded(folder: Path, tmp_path: Path) -> None:
    truth, decoded, fit = tmp_path / "truth", tmp_path / "decoded", tmp_path / "fit.json"
    truth.mkdir()
    for name in "abc":
        shutil.copyfile(folder / f"{name}.nii.gz", truth / f"{name}.nii.gz")
        p = probabilities(folder, name)
        drawn = (np.random.default_rng(0).random(SHAPE) > p.cumsum(0)).sum(0).clip(0, 2).astype(np.uint8)
        change(truth / f"{name}.nii.gz", lambda _, drawn=drawn: drawn)
    assert decode(folder, decoded) == 0
    assert main(["calibrate", "fit", str(truth), str(decoded), "-o", str(fit)]) == 0
    assert main(["calibrate", "apply", str(fit), str(decoded), "-o", str(tmp_path / "out"), "--force"]) == 0
    assert DECODED_NAME not in names(tmp_path / "out")
    check_all(tmp_path / "out")
    shutil.copyfile(decoded / "a.nii.gz", decoded / "b.nii.gz")
    assert main(["calibrate", "fit", str(truth), str(decoded), "-o", str(fit), "--overwrite"]) == 1


def test_saved_segmentation_of_the_fixture_is_the_argmax(folder: Path) -> None:
    for name in "abc":
        assert (read(folder / f"{name}.nii.gz") == segment(probabilities(folder, name), LABELS)).all()


def test_recall_with_a_fit_of_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the cases that it was fitted to, at most the share alpha is missed of each structure's mask."""
    cases = {f"case_{seed:02}": random_probabilities(seed, noise=0.1) for seed in range(24)}
    folder, truth, fit = write_folder(tmp_path / "in", cases), tmp_path / "truth", tmp_path / "fit.json"
    truth.mkdir()
    for seed, (name, p) in enumerate(cases.items()):
        shutil.copyfile(folder / f"{name}.nii.gz", truth / f"{name}.nii.gz")
        drawn = (np.random.default_rng(seed).random(SHAPE) > p.cumsum(0)).sum(0).clip(0, 2).astype(np.uint8)
        change(truth / f"{name}.nii.gz", lambda _, drawn=drawn: drawn)
    assert main(["review", "fit", str(truth), str(folder), "-o", str(fit), "-np", "1", "--coverage", "0.8"]) == 0
    options = ["--metric", "recall", "--alpha", "0.2", "--fit", fit]
    assert decode(folder, tmp_path / "out", *options) == 1
    assert f"{fit} was fitted to 24 of the 24 cases in {folder}" in capsys.readouterr().err
    assert decode(folder, tmp_path / "out", *options, "--force") == 0
    mark = json.loads((tmp_path / "out" / DECODED_NAME).read_text())
    assert (mark["metric"], mark["alpha"], mark["fit"], mark["inclusive"]) == ("recall", 0.2, str(fit), True)
    check_all(tmp_path / "out")
    for k in (1, 2):
        threshold = mark["cases"]["case_00"]["thresholds"][k - 1]
        assert 0 < threshold < 0.5
        missed = [np.mean(p[k][read(truth / f"{name}.nii.gz") == k] < threshold) for name, p in cases.items()]
        assert 0.1 < np.mean(missed) < 0.2
