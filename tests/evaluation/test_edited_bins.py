"""Bin tables that someone has changed: what does not fit together is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import FolderResult, bins_file
from tests.evaluation.test_versions import EARLIER

Arrays = dict[str, Any]


@pytest.fixture
def original() -> Path:
    """An earlier version's tables, which are small."""
    return EARLIER / "classes_bins.zip"


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[Arrays], object]:
    def edit(arrays: Arrays) -> None:
        content = json.loads(str(arrays["header"]))
        change(content)
        arrays["header"] = np.array(json.dumps(content))

    return edit


def record(change: Callable[[dict[str, Any]], object]) -> Callable[[Arrays], object]:
    def edit(arrays: Arrays) -> None:
        contents = [json.loads(str(text)) for text in arrays["cases"]]
        change(contents[1])
        arrays["cases"] = np.array([json.dumps(content) for content in contents])

    return edit


def settings(**changes: object) -> Callable[[Arrays], object]:
    return header(lambda content: content["settings"].update(changes))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda a: a.pop("near_top_hits"), "'near_top_hits' is missing"),
        (lambda a: a.update(near_top_hits=a["near_top_hits"][:1]), "near_top_hits: expected integers of shape (2, 1"),
        (lambda a: a.update(near_top_hits=a["near_top_hits"] + 0.5), "near_top_hits: expected integers of shape"),
        (lambda a: a.update(near_top_hits=a["near_top_count"] + 1), "near_top_hits: expected no more than near_top_"),
        (lambda a: a.update(near_nll=a["near_nll"] * np.nan), "near_nll: expected finite numbers of at least 0"),
        (lambda a: a.update(union_num_classes=a["union_num_classes"] + 1), "union_num_classes: expected at most 3"),
        (lambda a: a.update(header=np.array("[]")), "its header is no header: expected a JSON object; got []"),
        (lambda a: a.update(header=np.array(["{}"])), "header: expected one text"),
        (lambda a: a.update(cases=np.array([1, 2])), "case 0 is no case: expected a JSON object; got 1"),
        (header(lambda c: c.update(versions=[])), "its header: versions: expected a JSON object; got []"),
        (header(lambda c: c.update(skipped=[{"case": "x"}])), "its header: skipped[0]: it has no 'reason'"),
        (settings(num_bins=15.0), "num_bins: expected an integer; got 15.0"),
        (settings(num_bins=10), "expected integers of shape (2, 1, 10)"),
        (settings(voxels="near"), 'voxels: expected a list; got "near"'),
        (settings(voxels=["all"]), "voxels[0]: expected 'foreground', 'union', 'near', 'image' or 'boundary'"),
        (settings(margin_mm=-1), "margin_mm must be at least 0"),
        (settings(labels={"background": 0, "organ": 1.5}), "labels.organ: expected an integer or a list of integers"),
        (settings(regions=[[]]), "regions[0]: expected a list of at least 1; got []"),
        (settings(part=[1]), "part: it has no entry 1"),
        (settings(gt_folder=[]), "gt_folder: expected a list of at least 1; got []"),
        (settings(gt_folder={"a": 1}), "gt_folder[0]: expected a text"),
        (record(lambda c: c.update(case=3)), "case 1: case: expected a text; got 3"),
        (record(lambda c: c.update(segmentation=[])), "expected metrics of the structures [1, 2]; got []"),
        (record(lambda c: c["segmentation"][0][1].pop("Dice")), "the structure 1 has other metrics"),
        (record(lambda c: c["segmentation"][0][1].update(Dice="1")), "segmentation[0][1].Dice: expected a number"),
        (record(lambda c: c.update(states={})), "expected the states of its three files"),
    ],
)  # fmt: skip
def test_edited_bins(
    edit: Callable[[Arrays], object], message: str, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "edited_summary.json"
    summary.write_text("{}")
    with np.load(original) as archive:
        arrays = dict(archive)
    edit(arrays)
    with bins_file(summary).open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    with pytest.raises(ValueError) as raised:
        FolderResult.read(summary)
    assert str(raised.value).startswith(f"{bins_file(summary)} cannot be read as bin tables: ")
    assert message in str(raised.value)
    assert main(["table", str(summary)]) == 1
    assert message in capsys.readouterr().err


def test_a_case_twice(original: Path, tmp_path: Path) -> None:
    summary = tmp_path / "edited_summary.json"
    with np.load(original) as archive:
        arrays = dict(archive)
    arrays["cases"] = np.array([str(arrays["cases"][0])] * 2)
    with bins_file(summary).open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    with pytest.raises(ValueError, match="is in it twice"):
        FolderResult.read(summary)
