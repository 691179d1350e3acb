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

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import CALIBRATED_NAME, DECODED_NAME, PredictionFolder
from nnunet_nacl.use import (
    RecallThresholds,
    StructureSums,
    _folders,
    decode_folder,
    dice_optimal_labels,
    dice_optimal_mask,
    expected_dice,
)
from tests.use.generated import (
    LABELS,
    REGIONS,
    SHAPE,
    change,
    geometry,
    names,
    probabilities,
    random_probabilities,
    random_regions,
    read,
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
    assert "see nnunet_nacl calibrate" in printed
    assert names(output) == names(folder) | {DECODED_NAME}
    mark = json.loads((output / DECODED_NAME).read_text())
    assert mark["metric"] == "dice"
    for name in "abc":
        p = probabilities(folder, name)
        best = dice_optimal_labels(p)
        segmentation = read(output / f"{name}.nii.gz")
        np.testing.assert_array_equal(segmentation, best.labels)
        before, after = (
            np.mean([expected_dice(StructureSums.of(p[k], one == k)) for k in (1, 2)])
            for one in (p.argmax(0), segmentation)
        )
        assert after > before
        assert geometry(output / f"{name}.nii.gz") == geometry(folder / f"{name}.nii.gz")
        assert mark["cases"][name]["thresholds"] == best.thresholds.tolist()
        assert (output / f"{name}.npz").samefile(folder / f"{name}.npz")
    check_all(output)


def test_regions_write_in_their_order(tmp_path: Path) -> None:
    cases = {name: random_regions(seed) for seed, name in enumerate("ab")}
    folder = write_folder(tmp_path / "in", cases, labels=REGIONS)
    assert decode(folder, tmp_path / "out") == 0
    for name, p in cases.items():
        whole, core = (dice_optimal_mask(region).mask for region in p)
        np.testing.assert_array_equal(read(tmp_path / "out" / f"{name}.nii.gz"), np.where(core, 2, whole))
    check_all(tmp_path / "out")


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
        assert decoded.results["a"].shared_voxels == shared
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
        (["--force"], "--alpha and --force go with --fit FIT.json"),
        (["--alpha", "0.1"], "--alpha and --force go with --fit FIT.json"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["decode", "in", "-o", "out", *options])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


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


def test_a_bad_case_is_named_and_the_others_are_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez_compressed(folder / "a.npz", probabilities=np.full((3, *SHAPE), np.nan, np.float32))
    np.savez_compressed(folder / "b.npz", probabilities=random_probabilities(1)[:2])
    assert decode(folder, tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert f"Not decoded: a: {folder / 'a.npz'}: NaN or infinite values in channel 0." in printed
    assert "expected the shape (3, 5, 12, 14), the 3 classes of the data set" in printed
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
    while process.poll() is None and not list(output.glob(".*/case_2/*.npz")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(output.glob("*.npz"))
    assert decode(folder, output) == 0
    check_all(output)
    assert names(output) == names(folder) | {DECODED_NAME}


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
    options = ["--alpha", "0.2", "--fit", fit]
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


def test_the_users_files_stay_and_marks_are_those_of_the_new_predictions(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (folder / CALIBRATED_NAME).write_text("{}")
    assert decode(folder, output) == 0
    assert (output / CALIBRATED_NAME).read_text() == "{}"
    (output / "notes.txt").write_text("mine")
    before = (output / "a.nii.gz").read_bytes()
    assert decode(folder, output) == 1
    (folder / CALIBRATED_NAME).unlink()
    write_folder(tmp_path / "other", {"a": random_probabilities(7)})
    assert decode(tmp_path / "other", output, "--overwrite") == 0
    assert (output / "notes.txt").read_text() == "mine"
    assert (output / "a.nii.gz").read_bytes() != before
    assert names(output) == names(folder) | {DECODED_NAME, "notes.txt"}
    (tmp_path / "link").symlink_to(folder)
    for same in (folder, tmp_path / "link"):
        before = (folder / "a.nii.gz").read_bytes()
        assert decode(folder, same, "--overwrite") == 1
        assert (folder / "a.nii.gz").read_bytes() == before
    (tmp_path / "empty").mkdir()
    assert decode(folder, tmp_path / "empty") == 0


def test_a_folder_that_is_half_written_is_known(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    move = _folders._move

    def stop(source: Path, target: Path) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(source.name)
        move(source, target)

    monkeypatch.setattr(_folders, "_move", stop)
    with pytest.raises(KeyboardInterrupt):
        decode_folder(PredictionFolder.read(folder), tmp_path / "out")
    assert {"a.nii.gz", DECODED_NAME} <= names(tmp_path / "out")
    assert not [name for name in names(tmp_path / "out") if name.startswith((".", "b", "c"))]
    check_all(tmp_path / "out")
