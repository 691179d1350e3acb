"""The command on folders of predictions, and what it leaves there."""

import json
from pathlib import Path

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import read_result

SUMMARY = "calibration_summary.json"
Folders = tuple[Path, Path]


def run_evaluate(folders: Folders, *options: object) -> int:
    return main(["evaluate", *map(str, folders), "-np", "1", *map(str, options)])


def summary_of(folders: Folders) -> dict[str, object]:
    return json.loads((folders[1] / SUMMARY).read_text())


def reasons(folders: Folders) -> dict[str, str]:
    return {entry["case"]: entry["reason"] for entry in summary_of(folders)["skipped"]}


def content(summary: Path) -> tuple[str, bytes]:
    """The summary, and every number of the record to the last bit."""
    return summary.read_text(), read_result(summary).counts.to_array().tobytes()
