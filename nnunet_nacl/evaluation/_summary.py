"""The result of a folder: means over cases, pooled figures, and the files that hold them."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.evaluation._settings import Voxels
from nnunet_nacl.evaluation._storage import Case, load_cases, save_cases
from nnunet_nacl.evaluation._tables import CLASS_METRICS, METRICS, SCORES, CalibrationTables
from nnunet_nacl.files import whole_file
from nnunet_nacl.metrics import (
    NLL_CLIP,
    BinCounts,
    Interval,
    bootstrap_interval,
    expected_calibration_error,
    mean_of_known,
    mean_over_cases,
    percentile_interval,
    ratio,
    resample_tables,
    resample_weights,
)
from nnunet_nacl.nnunet import Region

SUMMARY_NAME = "calibration_summary.json"


@dataclass(frozen=True)
class Skipped:
    """A case that could not be evaluated.

    Attributes:
        case: its name.
        reason: why.
        missing: there is a reference, but nothing was predicted.
    """

    case: str
    reason: str
    missing: bool


@dataclass(frozen=True)
class FolderResult:
    """What :func:`evaluate` found.

    Attributes:
        cases: the evaluated cases, in the order of their names.
        skipped: those that could not be evaluated.
        settings: folders, files and options.
        versions: of the packages that the figures came from.
        file: the summary that it was written to or read from, if it was.
    """

    cases: list[Case]
    skipped: list[Skipped]
    settings: dict[str, Any]
    versions: dict[str, str]
    file: Path | None = None

    @property
    def voxels(self) -> list[Voxels]:
        """The voxel sets."""
        sets: list[Voxels] = self.settings["voxels"]
        return sets

    @property
    def names(self) -> list[int | Region]:
        """Foreground labels, or regions."""
        return list(self.cases[0].result.segmentation) if self.cases else []

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration figure of each case; NaN where its voxel set is empty or the figure was not computed."""
        return [case.result.calibration[voxels].metrics().get(metric, float("nan")) for case in self.cases]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's figure)."""
        return mean_over_cases(self.values(voxels, metric))

    def pooled_tables(self, voxels: Voxels) -> CalibrationTables | None:
        """The tables of all cases added up, in the order of their names; None without cases."""
        tables = [case.result.calibration[voxels] for case in self.cases]
        return reduce(add, tables) if tables else None

    def pooled(self, voxels: Voxels) -> dict[str, float]:
        """Figures of all cases' voxels together; over the image, the scores per foreground voxel too."""
        tables = self.pooled_tables(voxels)
        if tables is None:
            return {}
        return tables.metrics() | (tables.per_foreground() if self._has_scores(voxels) else {})

    def pooled_interval(self, voxels: Voxels) -> dict[str, Interval]:
        """95 % percentile bootstrap intervals of pooled figures over the cases; NaN for fewer than two cases.

        2,000 resamples with a fixed seed. Of ECE, CECE and over-confidence, and over the image of the scores per
        foreground voxel, as ratios of sums.
        """
        if not self.cases:
            return {}
        tables = [case.result.calibration[voxels] for case in self.cases]
        weights = resample_weights(len(tables))
        top = resample_tables(BinCounts.stack([one.top for one in tables]), weights)
        classwise = resample_tables(BinCounts.stack([one.classwise for one in tables]), weights)
        num_classes = max(one.num_classes for one in tables)
        values = {
            "ECE": mean_of_known(expected_calibration_error(top)),
            "CECE": mean_of_known(expected_calibration_error(classwise)[:, :num_classes]),
            "over_confidence": mean_of_known(ratio((top.confidence - top.hits).sum(-1), top.total)),
        }
        if self._has_scores(voxels):
            foreground = weights @ np.array([one.foreground_voxels for one in tables], np.float64)
            for name, field in zip(SCORES, ("nll", "brier"), strict=True):
                total = weights @ np.array([getattr(one, field).sum() for one in tables])
                values[name] = ratio(total, foreground)
        return {name: percentile_interval(resampled, num_cases=len(tables)) for name, resampled in values.items()}

    def _has_scores(self, voxels: Voxels) -> bool:
        """With the reference protocol tables lack the voxels with p = 0, and so may the count of foreground voxels."""
        return voxels == "image" and self.settings["protocol"] == "standard"

    def segmentation(self, name: int | Region, metric: str) -> list[float]:
        """A segmentation figure of a label or region for each case."""
        return [case.result.segmentation[name][metric] for case in self.cases]

    def foreground_mean(self, metric: str = "Dice") -> float:
        """Mean over labels or regions of their means: nnU-Net's ``foreground_mean`` but for absent ones."""
        return mean_over_cases([mean_over_cases(self.segmentation(name, metric)) for name in self.names])

    def to_json(self) -> dict[str, Any]:
        """The content of ``calibration_summary.json``."""
        by_case = [{v: tables.metrics() for v, tables in case.result.calibration.items()} for case in self.cases]
        values = {
            v: {m: [one[v][m] for one in by_case] for m in METRICS if all(m in one[v] for one in by_case)}
            for v in self.voxels
        }
        by_class = {v: self._class_values(v) for v in self.voxels}
        metrics = list(self.cases[0].result.segmentation[self.names[0]]) if self.names else []
        segmented = {name: {metric: self.segmentation(name, metric) for metric in metrics} for name in self.names}
        pooled = {v: self.pooled_tables(v) for v in self.voxels}
        return {
            "settings": {**self.settings, "nll_clip": NLL_CLIP},
            "versions": self.versions,
            "num_cases": {
                "evaluated": len(self.cases),
                **{v: sum(not case.result.calibration[v].is_empty for case in self.cases) for v in self.voxels},
            },
            "mean": {v: _with_classes(mean_over_cases, values[v], by_class[v]) for v in self.voxels},
            "interval": {v: _with_classes(bootstrap_interval, values[v], by_class[v]) for v in self.voxels},
            "pooled": {
                v: {**self.pooled(v), "classes": self._by_class(tables)}
                for v, tables in pooled.items()
                if tables is not None
            },
            "pooled_interval": {v: self.pooled_interval(v) for v in self.voxels},
            "segmentation": {
                "mean": {
                    str(n): {m: mean_over_cases(found) for m, found in one.items()} for n, one in segmented.items()
                },
                "interval": {
                    str(n): {m: bootstrap_interval(found) for m, found in one.items()} for n, one in segmented.items()
                },
                "foreground_mean": {metric: self.foreground_mean(metric) for metric in metrics},
            },
            "metric_per_case": [self._case_json(case, found) for case, found in zip(self.cases, by_case, strict=True)],
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def _case_json(self, case: Case, metrics: dict[Voxels, dict[str, float]]) -> dict[str, Any]:
        return {
            "case": case.name,
            "reference_file": str(case.files.ground_truth),
            "prediction_file": str(case.files.prediction),
            "probabilities_file": str(case.files.probabilities),
            "calibration": {
                v: {**figures, **self._sums(case, v), "classes": self._by_class(case.result.calibration[v])}
                for v, figures in metrics.items()
            },
            "segmentation": {str(name): values for name, values in case.result.segmentation.items()},
        }

    def _sums(self, case: Case, voxels: Voxels) -> dict[str, float]:
        """What the scores per foreground voxel are made of: they add up over cases."""
        if not self._has_scores(voxels):
            return {}
        tables = case.result.calibration[voxels]
        return {
            "NLL_sum": float(tables.nll.sum()),
            "Brier_sum": float(tables.brier.sum()),
            "foreground_voxels": tables.foreground_voxels,
        }

    def _class_values(self, voxels: Voxels) -> dict[str, dict[str, list[float]]]:
        """Class -> metric -> value of each case."""
        cases = [self._by_class(case.result.calibration[voxels]) for case in self.cases]
        classes = cases[0] if cases else {}
        return {name: {m: [case[name][m] for case in cases] for m in CLASS_METRICS} for name in classes}

    def _by_class(self, tables: CalibrationTables) -> dict[str, dict[str, float]]:
        found = tables.class_metrics()
        names = self.names if len(found) == len(self.names) else [0, *self.names]
        return {str(name): values for name, values in zip(names, found, strict=True)}

    def rows(self) -> list[tuple[str, str, str, str, float]]:
        """The figures of the cases in long form: case, voxels, class, metric, value.

        ``voxels`` is empty for segmentation metrics, ``class`` for figures that belong to no single one.
        """
        rows: list[tuple[str, str, str, str, float]] = []
        for case in self.cases:
            for voxels, tables in case.result.calibration.items():
                figures = tables.metrics() | self._sums(case, voxels)
                rows += [(case.name, voxels, "", metric, value) for metric, value in figures.items()]
                for label, values in self._by_class(tables).items():
                    rows += [(case.name, voxels, label, metric, value) for metric, value in values.items()]
            for name, values in case.result.segmentation.items():
                rows += [(case.name, "", str(name), metric, value) for metric, value in values.items()]
        return rows

    def write(self, summary: str | Path) -> None:
        """Write the summary, and beside it the cases in long form and the bin tables, each whole or not at all."""
        summary = check_output(summary)
        save_cases(
            bins_file(summary),
            self.cases,
            {"settings": self.settings, "versions": self.versions, "skipped": [asdict(one) for one in self.skipped]},
        )
        with whole_file(cases_file(summary)) as partial, partial.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("case", "voxels", "class", "metric", "value"))
            writer.writerows(self.rows())
        with whole_file(summary) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, summary: str | Path) -> "FolderResult":
        """Read a result from the bin tables beside its summary."""
        cases, header = load_cases(bins_file(Path(summary)))
        skipped = [Skipped(**entry) for entry in header["skipped"]]
        return cls(cases, skipped, header["settings"], header["versions"], Path(summary))


