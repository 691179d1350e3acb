"""Regions that overlap without nesting: a label map cannot hold both, and the commands say so."""

from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import compare
from nnunet_nacl.use import ReviewFit, decode_folder, fit_review, review_folder
from tests.generated import VOXEL_ML, overlapping_case, probabilities, read, true_dice, write_folder, write_overlapping

LOST = "A label map cannot hold the regions A, B as regions_class_order [1, 2] writes them."
REGIONS = {"A": (1, 3), "B": (2, 3)}
Folders = tuple[Path, Path]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    cases = {f"k{seed:02}": overlapping_case(seed) for seed in range(24)}
    return write_overlapping(tmp_path_factory.mktemp("known"), cases)


@pytest.fixture(scope="module")
def fitted(known: Folders, tmp_path_factory: pytest.TempPathFactory) -> ReviewFit:
    return fit_review(Predictions.of_folder(*known), output=tmp_path_factory.mktemp("fit") / "fit.json")


@pytest.fixture
def new(tmp_path: Path) -> Folders:
    return write_overlapping(tmp_path / "new", {name: overlapping_case(seed) for seed, name in enumerate("abcd", 50)})


def test_a_recall_that_the_label_map_cannot_keep_is_refused(
    new: Folders, fitted: ReviewFit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", str(new[1]), "-o", str(tmp_path / "out"), "--fit", str(fitted.file), "--alpha", "0.1"]) == 1
    error = capsys.readouterr().err
    assert LOST in error
    assert not (tmp_path / "out").exists()
    for number, name in enumerate(REGIONS):
        threshold = fitted.recall_threshold(name, 0.1)
        assert f"{name} {threshold:.6g}" in error
        masks = {case: probabilities(new[1], case)[number] >= threshold for case in "abcd"}
        inside = {case: np.isin(read(new[0] / f"{case}.nii.gz"), REGIONS[name]) for case in "abcd"}
        assert np.mean([1 - masks[case][inside[case]].mean() for case in "abcd"]) < 0.15
    assert f"nnunet_nacl maps {new[1]} -o FOLDER --what structure:A structure:B" in error


def test_decoded_for_dice_it_is_said(new: Folders, tmp_path: Path) -> None:
    assert LOST in decode_folder(new[1], tmp_path / "out").summary()
    nested = write_folder(tmp_path / "nested", "a", regions=True, structure=True)
    assert "cannot hold" not in decode_folder(nested[1], tmp_path / "nested_out").summary()


def test_the_review_is_of_the_label_map(new: Folders) -> None:
    truth, folder = new
    review = review_folder(folder, gt_folder=truth)
    assert any(note.startswith(LOST) and "label map" in note for note in review.notes)
    for row in review.table.itertuples():
        number = list(REGIONS).index(row.structure)
        p = probabilities(folder, row.case)[number].astype(float)
        y, saved = (read(one / f"{row.case}.nii.gz") for one in new)
        mask = np.isin(saved, REGIONS[row.structure])
        assert row.segmented_ml == pytest.approx(VOXEL_ML * mask.sum())
        assert row.predicted_dice == pytest.approx(2 * p[mask].sum() / (p.sum() + mask.sum()))
        assert row.dice == pytest.approx(true_dice(y, saved, list(REGIONS[row.structure])))
    comparison = compare({"one": evaluate(Predictions.of_folder(truth, folder))})
    assert LOST in comparison.notes[0]


def test_of_regions_that_do_not_overlap_shared_voxels_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of classes: where both reach their thresholds, the last gets the voxel."""

    def apart(seed: int) -> tuple[np.ndarray, np.ndarray]:
        p, y = overlapping_case(seed)
        p[1] *= 1 - p[0]
        return p, np.where(y == 3, 1, y)

    labels = {"background": 0, "A": [1, 4], "B": [2, 5]}
    truth, known = write_overlapping(tmp_path / "known", {f"k{n:02}": apart(n) for n in range(24)}, labels)
    _, new = write_overlapping(tmp_path / "new", {"a": apart(60)}, labels)
    fit = fit_review(Predictions.of_folder(truth, known), output=tmp_path / "fit.json")
    assert main(["decode", str(new), "-o", str(tmp_path / "out"), "--fit", str(fit.file), "--alpha", "0.1"]) == 0
    a, b = (probabilities(new, "a")[n] >= fit.recall_threshold(name, 0.1) for n, name in enumerate("AB"))
    shared = np.count_nonzero(a & b)
    assert shared > 0
    said = capsys.readouterr().out
    assert f"In {shared:,} voxels several structures reach their thresholds; the last in regions_class_order" in said
    np.testing.assert_array_equal(read(tmp_path / "out" / "a.nii.gz"), np.where(b, 2, a))
