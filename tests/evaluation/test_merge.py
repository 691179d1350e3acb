import json
import shutil
from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import (
    FolderResult,
)
from tests.evaluation.generated import SUMMARY, Folders, content, run_evaluate, truncated


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


def test_folders_with_one_ground_truth_merge(folders: Folders, tmp_path: Path) -> None:
    """What one lacks the other has: nothing is skipped."""
    gt_folder, first = folders
    second = tmp_path / "second"
    shutil.copytree(first, second)
    for folder, names in ((first, ("case_0", "case_1")), (second, ("case_2",))):
        for name in names:
            (folder / f"{name}.npz").unlink()
            (folder / f"{name}.nii.gz").unlink()
        assert run_evaluate((gt_folder, folder), "--chill") == 0
    merged = tmp_path / "merged.json"
    assert main(["merge", str(first / SUMMARY), str(second / SUMMARY), "-o", str(merged)]) == 0
    assert len(json.loads(merged.read_text())["metric_per_case"]) == 3
    assert [place.pred_folder for place in FolderResult.read(merged).origin.places] == [str(first), str(second)]


def test_summaries_do_not_share_their_tables(folders: Folders, tmp_path: Path) -> None:
    run_evaluate(folders, "-o", tmp_path / "a.json")
    run_evaluate(folders, "-o", tmp_path / "a_summary.json", "--bins", 5)
    assert FolderResult.read(tmp_path / "a.json").settings.num_bins == 15


def test_parts_by_the_name_that_was_asked_for(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-o p0.json`` with parts writes p0_part0of2.json; ``merge p0.json`` finds it, as evaluate says."""
    run_evaluate(folders, "-o", tmp_path / "whole.json")
    for part in range(2):
        assert run_evaluate(folders, "-o", tmp_path / f"p{part}.json", "--num_parts", 2, "--part_id", part) == 0
        assert run_evaluate(folders, "--num_parts", 2, "--part_id", part) == 0
    assert f"nnunet_nacl merge {folders[1] / SUMMARY} -o {folders[1] / SUMMARY}\n" in capsys.readouterr().out
    for names in ([tmp_path / "p0.json", tmp_path / "p1.json"], [folders[1] / SUMMARY]):
        assert main(["merge", *map(str, names), "-o", str(tmp_path / "all.json")]) == 0
        merged, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("all", "whole"))
        assert merged == whole
