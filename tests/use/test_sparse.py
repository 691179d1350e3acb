"""Sparse annotation: most slices carry the ignore label, so that true volumes are unknown."""

import json
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.use import decode_folder, fit_review, review_folder
from tests.generated import ENDING, VOXEL_ML, change, probabilities, read, true_dice, write_folder
from tests.use.conftest import judged

WARNED = "The ground truth ignores"
Folders = tuple[Path, Path]


def sparse(folders: Folders, names: str | list[str], every: int = 5) -> Folders:
    """Of these cases only one slice in ``every`` is labelled, or none if it is 0."""
    truth, predictions = folders
    content = json.loads((predictions / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))

    def ignore(labels: np.ndarray) -> np.ndarray:
        labels[(np.arange(len(labels)) % every != every // 2) if every else ...] = 3
        return labels

    for name in names:
        change(truth / f"{name}.nii.gz", ignore)
    return truth, predictions


def test_ignored_voxels_do_not_judge(tmp_path: Path) -> None:
    """Of case b all are ignored."""
    truth, predictions = sparse(sparse(write_folder(tmp_path, "abcd", structure=True), "a", 2), "b", 0)
    review = review_folder(predictions, gt_folder=truth)
    found = judged(predictions).loc["a", "one"]
    labels, saved = (read(folder / f"a{ENDING}") for folder in (truth, predictions))
    p, counted = probabilities(predictions, "a").astype(np.float64)[1], labels != 3
    inside = (saved == 1)[counted]
    assert found.volume_ml == pytest.approx(VOXEL_ML * p[counted].sum())
    assert found.dice_to_expect == pytest.approx(2 * p[counted][inside].sum() / (p[counted].sum() + inside.sum()))
    assert found.dice == pytest.approx(true_dice(labels[counted], saved[counted], [1]))
    assert {one["num_cases"] for one in review.judgements if one["structure"] != "(all)"} == {3}
    assert review.table.set_index("case").loc["b", ["dice", "true_ml"]].isna().all(axis=None)
    assert "b" not in judged(predictions).index


def test_a_review_says_what_is_ignored_and_leaves_out_what_is_unknown(tmp_path: Path) -> None:
    truth, predictions = sparse(write_folder(tmp_path, "abcd", structure=True), "abc")
    review = review_folder(predictions, gt_folder=truth)
    (note,) = [note for note in review.notes if note.startswith(WARNED)]
    assert note.startswith("The ground truth ignores 60 % of the voxels (mean over 4 cases; some in 3 of them)")
    volumes = review.table.set_index(["case", "structure"]).true_ml
    assert volumes.notna().to_dict() == {(case, s): case == "d" for case in "abcd" for s in ("one", "two")}
    rows = judged(predictions)
    assert np.isnan(rows.loc["a", "one"].true_ml)
    known = rows.loc["d", "one"]
    one = review.judgements[0]
    assert one["volume_bias_ml"] == pytest.approx(known.volume_ml - known.true_ml)
    assert one["volume_bias_share"] == pytest.approx(known.volume_ml / known.true_ml - 1)
    assert one["num_cases"] == 4
    every = sparse((truth, predictions), "d")
    none = review_folder(every[1], gt_folder=every[0])
    assert "volume" not in none.summary().split(WARNED)[0]
    for one in none.judgements:
        assert {value for name, value in one.items() if name.startswith(("volume", "interval"))} == {None}


def test_a_fit_warns_and_has_no_volumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"k{number:02}" for number in range(24)]
    truth, predictions = sparse(write_folder(tmp_path / "known", names), names)
    assert main(["review", "fit", str(truth), str(predictions)]) == 0
    said = capsys.readouterr().out
    warned = "The ground truth of the fit's cases ignores 80 % of the voxels (mean over 24 cases; some in 24 of them)"
    assert warned in said
    assert "volume" not in said.split(warned)[0]
    fit_file = predictions / "review_fit.json"
    new = sparse(write_folder(tmp_path / "new", "ab", first=70), "")
    review = review_folder(new[1], gt_folder=new[0], fit=fit_file)
    assert review.table[["volume_low_ml", "volume_high_ml"]].isna().all(axis=None)
    assert review.table.true_ml.notna().all()
    assert any("ignores 80 %" in note for note in review.notes)
    decoded = decode_folder(new[1], tmp_path / "out", fit=fit_file, alpha=0.2)
    assert "ignores 80 %" in decoded.summary()
    assert "in whole images, masks may miss more than alpha" in decoded.summary()


def test_volumes_are_fitted_to_the_cases_that_are_labelled_as_a_whole(tmp_path: Path) -> None:
    names = [f"k{number:02}" for number in range(23)]
    folders = write_folder(tmp_path / "known", names)
    some = sparse(folders, names[19:])
    mixed = fit_review(Predictions.of_folder(*some), output=tmp_path / "mixed.json")
    for name in names[19:]:
        (some[0] / f"{name}.nii.gz").unlink()
    whole = fit_review(Predictions.of_folder(*some), output=tmp_path / "whole.json")
    assert whole.ignored == [0] * 19
    assert mixed.ignored == pytest.approx([0] * 19 + [0.8] * 4)
    assert "no intervals" not in mixed.summary()
    for structure, fit in mixed.structures.items():
        assert fit.volume == whole.structures[structure].volume is not None
