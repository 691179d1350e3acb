"""Where a result's files lie."""

from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.nnunet import CaseFiles

SUMMARY_NAME = "calibration_summary.json"


def default_summary(pred_folders: Sequence[Path]) -> Path:
    """Where ``evaluate`` writes the summary of a folder of predictions, or of the validation folders of a model."""
    if len(pred_folders) == 1:
        return pred_folders[0] / SUMMARY_NAME
    folds = "_".join(folder.parent.name.removeprefix("fold_") for folder in pred_folders)
    kind = pred_folders[0].name.removeprefix("validation")  # _calibrated
    return pred_folders[0].parent.parent / f"calibration{kind}_folds_{folds}_summary.json"


def cases_file(summary: Path) -> Path:
    """The CSV of a summary: ``x_cases.csv`` for ``x_summary.json``, ``x.cases.csv`` for ``x.json``."""
    return _beside(summary, "_cases.csv", ".cases.csv")


def record_file(files: CaseFiles, output: Path | None = None) -> Path:
    """The record of a case: ``calibration/CASE.npz`` beside its prediction.

    With another output, a folder beside that: ``x/`` for ``x_summary.json``, ``x.cases/`` for ``x.json``.
    """
    home = files.prediction.with_name("calibration")
    if output is not None:
        home = _beside(output, "", ".cases")
    return home / f"{files.name}.npz"


def _beside(file: Path, of_summary: str, of_other: str) -> Path:
    """No two names share what lies beside them."""
    prefix = file.stem.removesuffix("_summary")
    return file.with_name(prefix + (of_summary if prefix != file.stem else of_other))
