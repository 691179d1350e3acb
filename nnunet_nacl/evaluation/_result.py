"""The result of a folder: means over cases, pooled metrics, and the files that hold them; results put together."""

import glob
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnunet_nacl.evaluation._case import Case, Skipped
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._storage import load_cases, save_cases
from nnunet_nacl.evaluation._tables import CLASS_METRICS, METRICS, SCORES, CalibrationTables
from nnunet_nacl.evaluation._text import format_html, format_line
from nnunet_nacl.files import Kind, check_file, is_there, whole_file, write_csv
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
from nnunet_nacl.nnunet import LabelMeaning, Region

if TYPE_CHECKING:
    import pandas

_COLUMNS = ("case", "voxels", "class", "metric", "value")
SUMMARY_NAME = "calibration_summary.json"
_SUMMARY = Kind("a summary", re.compile(rb'\A\{\s*"settings":\s*\{\s*"gt_folder"'))
_CASES = Kind("a table of cases", re.compile(rb"\Acase,voxels,class,metric,value\r?\n"))
_BINS = Kind("a file of bin tables", re.compile(rb"\APK\x03\x04.{26}header\.npy", re.DOTALL))


@dataclass(frozen=True, repr=False)
class FolderResult:
    """What :func:`evaluate` returns.

    Attributes:
        cases: the evaluated cases, in the order of their names.
        skipped: those that could not be evaluated.
        origin: what it was computed from, and how.
        file: the summary that it was written to or read from, if it was.
    """

    cases: list[Case]
    skipped: list[Skipped]
    origin: Origin
    file: Path | None = None

    def __repr__(self) -> str:
        return f"<FolderResult: {format_line(self)}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return format_html({str(self.file.parent.name) if self.file else "result": self})

    def to_dataframe(self) -> "pandas.DataFrame":
        """The values of :meth:`rows`, in columns of these names; pandas comes with nnU-Net."""
        import pandas

        return pandas.DataFrame(self.rows(), columns=_COLUMNS)

    @property
    def settings(self) -> Settings:
        """Of the evaluation."""
        return self.origin.settings

    @property
    def labels(self) -> LabelMeaning:
        """What the labels and channels stand for."""
        return self.origin.labels

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version that took part."""
        return self.origin.versions

    @property
    def voxels(self) -> list[Voxels]:
        """The voxel sets."""
        return list(self.settings.voxels)

    @property
    def names(self) -> list[int | Region]:
        """Foreground labels, or regions."""
        return list(self.cases[0].result.segmentation) if self.cases else []

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration metric of each case; NaN where its voxel set is empty or the metric was not computed."""
        return [case.result.calibration[voxels].metrics().get(metric, float("nan")) for case in self.cases]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's mean)."""
        return mean_over_cases(self.values(voxels, metric))

    def pooled_tables(self, voxels: Voxels) -> CalibrationTables | None:
        """The tables of all cases added up, in the order of their names; None without cases."""
        tables = [case.result.calibration[voxels] for case in self.cases]
        return reduce(add, tables) if tables else None

    def pooled(self, voxels: Voxels) -> dict[str, float]:
        """Metrics of all cases' voxels together; over the image, the scores per foreground voxel too."""
        tables = self.pooled_tables(voxels)
        if tables is None:
            return {}
        return tables.metrics() | (tables.per_foreground() if self._has_scores(voxels) else {})

    def pooled_interval(self, voxels: Voxels) -> dict[str, Interval]:
        """95 % percentile bootstrap intervals of pooled metrics over the cases; NaN for fewer than two cases.

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
        """With the paper's protocol tables lack the voxels with p = 0, and so may the count of foreground voxels."""
        return voxels == "image" and self.settings.counts_all_voxels

    def segmentation(self, name: int | Region, metric: str) -> list[float]:
        """A segmentation metric of a label or region for each case."""
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
            "settings": {**self.origin.settings_json(), "nll_clip": NLL_CLIP},
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
                    str(n): {m: mean_over_cases(values) for m, values in one.items()} for n, one in segmented.items()
                },
                "interval": {
                    str(n): {m: bootstrap_interval(values) for m, values in one.items()} for n, one in segmented.items()
                },
                "foreground_mean": {metric: self.foreground_mean(metric) for metric in metrics},
            },
            "metric_per_case": [self._case_json(case, row) for case, row in zip(self.cases, by_case, strict=True)],
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def _case_json(self, case: Case, metrics: dict[Voxels, dict[str, float]]) -> dict[str, Any]:
        return {
            "case": case.name,
            "reference_file": str(case.files.ground_truth),
            "prediction_file": str(case.files.prediction),
            "probabilities_file": str(case.files.probabilities),
            "calibration": {
                v: {**row, **self._sums(case, v), "classes": self._by_class(case.result.calibration[v])}
                for v, row in metrics.items()
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
        names = [0, *self.names] if self.labels.has_background else self.names
        return {str(name): values for name, values in zip(names, tables.class_metrics(), strict=True)}

    def rows(self) -> list[tuple[str, str, str, str, float]]:
        """The metrics of the cases in long form: case, voxels, class, metric, value.

        ``voxels`` is empty for segmentation metrics, ``class`` for metrics that belong to no single one.
        """
        rows: list[tuple[str, str, str, str, float]] = []
        for case in self.cases:
            for voxels, tables in case.result.calibration.items():
                metrics = tables.metrics() | self._sums(case, voxels)
                rows += [(case.name, voxels, "", metric, value) for metric, value in metrics.items()]
                for label, values in self._by_class(tables).items():
                    rows += [(case.name, voxels, label, metric, value) for metric, value in values.items()]
            for name, values in case.result.segmentation.items():
                rows += [(case.name, "", str(name), metric, value) for metric, value in values.items()]
        return rows

    def write(self, summary: str | Path, *, overwrite: bool = False) -> None:
        """Write the summary, and beside it the cases in long form and the bin tables, each whole or not at all.

        Args:
            summary: its path.
            overwrite: replace files there that are no such ones, too.

        Raises:
            OSError: a file cannot be written, or is there and none of ours.
            ValueError: it is nnU-Net's own summary.
        """
        summary = check_output(summary, overwrite=overwrite)
        # The old files are replaced once all new ones are written.
        with (
            whole_file(summary) as to_summary,
            whole_file(cases_file(summary)) as to_cases,
            whole_file(bins_file(summary)) as to_bins,
        ):
            save_cases(to_bins, self.cases, self.origin, self.skipped)
            with to_cases.open("w", newline="") as stream:
                write_csv(stream, [_COLUMNS, *self.rows()])
            to_summary.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, summary: str | Path) -> "FolderResult":
        """Read a result from the bin tables beside its summary."""
        summary = Path(summary)
        cases, origin, skipped = load_cases(bins_file(summary))
        return cls(cases, skipped, origin, summary)


def merge_results(results: Sequence[FolderResult]) -> FolderResult:
    """Put parts, or folders of one data set, together; the same numbers as if evaluated at once.

    A case that one of them lacks a prediction for and another has evaluated is not skipped. Results of different
    versions are put together, too, and all versions recorded.

    Raises:
        ValueError: nothing to merge, different settings or labels, tables that were counted in different ways, missing
            parts, or a case that is in two.
    """
    if not results:
        raise ValueError("nothing to merge.")
    origins = [result.origin for result in results]
    for origin in origins[1:]:
        difference = origins[0].difference(origin)
        if difference is not None:
            raise ValueError(f"parts differ in {difference}.")
    _check_parts([origin.part for origin in origins])
    cases = sorted((case for result in results for case in result.cases), key=lambda case: case.name)
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(f"the case {case.name} is in two parts.")
    evaluated = {case.name for case in cases}
    skipped = {
        (entry.case, entry.reason): entry
        for result in results
        for entry in result.skipped
        if not (entry.missing and entry.case in evaluated)
    }
    return FolderResult(cases, [skipped[key] for key in sorted(skipped)], Origin.merged(origins))


def _check_parts(parts: list[tuple[int, int] | None]) -> None:
    """Raise a ValueError unless parts of a folder are all there."""
    numbered = [part for part in parts if part is not None]
    if not numbered:
        return
    count = numbered[0][1]
    missing = sorted(set(range(count)) - {number for number, _ in numbered})
    if missing or len(numbered) < len(parts) or any(total != count for _, total in numbered):
        have = ", ".join("a whole folder" if part is None else f"{part[0]} of {part[1]}" for part in parts)
        raise ValueError(f"expected all of the {count} parts, numbered from 0, and nothing else; got {have}.")


def check_output(summary: str | Path, *, overwrite: bool = False) -> Path:
    """Return the path of a summary that may be written, as may the files beside it.

    Raises:
        OSError: as for :func:`nnunet_nacl.files.check_file`. Beside a summary of ours, a file may be damaged.
        ValueError: it is nnU-Net's own summary.
    """
    summary = Path(summary)
    if summary.name == "summary.json":
        raise ValueError(f"{summary}: summary.json is nnU-Net's own file; choose another name.")
    is_ours = is_there(check_file(summary, _SUMMARY, overwrite=overwrite))
    for file, kind in ((cases_file(summary), _CASES), (bins_file(summary), _BINS)):
        check_file(file, kind, overwrite=overwrite or is_ours)
    return summary


def bins_file(summary: Path) -> Path:
    """The file of bin tables beside a summary: ``calibration_bins.zip`` for ``calibration_summary.json``."""
    return _beside(summary, "bins.zip")


def cases_file(summary: Path) -> Path:
    """The table of cases beside a summary: ``calibration_cases.csv`` for ``calibration_summary.json``."""
    return _beside(summary, "cases.csv")


def part_file(summary: Path, part_id: int, num_parts: int) -> Path:
    """The summary of a part: ``calibration_part0of4_summary.json`` for ``calibration_summary.json``."""
    return _named(summary, f"part{part_id}of{num_parts}")


def read_summary_or_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if there is none of that name, those of the parts that were asked for by that name.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: a file is damaged, or something else.
    """
    summary = Path(summary)
    pattern = _named(Path(glob.escape(summary.name)), "part*of*").name
    parts = [] if bins_file(summary).is_file() else sorted(summary.parent.glob(pattern))
    return [FolderResult.read(file) for file in parts or [summary]]


def _named(summary: Path, name: str) -> Path:
    """``x_NAME_summary.json`` for ``x_summary.json``, ``x_NAME.json`` for ``x.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}{summary.stem.removeprefix(prefix)}{summary.suffix}")


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
    classes = {name: {m: function(column) for m, column in one.items()} for name, one in by_class.items()}
    return {**{m: function(column) for m, column in values.items()}, "classes": classes}
