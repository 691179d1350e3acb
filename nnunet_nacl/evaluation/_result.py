"""The result of a folder: means over cases, pooled metrics, and the files that hold them; results put together."""

import glob
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped
from nnunet_nacl.evaluation._settings import Origin, Settings, Voxels
from nnunet_nacl.evaluation._tables import CLASS_METRICS, METRICS, SCORES, CalibrationTables
from nnunet_nacl.evaluation._text import format_html, format_line
from nnunet_nacl.files import file_state, whole_file, write_csv
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
from nnunet_nacl.nnunet import CaseFiles, LabelMeaning, Region

if TYPE_CHECKING:
    import pandas

SUMMARY_NAME = "calibration_summary.json"
_COLUMNS = ("case", "voxels", "class", "metric", "value")
_TABLES = ("top", "classwise", "fine", "expected_top", "expected_classwise")
_ARRAYS = ("nll", "brier", "num_classes", "image_voxels")
_PARTS = tuple(part.name for part in fields(BinCounts))


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
        return format_html({str(self.file.parent.name) if self.file else "result": self})

    def to_dataframe(self) -> "pandas.DataFrame":
        """The values of :meth:`rows`, in columns of these names."""
        import pandas

        return pandas.DataFrame(self.rows(), columns=_COLUMNS)

    @property
    def settings(self) -> Settings:
        return self.origin.settings

    @property
    def labels(self) -> LabelMeaning:
        return self.origin.labels

    @property
    def versions(self) -> dict[str, str]:
        return self.origin.versions

    @property
    def voxels(self) -> list[Voxels]:
        return list(self.settings.voxels)

    @property
    def names(self) -> list[int | Region]:
        """Foreground labels, or regions."""
        return list(self.cases[0].result.segmentation) if self.cases else []

    def stale_cases(self) -> list[str]:
        """Cases of which a file was replaced or changed since; files that are gone are not."""
        return [case.name for case in self.cases if any(map(_is_stale, case.states.values()))]

    def tables(self, voxels: Voxels) -> list[CalibrationTables]:
        """Those of each case."""
        return [case.result.calibration[voxels] for case in self.cases]

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration metric of each case; NaN where its voxel set is empty or the metric was not computed."""
        return [tables.metrics().get(metric, float("nan")) for tables in self.tables(voxels)]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's mean)."""
        return mean_over_cases(self.values(voxels, metric))

    def pooled_tables(self, voxels: Voxels) -> CalibrationTables | None:
        """The tables of all cases added up, in the order of their names; None without cases."""
        if voxels not in self._pooled:
            self._pooled[voxels] = reduce(add, self.tables(voxels)) if self.cases else None
        return self._pooled[voxels]

    @cached_property
    def _pooled(self) -> dict[Voxels, CalibrationTables | None]:
        return {}

    def pooled(self, voxels: Voxels) -> dict[str, float]:
        """Metrics of all cases' voxels together; over the image, the scores per foreground voxel too."""
        tables = self.pooled_tables(voxels)
        if tables is None:
            return {}
        return tables.metrics() | (tables.per_foreground() if self._has_scores(voxels) else {})

    def pooled_interval(self, voxels: Voxels) -> dict[str, Interval]:
        """95 % percentile bootstrap intervals over the cases of some pooled metrics; NaN for fewer than two cases."""
        if not self.cases:
            return {}
        tables = self.tables(voxels)
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
                values[name] = ratio(weights @ np.array([getattr(one, field).sum() for one in tables]), foreground)
        return {name: percentile_interval(resampled, num_cases=len(tables)) for name, resampled in values.items()}

    def _has_scores(self, voxels: Voxels) -> bool:
        """With the authors' protocol tables lack the voxels with p = 0, and so may the count of foreground voxels."""
        return voxels == "image" and self.settings.counts_all_voxels

    def segmentation(self, name: int | Region, metric: str) -> list[float]:
        """A segmentation metric of a label or region for each case."""
        return [case.result.segmentation[name][metric] for case in self.cases]

    def foreground_mean(self, metric: str = "Dice") -> float:
        """Mean over labels or regions of their means: nnU-Net's ``foreground_mean`` but for absent ones."""
        return mean_over_cases([mean_over_cases(self.segmentation(name, metric)) for name in self.names])

    def to_json(self) -> dict[str, Any]:
        """The content of ``calibration_summary.json``."""
        metrics = list(self.cases[0].result.segmentation[self.names[0]]) if self.names else []
        segmented = {str(name): {metric: self.segmentation(name, metric) for metric in metrics} for name in self.names}
        values = {v: self._values(v) for v in self.voxels}
        pooled = {v: self.pooled_tables(v) for v in self.voxels}
        return {
            "settings": {**self.origin.settings_json(), "nll_clip": NLL_CLIP},
            "versions": self.versions,
            "num_cases": {
                "evaluated": len(self.cases),
                **{v: sum(not tables.is_empty for tables in self.tables(v)) for v in self.voxels},
            },
            "mean": {v: _each(mean_over_cases, values[v]) for v in self.voxels},
            "interval": {v: _each(bootstrap_interval, values[v]) for v in self.voxels},
            "pooled": {
                v: {**self.pooled(v), "classes": self._by_class(tables)}
                for v, tables in pooled.items()
                if tables is not None
            },
            "pooled_interval": {v: self.pooled_interval(v) for v in self.voxels},
            "segmentation": {
                "mean": _each(mean_over_cases, segmented),
                "interval": _each(bootstrap_interval, segmented),
                "foreground_mean": {metric: self.foreground_mean(metric) for metric in metrics},
            },
            "metric_per_case": [self._case_json(case) for case in self.cases],
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def _values(self, voxels: Voxels) -> dict[str, Any]:
        """Metric -> values of the cases; under ``classes``, class -> metric -> values."""
        all_cases = [tables.metrics() for tables in self.tables(voxels)]
        of_classes = [self._by_class(tables) for tables in self.tables(voxels)]
        known = [metric for metric in METRICS if all(metric in one for one in all_cases)]
        names = of_classes[0] if of_classes else {}
        classes = {name: {m: [case[name][m] for case in of_classes] for m in CLASS_METRICS} for name in names}
        return {**{metric: [one[metric] for one in all_cases] for metric in known}, "classes": classes}

    def _case_json(self, case: Case) -> dict[str, Any]:
        return {
            "case": case.name,
            "reference_file": str(case.files.ground_truth),
            "prediction_file": str(case.files.prediction),
            "probabilities_file": str(case.files.probabilities),
            "calibration": {
                v: {**tables.metrics(), **self._sums(tables, v), "classes": self._by_class(tables)}
                for v, tables in case.result.calibration.items()
            },
            "segmentation": {str(name): values for name, values in case.result.segmentation.items()},
        }

    def _sums(self, tables: CalibrationTables, voxels: Voxels) -> dict[str, float]:
        """What the scores per foreground voxel are made of: they add up over cases."""
        if not self._has_scores(voxels):
            return {}
        sums = {"NLL_sum": float(tables.nll.sum()), "Brier_sum": float(tables.brier.sum())}
        return {**sums, "foreground_voxels": tables.foreground_voxels}

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
                metrics = tables.metrics() | self._sums(tables, voxels)
                rows += [(case.name, voxels, "", metric, value) for metric, value in metrics.items()]
                for label, values in self._by_class(tables).items():
                    rows += [(case.name, voxels, label, metric, value) for metric, value in values.items()]
            for name, values in case.result.segmentation.items():
                rows += [(case.name, "", str(name), metric, value) for metric, value in values.items()]
        return rows

    def write(self, summary: str | Path) -> None:
        """Write the summary, and beside it the cases in long form and the bin tables; all replace what is there.

        Raises:
            OSError: a file cannot be written.
        """
        summary = Path(summary)
        # The old files are replaced once all new ones are written.
        with (
            whole_file(summary) as to_summary,
            whole_file(_beside(summary, "cases.csv")) as to_cases,
            whole_file(bins_file(summary)) as to_bins,
        ):
            self.save(to_bins)
            with to_cases.open("w", newline="") as stream:
                write_csv(stream, [_COLUMNS, *self.rows()])
            to_summary.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def save(self, file: Path) -> None:
        """Write all from which every number can be computed again, as NumPy's ``.npz``, cases as first axis.

        ``VOXELS_TABLE_PART`` and ``VOXELS_NAME`` are of :class:`CalibrationTables`; ``header`` is a JSON text.
        """
        results = [case.result for case in self.cases]
        metrics = list(results[0].segmentation[self.names[0]]) if self.names else []
        header = {
            "origin": asdict(self.origin),
            "files": [asdict(case.files) for case in self.cases],
            "states": [case.states for case in self.cases],
            "skipped": [asdict(entry) for entry in self.skipped],
            "metrics": metrics,
        }
        text = json.dumps(header, default=str, ensure_ascii=False).encode(errors="replace").decode()
        arrays: dict[str, Any] = {
            "header": np.array(text),
            "segmentation": [[list(one.values()) for one in result.segmentation.values()] for result in results],
        }
        for voxels in self.voxels if self.cases else ():
            tables = self.tables(voxels)
            for name in _TABLES:
                if getattr(tables[0], name) is not None:
                    stacked = BinCounts.stack([getattr(one, name) for one in tables])
                    arrays |= {f"{voxels}_{name}_{part}": getattr(stacked, part) for part in _PARTS}
            arrays |= {f"{voxels}_{name}": [getattr(one, name) for one in tables] for name in _ARRAYS}
        with file.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    @classmethod
    def load(cls, file: Path, summary: Path | None = None) -> "FolderResult":
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or something else.
        """
        from pydantic import TypeAdapter

        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                arrays = dict(archive)
            header = TypeAdapter(_Header).validate_json(str(arrays["header"]))
            cases = [_case(number, header, arrays) for number in range(len(header.files))]
        except FileNotFoundError:
            raise FileNotFoundError(f"{file} does not exist.") from None
        except Exception as error:  # a damaged one makes zipfile and NumPy raise nearly anything
            raise ValueError(f"{file} cannot be read as bin tables: {error}") from error
        return cls(cases, header.skipped, header.origin, summary)

    @classmethod
    def read(cls, summary: str | Path) -> "FolderResult":
        """Read a result from the bin tables beside its summary; errors as of :meth:`load`."""
        return cls.load(bins_file(Path(summary)), Path(summary))


@dataclass(frozen=True)
class _Header:
    origin: Origin
    files: list[CaseFiles]
    states: list[dict[str, list[str | int] | None]]
    skipped: list[Skipped]
    metrics: list[str]


def _case(number: int, header: _Header, arrays: dict[str, NDArray[Any]]) -> Case:
    def table(name: str) -> BinCounts:
        return BinCounts(*(arrays[f"{name}_{part}"][number] for part in _PARTS))

    labels = header.origin.labels
    calibration = {
        voxels: CalibrationTables(
            **cast("Any", {n: table(f"{voxels}_{n}") for n in _TABLES if f"{voxels}_{n}_count" in arrays}),
            nll=arrays[f"{voxels}_nll"][number],
            brier=arrays[f"{voxels}_brier"][number],
            num_classes=int(arrays[f"{voxels}_num_classes"][number]),
            has_background=labels.has_background,
            image_voxels=arrays[f"{voxels}_image_voxels"][number],
        )
        for voxels in header.origin.settings.voxels
    }
    segmentation = {
        structure: dict(zip(header.metrics, values, strict=True))
        for structure, values in zip(labels.structures, arrays["segmentation"][number].tolist(), strict=True)
    }
    return Case(header.files[number], CaseResult(calibration, segmentation), header.states[number])


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
    if numbered and sorted(numbered) != [(number, numbered[0][1]) for number in range(numbered[0][1])]:
        have = ", ".join(f"{number} of {count}" for number, count in numbered)
        raise ValueError(f"expected all of the {numbered[0][1]} parts, numbered from 0; got {have}.")
    if numbered and len(numbered) < len(parts):
        raise ValueError("expected parts of one folder, and nothing else; got a whole folder, too.")


def bins_file(summary: Path) -> Path:
    """The file of bin tables beside a summary: ``calibration_bins.zip`` for ``calibration_summary.json``.

    An ``.npz`` in all but name: nnU-Net's ensembling takes every ``.npz`` in a folder of predictions for a case.
    """
    return _beside(summary, "bins.zip")


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


def _is_stale(state: list[str | int] | None) -> bool:
    """Whether a file (path, size, time of change) is there and another one now."""
    now = None if state is None else file_state(Path(str(state[0])))
    return now is not None and now != state


def _named(summary: Path, name: str) -> Path:
    """``x_NAME_summary.json`` for ``x_summary.json``, ``x_NAME.json`` for ``x.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


def _each(function: Callable[[Sequence[float]], Any], values: dict[str, Any]) -> dict[str, Any]:
    """``function`` of each list, however deep the dictionary."""
    return {name: _each(function, one) if isinstance(one, dict) else function(one) for name, one in values.items()}
