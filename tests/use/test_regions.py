"""Regions that overlap without nesting, which a label map cannot hold, and regions that do not overlap."""

from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.use import fit_review
from tests.generated import overlapping_case, probabilities, read, write_overlapping

LOST = "A label map cannot hold the regions A, B as regions_class_order [1, 2] writes them"


def test_a_review_and_a_decoding_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth, folder = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate("ab")})
    out = str(tmp_path / "out")
    for command in (
        ["review", str(folder)],
        ["review", "fit", str(truth), str(folder)],
        ["decode", str(folder), "-o", out],
        ["decode", str(folder), "-o", out, "--threshold", "A=0.3"],
    ):
        assert main(command) == 1
        assert LOST in capsys.readouterr().err
    assert not Path(out).exists()


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
