"""Segmentations for another metric than nnU-Net's argmax."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.nnunet import CALIBRATED_NAME, DECODED_NAME, CaseFiles, Predictions
from nnunet_nacl.use import decode_folder, fit_review, write_maps
from nnunet_nacl.use._decode import _by_thresholds
from tests.generated import STRUCTURES, change, geometry, names, probabilities, random_folder, read, write_folder


def check_all(folder: Path) -> None:
    """Every case's segmentation is what its probabilities give, by the folder's own rule."""
    predictions = Predictions.of_folder(None, folder)
    for case in predictions.cases:
        SavedCase(case, predictions.data_set).probabilities()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_folder(tmp_path / "in", "abc")


def expected_dice(p: np.ndarray, mask: np.ndarray) -> float:
    """In the approximation of RankSEG; 0 if nothing is segmented."""
    return float(2 * p[mask].sum() / (p.sum() + mask.sum() + 1))


@pytest.mark.parametrize("regions", [False, True])
def test_for_dice(tmp_path: Path, regions: bool) -> None:
    """Segmentations are rankseg's: of regions, no threshold gives a mask with a higher expected Dice."""
    folder, output = random_folder(tmp_path / "in", "abc", regions), tmp_path / "out"
    said = decode_folder(folder, output).summary()
    structures = list(STRUCTURES[regions].items())
    assert f"Decoded 3 of 3 cases into {output}.\nThresholds, mean over cases: {structures[0][0]} 0." in said
    assert "see nnunet_nacl calibrate" in said
    assert names(output) == names(folder) | {DECODED_NAME, "provenance.json"}
    mark = json.loads((output / DECODED_NAME).read_text())
    assert (mark["metric"], mark["alpha"]) == ("dice", None)
    for name in "abc":
        labels = read(output / f"{name}.nii.gz")
        assert geometry(output / f"{name}.nii.gz") == geometry(folder / f"{name}.nii.gz")
        assert (output / f"{name}.npz").samefile(folder / f"{name}.npz")
        p = probabilities(folder, name)[0 if regions else 1 :].astype(float)
        thresholds = mark["cases"][name]["thresholds"]
        dice = {"decoded": 0.0, "argmax": 0.0}
        for number, (_, own) in enumerate(structures):
            mask = p[number] > thresholds[number]
            dice["decoded"] += expected_dice(p[number], np.isin(labels, own))
            dice["argmax"] += expected_dice(p[number], np.isin(read(folder / f"{name}.nii.gz"), own))
            assert mask[labels == own[0]].all()
            if regions:
                best = max(expected_dice(p[number], p[number] >= t) for t in np.unique(p[number]))
                assert expected_dice(p[number], mask) == pytest.approx(best, abs=1e-5)
        if not regions:
            assert dice["decoded"] >= dice["argmax"] - 1e-9
    check_all(output)