def check_output(summary: str | Path) -> Path:
    """Return the path of a summary that may be written.

    Raises:
        IsADirectoryError: it is a folder.
        ValueError: it is nnU-Net's own summary.
    """
    summary = Path(summary)
    if summary.name == "summary.json":
        raise ValueError(f"{summary}: summary.json is nnU-Net's own file; choose another name.")
    if summary.is_dir():
        raise IsADirectoryError(f"{summary} is a folder; expected the summary's path.")
    return summary


def bins_file(summary: Path) -> Path:
    """The file of bin tables beside a summary: ``calibration_bins.zip`` for ``calibration_summary.json``."""
    return _beside(summary, "bins.zip")


def cases_file(summary: Path) -> Path:
    """The table of cases beside a summary: ``calibration_cases.csv`` for ``calibration_summary.json``."""
    return _beside(summary, "cases.csv")


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


def _with_classes(
    function: Callable[[Sequence[float]], Any],
    values: dict[str, list[float]],
    by_class: dict[str, dict[str, list[float]]],
) -> dict[str, Any]:
    """``function`` of the cases' values, for each metric and, under ``classes``, for each class and metric."""
    classes = {name: {m: function(found) for m, found in one.items()} for name, one in by_class.items()}
    return {**{m: function(found) for m, found in values.items()}, "classes": classes}
