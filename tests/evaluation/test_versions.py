"""Libraries that are upgraded between evaluations, and what earlier versions of this package have written."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import FolderResult, Settings, bins_file, evaluate, merge_results
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.generated import SUMMARY, Folders, change_header, content, run_evaluate, summary_of

EARLIER = Path(__file__).parent / "earlier"
"""Of version 0.1.0: ``classes`` (an ignore label, surface distances, ``--protocol reference``) and ``regions``."""


def older_numpy(header: dict[str, Any]) -> None:
    header["versions"]["numpy"] = "1.0"


def test_parts_of_different_versions_merge(folders: Folders, tmp_path: Path) -> None:
    run_evaluate(folders, "-o", tmp_path / "whole.json")
    for part in range(2):
        run_evaluate(folders, "--num_parts", 2, "--part_id", part)
    parts = [folders[1] / f"calibration_part{part}of2_summary.json" for part in range(2)]
    change_header(parts[0], older_numpy)
    assert main(["merge", *map(str, parts), "-o", str(tmp_path / "merged.json")]) == 0
    merged, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("merged", "whole"))
    assert merged["versions"] == {**whole["versions"], "numpy": f"1.0, {np.__version__}"}
    assert {**merged, "versions": 0} == {**whole, "versions": 0}
    again = merge_results([FolderResult.read(tmp_path / "merged.json")])
    assert again.versions == merged["versions"]


def test_an_upgrade_keeps_finished_cases(folders: Folders) -> None:
    run_evaluate(folders)
    first = content(folders[1] / SUMMARY)
    change_header(folders[1] / SUMMARY, older_numpy)
    run_evaluate(folders)
    again = f"1.0, {np.__version__}"
    assert content(folders[1] / SUMMARY) == first.replace(f'"numpy": "{np.__version__}"', f'"numpy": "{again}"')


def test_another_way_of_counting_keeps_nothing(folders: Folders) -> None:
    run_evaluate(folders)
    before = FolderResult.read(folders[1] / SUMMARY)
    change_header(folders[1] / SUMMARY, lambda header: header.update(counting=77, versions={"numpy": "1.0"}))
    with pytest.raises(ValueError, match=r"^parts differ in counting: 2 and 77\.$"):
        merge_results([before, FolderResult.read(folders[1] / SUMMARY)])
    run_evaluate(folders)
    assert summary_of(folders)["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize("name", ["classes", "regions"])
def test_a_summary_of_an_earlier_version(name: str, tmp_path: Path) -> None:
    file = EARLIER / f"{name}_summary.json"
    result = FolderResult.read(file)
    # Other versions of NumPy add up in another order.
    written, found = (
        json.loads(text, parse_float=lambda digits: f"{float(digits):.12g}")
        for text in (file.read_text(), json.dumps(result.to_json()))
    )
    if name == "classes":
        assert written["settings"]["protocol"] == "reference"
        written["settings"]["protocol"] = "paper"
        assert result.settings == Settings(voxels=("foreground", "union", "near"), surface=True, protocol="paper")
    assert json.dumps(found) == json.dumps(written)
    assert result.labels.has_background == (name == "classes")
    assert [result.labels.name_of(one) for one in result.names] == (
        ["organ", "tumor"] if name == "classes" else ["whole", "core"]
    )
    result.write(tmp_path / "again.json")
    again = FolderResult.read(tmp_path / "again.json")
    assert again.origin == result.origin
    assert json.dumps(again.to_json()) == json.dumps(result.to_json())


def test_the_first_version_knew_neither_near_nor_expected_values(folders: Folders) -> None:
    settings = Settings(voxels=("foreground", "union"))
    evaluate(Predictions.of_folder(*folders), settings)
    file = bins_file(folders[1] / SUMMARY)
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive if "expected" not in name and "image_voxels" not in name}
    with file.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    change_header(folders[1] / SUMMARY, lambda header: (header["settings"].pop("margin_mm"), header.pop("counting")))
    result = FolderResult.read(folders[1] / SUMMARY)
    assert "ECE_expected" not in result.pooled("union")
    assert "share" not in result.to_json()["mean"]["union"]
    assert result.mean("union", "ECE") > 0
    # They are counted anew, not mixed with cases that have more.
    assert math.isfinite(evaluate(Predictions.of_folder(*folders), settings).pooled("union")["ECE_expected"])


def test_settings_that_are_missing_are_named(folders: Folders) -> None:
    run_evaluate(folders)
    change_header(folders[1] / SUMMARY, lambda header: header["settings"].pop("reader"))
    with pytest.raises(ValueError, match=r"calibration_bins\.zip .*it lacks the setting 'reader': another"):
        FolderResult.read(folders[1] / SUMMARY)


def test_the_old_name_of_the_papers_protocol(folders: Folders) -> None:
    assert Settings(protocol="reference") == Settings(protocol="paper")
    assert run_evaluate(folders, "--protocol", "reference") == 0
    assert summary_of(folders)["settings"]["protocol"] == "paper"
    first = content(folders[1] / SUMMARY)
    assert run_evaluate(folders, "--protocol", "paper") == 0
    assert content(folders[1] / SUMMARY) == first
