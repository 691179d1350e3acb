"""The summary of a folder: means over cases, pooled figures, and the JSON file that holds them."""

import json
import platform
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import version
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl._whole import whole_file
from nnunet_nacl.evaluation._case import VOXEL_SETS, CalibrationTables, CaseResult, Region, Voxels

METRICS = ("ECE", "CECE")


@dataclass
class Case:
    """A case's files and, once evaluated, its result."""

    name: str
    reference_file: Path
    prediction_file: Path
    probabilities_file: Path
    result: CaseResult = field(init=False)


@dataclass(frozen=True)
class FolderResult:
    """What :func:`evaluate_folder` found.

    Attributes:
        cases: the evaluated cases.
        skipped: case -> reason, for those that could not be evaluated.
        settings: folders, files and options.
        channel_labels: ``labels`` of the data set's ``dataset.json``.
    """

    cases: list[Case]
    skipped: dict[str, str]
    settings: dict[str, Any]
    channel_labels: dict[str, Any]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's figure)."""
        return _mean([case.result.calibration[voxels].metrics()[metric] for case in self.cases])

    def pooled_tables(self, voxels: Voxels) -> CalibrationTables | None:
        """The bin tables of all cases added up; None without cases."""
        tables = [case.result.calibration[voxels] for case in self.cases]
        return reduce(add, tables) if tables else None

    def dice(self, name: int | Region) -> float:
        """Mean Dice of a label or region over the cases where it is in the reference or the prediction."""
        return _mean([case.result.dice[name] for case in self.cases])

    @property
    def foreground_dice(self) -> float:
        """Mean over labels or regions of their mean Dice: nnU-Net's ``foreground_mean`` but for absent ones."""
        return _mean([self.dice(name) for name in (self.cases[0].result.dice if self.cases else ())])

    def to_json(self) -> dict[str, Any]:
        """The content of ``calibration_summary.json``."""
        names = list(self.cases[0].result.dice) if self.cases else []
        pooled = {voxels: self.pooled_tables(voxels) for voxels in VOXEL_SETS}
        return {
            "settings": {**self.settings, "voxels": list(VOXEL_SETS), "labels": self.channel_labels},
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in ("nnunet-nacl", "nnunetv2", "numpy")},
            },
            "num_cases": {
                "evaluated": len(self.cases),
                **{v: sum(_has_voxels(case.result.calibration[v]) for case in self.cases) for v in VOXEL_SETS},
            },
            "mean": {v: {metric: self.mean(v, metric) for metric in METRICS} for v in VOXEL_SETS},
            "pooled": {v: tables.metrics() for v, tables in pooled.items() if tables is not None},
            "segmentation": {
                "mean": {str(name): {"Dice": self.dice(name)} for name in names},
                "foreground_mean": {"Dice": self.foreground_dice},
            },
            "metric_per_case": [_case_json(case) for case in self.cases],
            "skipped": [{"case": case, "reason": reason} for case, reason in self.skipped.items()],
        }

    def write(self, file: str | Path) -> None:
        """Write the summary; the file appears whole or not at all."""
        with whole_file(Path(file)) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=2) + "\n")


def _mean(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _has_voxels(tables: CalibrationTables) -> bool:
    return any(bins.total > 0 for bins in tables.top)


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "reference_file": str(case.reference_file),
        "prediction_file": str(case.prediction_file),
        "probabilities_file": str(case.probabilities_file),
        "calibration": {voxels: tables.metrics() for voxels, tables in case.result.calibration.items()},
        "segmentation": {str(name): {"Dice": value} for name, value in case.result.dice.items()},
    }
