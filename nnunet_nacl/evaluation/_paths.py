"""Where a result's files lie, by its summary."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SUMMARY_NAME = "calibration_summary.json"
PART = re.compile(r"_part\d+of(\d+)(?=(?:_summary)?\.json$)")
"""What ``part_file`` adds to a summary's name; the group is the number of parts."""


class Part(NamedTuple):
    """Which part of the cases is evaluated by itself: its number, from 0, and the number of parts."""

    number: int
    total: int

    @property
    def name(self) -> str:
        """What ``part_file`` calls it: ``part0of4``."""
        return f"part{self.number}of{self.total}"


def default_summary(pred_folders: Sequence[Path]) -> Path:
    """Where ``evaluate`` writes the summary of a folder of predictions, or of the validation folders of a model."""
    if len(pred_folders) == 1:
        return pred_folders[0] / SUMMARY_NAME
    folds = "_".join(folder.parent.name.removeprefix("fold_") for folder in pred_folders)
    kind = pred_folders[0].name.removeprefix("validation")  # _calibrated
    return pred_folders[0].parent.parent / f"calibration{kind}_folds_{folds}_summary.json"


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def whole_summary(part: Path) -> Path:
    """The summary for which ``part_file`` gives that of a part."""
    return part.with_name(PART.sub("", part.name))


def files_of(summary: Path) -> tuple[Path, Path, Path]:
    """The summary, the cases in long form, the record."""
    return summary, _beside(summary, "cases.csv"), record_file(summary)


def record_file(summary: Path) -> Path:
    """The record of a summary; not named as an ``.npz``, which nnU-Net's ensembling would take for a case."""
    return _beside(summary, "bins.zip")


def summary_file(record: Path) -> Path:
    """The summary for which ``record_file`` gives this record."""
    if record.name.endswith("_bins.zip"):
        return record.with_name(f"{record.name.removesuffix('_bins.zip')}_summary.json")
    return record.with_name(f"{record.name.removesuffix('.bins.zip')}.json")


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")