def test_without_rankseg(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rankseg", None)
    with pytest.raises(ImportError, match=r"pip install -e '.\[rankseg\]'"):
        decode_folder(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_thresholds_of_ones_own(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    command = ["decode", str(folder), "-o", str(output)]
    for wrong, error in (
        (["--threshold", "three=0.2"], "no structure three; there are one, two."),
        (["--threshold", "two"], "could not convert string to float: 'two'"),
        (["--threshold", "two=3"], "two: expected a threshold above 0, at most 1; got 3."),
        (["--alpha", "0.1"], "without a fit, no recall is guaranteed"),  # it would decode for Dice
    ):
        assert main([*command, *wrong]) == 1
        assert error in capsys.readouterr().err
        assert not output.exists()
    assert main([*command, "--threshold", "two=0.2"]) == 0
    assert Predictions.of_folder(None, output).provenance.decoded == "thresholds one 0.5, two 0.2"
    shared = 0
    for name in "abc":
        p = probabilities(folder, name)
        first, second = p[1] >= 0.5, p[2] >= 0.2
        shared += np.count_nonzero(first & second)
        expected = np.where(second & ~(first & (p[1] >= p[2])), 2, first)
        np.testing.assert_array_equal(read(output / f"{name}.nii.gz"), expected)
    said = f"In {shared:,} voxels several structures reach their thresholds; the most probable one gets them."
    assert shared > 0
    assert said in capsys.readouterr().out
    check_all(output)


def test_of_the_classes_that_are_reached_the_most_probable_wins_and_of_equal_ones_the_first() -> None:
    """A voxel that equals its threshold reaches it; each region is written over those before it."""
    p = np.array([[0.2, 0, 0.9, 0.1], [0.4, 0.5, 0.05, 0.3125], [0.4, 0.5, 0.05, 0.6]], np.float16)[:, None, None]
    given = p.copy()
    meaning = LabelMeaning.of_names({"background": 0, "one": 1, "two": 2}, None)
    labels, decoded = _by_thresholds(p, meaning, [0.3125, 0.45])
    assert (labels.dtype, labels.tolist(), decoded.shared_voxels) == (np.uint8, [[[1, 1, 0, 2]]], 2)
    np.testing.assert_array_equal(p, given)
    regions = LabelMeaning.of_names({"background": 0, "A": [1, 4], "B": [2, 5]}, [[1, 4], [2, 5]], [1, 2])
    labels, decoded = _by_thresholds(p[1:], regions, [0.3125, 0.45])
    assert (labels.tolist(), decoded.shared_voxels) == ([[[1, 2, 0, 2]]], 2)


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("thresholds", [{}, {"core": 0.3, "two": 0.3}])
def test_exchanged_and_flipped_cases_are_found(tmp_path: Path, thresholds: dict[str, float], regions: bool) -> None:
    folder, output = random_folder(tmp_path / "in", "ab", regions), tmp_path / "out"
    known = {name: value for name, value in thresholds.items() if name in STRUCTURES[regions]}
    decode_folder(folder, output, thresholds=known)
    right = (output / "b.nii.gz").read_bytes()

    def one_more(array: np.ndarray) -> np.ndarray:
        z, y, x = np.argwhere((array[:, :, :-1] > 0) & (array[:, :, 1:] == 0))[0]
        array[z, y, x + 1] = 2
        return array

    for spoil in (one_more, lambda array: array[:, ::-1], lambda _: read(output / "a.nii.gz")):
        (output / "b.nii.gz").write_bytes(right)
        change(output / "b.nii.gz", spoil)
        with pytest.raises(ValueError, match=r"b\.npz: the segmentation"):
            check_all(output)


def test_recall_with_a_fit_of_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of cases that the fit does not know about the share alpha is missed of each structure."""
    truth, known = write_folder(tmp_path / "known", [f"k{number:02}" for number in range(24)], structure=True)
    new_truth, new = write_folder(tmp_path / "new", "abcd", first=50, structure=True)
    fit = fit_review(Predictions.of_folder(truth, known), output=tmp_path / "fit.json")
    options = ["-o", str(tmp_path / "out"), "--alpha", "0.2", "--fit", str(fit.file)]
    assert main(["decode", str(known), *options]) == 1
    assert "it was fitted to 24 of its cases, such as k00" in capsys.readouterr().err
    assert main(["decode", str(new), *options]) == 0
    mark = json.loads((tmp_path / "out" / DECODED_NAME).read_text())
    assert (mark["metric"], mark["alpha"], mark["fit"]) == ("recall", 0.2, str(fit.file))
    printed = capsys.readouterr().out
    assert all(note in printed for note in mark["notes"])
    assert (
        "to miss at most 0.2 of a structure on average, is that of its mask p >= threshold. The segmentations may miss"
        in printed
    )
    check_all(tmp_path / "out")
    write_maps(new, tmp_path / "maps", what=["structures"], dtype="float32")
    for k, threshold in enumerate(mark["cases"]["a"]["thresholds"], start=1):
        name = ["one", "two"][k - 1]
        assert threshold == fit.recall_threshold(name, 0.2)
        mask = read(tmp_path / "maps" / f"a_{name}.nii.gz") >= threshold  # that which is guaranteed
        np.testing.assert_array_equal(mask, probabilities(new, "a")[k].astype(float) >= threshold)
        missed = [np.mean(probabilities(new, n)[k][read(new_truth / f"{n}.nii.gz") == k] < threshold) for n in "abcd"]
        assert 0.1 < np.mean(missed) < 0.25
    content = json.loads(fit.file.read_text())
    content["structures"]["two"]["missed"][1:] = [1.0] * (len(content["structures"]["two"]["missed"]) - 1)
    fit.file.write_text(json.dumps(content))
    assert main(["decode", str(new), *options, "--overwrite"]) == 1
    assert "two: only the whole image misses at most 0.2 of it on average" in capsys.readouterr().err


def test_a_folder_is_marked_before_its_first_case(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a fit to argmax would be taken for the segmentations of an interrupted run."""
    write = CaseFiles.write

    def stopped(case: CaseFiles, *given: Any, **options: Any) -> None:
        if case.name == "c":
            raise KeyboardInterrupt
        write(case, *given, **options)

    monkeypatch.setattr(CaseFiles, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        decode_folder(folder, tmp_path / "out", thresholds={"one": 0.9, "two": 0.9})
    assert Predictions.of_folder(None, tmp_path / "out").provenance.decoded == "thresholds one 0.9, two 0.9"


def test_marks_are_those_of_the_new_predictions(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (folder / CALIBRATED_NAME).write_text('{"calibration": {"method": "temperature"}}')
    decode_folder(folder, output)
    assert (output / CALIBRATED_NAME).read_text() == (folder / CALIBRATED_NAME).read_text()
    before = (output / "a.nii.gz").read_bytes()
    decode_folder(random_folder(tmp_path / "others", "abc", first=7), output, overwrite=True)
    assert (output / "a.nii.gz").read_bytes() != before
    assert names(output) == names(folder) - {CALIBRATED_NAME} | {DECODED_NAME, "provenance.json"}
