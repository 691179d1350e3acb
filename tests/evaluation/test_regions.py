"""Regions that overlap without nesting: nnU-Net's label map cannot hold them, and its Dice says so."""

import json
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import read_result
from tests.evaluation.evaluated import SUMMARY, run_evaluate, summary_of
from tests.generated import overlapping_case, probabilities, read, true_dice, write_folder, write_overlapping

NAMES = "abc"


def test_dice_of_masks_beside_nnunets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate(NAMES)})
    assert run_evaluate(folders) == 0
    said = capsys.readouterr().out
    assert "Dice of masks" in said
    assert "A label map cannot hold A (label 3 becomes 2)" in said
    result = read_result(folders[1] / SUMMARY)
    for row, case in enumerate(result.cases):
        truth, saved = (read(folder / f"{case}.nii.gz") for folder in folders)
        for p, region in zip(probabilities(folders[1], case), [(1, 3), (2, 3)], strict=True):
            found = result.counts.take([row]).by_structure[region]
            assert found["Dice"] == pytest.approx(true_dice(truth, saved, list(region)))
            inside, mask = np.isin(truth, region), p > 0.5
            assert found["Dice_mask"] == pytest.approx(2 * (inside & mask).sum() / (inside.sum() + mask.sum()))
    a, b = result.structures
    assert np.mean(result.values("Dice", label=a)) < np.mean(result.values("Dice_mask", label=a)) - 0.1
    assert result.values("Dice", label=b).tolist() == result.values("Dice_mask", label=b).tolist()
    assert summary_of(folders)["segmentation"]["foreground_mean"]["Dice_mask"] == pytest.approx(  # type: ignore[index]
        np.mean([result.values("Dice_mask", label=region) for region in (a, b)])
    )


def test_a_perfect_model(tmp_path: Path) -> None:
    """Its masks have a Dice of 1, its label map of A has not; ignored voxels count in neither."""
    y = np.zeros((2, 4, 6), int)
    y[:, :2], y[:, 2:, :3], y[0, 2, 2:5] = 1, 2, 3
    p = np.stack([np.isin(y, (1, 3)), np.isin(y, (2, 3))]).astype(np.float32)
    marked = y.copy()
    marked[1, 0] = 4
    p[:, 1, 0] = 1 - p[:, 1, 0]
    folders = write_overlapping(tmp_path, {"a": (p, marked)})
    content = json.loads((folders[1] / "dataset.json").read_text())
    content["labels"]["ignore"] = 4
    (folders[1] / "dataset.json").write_text(json.dumps(content))
    assert run_evaluate(folders) == 0
    found = read_result(folders[1] / SUMMARY).counts.by_structure
    assert [one["Dice_mask"] for one in found.values()] == [1, 1]
    size = np.isin(marked, (1, 3)).sum()
    assert found[1, 3]["Dice"] == pytest.approx(2 * (size - 3) / (2 * size - 3))


def test_nested_regions_have_one_dice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_folder(tmp_path, NAMES, regions=True, structure=True)
    assert run_evaluate(folders) == 0
    assert "cannot hold" not in capsys.readouterr().out
    assert "Dice_mask" not in (folders[1] / SUMMARY).read_text()
