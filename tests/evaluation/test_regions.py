"""Regions that overlap without nesting: nnU-Net's label map cannot hold them, and its Dice says so."""

from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import read_result
from tests.evaluation.evaluated import SUMMARY, run_evaluate
from tests.generated import overlapping_case, read, true_dice, write_overlapping


def test_dice_is_nnunets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate("abc")})
    assert run_evaluate(folders) == 0
    assert "Note: A label map cannot hold the regions A, B as regions_class_order [1, 2]" in capsys.readouterr().out
    result = read_result(folders[1] / SUMMARY)
    for row, case in enumerate(result.cases):
        truth, saved = (read(folder / f"{case}.nii.gz") for folder in folders)
        for region in [(1, 3), (2, 3)]:
            found = result.counts.take([row]).by_structure[region]["Dice"]
            assert found == pytest.approx(true_dice(truth, saved, list(region)))
            inside = np.isin(truth, region)
            assert result.counts.truth is not None
            assert result.counts.truth.voxels[row, result.meaning.structures.index(region)] == inside.sum()
