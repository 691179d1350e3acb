"""The result of a folder: means over cases, pooled metrics, and the files that hold them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped
from nnunet_nacl.evaluation._settings import Origin, Settings, Voxels
from nnunet_nacl.evaluation._tables import SCORES, CalibrationTables
from nnunet_nacl.evaluation._text import format_table
from nnunet_nacl.files import whole_file, write_csv
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
    from pydantic import TypeAdapter

SUMMARY_NAME = "calibration_summary.json"
_COLUMNS = ("case", "voxels", "class", "metric", "value")


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
        return f"{len(self.cases)} cases\n{format_table({'' if self.file is None else self.file.parent.name: self})}"

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
        return self.labels.structures if self.cases else []

    @property
    def _segmentation_metrics(self) -> list[str]:
        return list(self.cases[0].result.segmentation[self.names[0]]) if self.names else []

    def tables(self, voxels: Voxels) -> list[CalibrationTables]:
        """Those of each case."""
        return [case.result.calibration[voxels] for case in self.cases]

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration metric of each case; NaN where its voxel set is empty or the metric was not computed."""
        return [tables.metrics().get(metric, np.nan) for tables in self.tables(voxels)]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's mean)."""
        return mean_over_cases(self.values(voxels, metric))

    def segmentation(self, name: int | Region, metric: str) -> list[float]:
        """A segmentation metric of a label or region for each case."""
        return [case.result.segmentation[name][metric] for case in self.cases]

    def foreground_mean(self, metric: str = "Dice") -> float:
        """Mean over labels or regions of their means: nnU-Net's ``foreground_mean`` but for absent ones."""
        return mean_over_cases([mean_over_cases(self.segmentation(name, metric)) for name in self.names])

    @cached_property
    def _pooled(self) -> dict[Voxels, CalibrationTables]:
        return {voxels: reduce(add, self.tables(voxels)) for voxels in self.voxels} if self.cases else {}

    def pooled_tables(self, voxels: Voxels) -> CalibrationTables | None:
        """The tables of all cases added up, in the order of their names; None without cases."""
        return self._pooled.get(voxels)

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
            sums = np.array([list(one.score_sums().values()) for one in tables])
            nll, brier, foreground = np.moveaxis(weights @ sums, -1, 0)
            values |= {name: ratio(score, foreground) for name, score in zip(SCORES, (nll, brier), strict=True)}
        return {name: percentile_interval(resampled, num_cases=len(tables)) for name, resampled in values.items()}

    def _has_scores(self, voxels: Voxels) -> bool:
        """With the authors' protocol tables lack the voxels with p = 0, and so may the count of foreground voxels."""
        return voxels == "image" and self.settings.counts_all_voxels

    def _by_class(self, tables: CalibrationTables) -> dict[str, dict[str, float]]:
        names = [0, *self.names] if self.labels.has_background else self.names
        return dict(zip(map(str, names), tables.class_metrics(), strict=True))

    def _calibration(self, case: Case) -> dict[Voxels, dict[str, Any]]:
        """Voxel set -> metric -> value, and -> ``classes`` -> class -> metric -> value."""
        found = case.result.calibration.items()
        return {voxels: {**tables.metrics(), "classes": self._by_class(tables)} for voxels, tables in found}

    def to_json(self) -> dict[str, Any]:
        """The content of ``calibration_summary.json``."""
        calibration = [self._calibration(case) for case in self.cases]
        segmentation = [{str(k): v for k, v in case.result.segmentation.items()} for case in self.cases]
        cases = [
            {
                "case": case.name,
                "reference_file": str(case.files.ground_truth),
                "prediction_file": str(case.files.prediction),
                "probabilities_file": str(case.files.probabilities),
                "calibration": {v: {**figures, **self._score_sums(case, v)} for v, figures in of_case.items()},
                "segmentation": segmented,
            }
            for case, of_case, segmented in zip(self.cases, calibration, segmentation, strict=True)
        ]
        return {
            "settings": {**self.origin.settings_json(), "nll_clip": NLL_CLIP},
            "versions": self.versions,
            "num_cases": {
                "evaluated": len(self.cases),
                **{v: sum(not tables.is_empty for tables in self.tables(v)) for v in self.voxels},
            },
            "mean": _over_cases(mean_over_cases, calibration),
            "interval": _over_cases(bootstrap_interval, calibration),
            "pooled": {v: {**self.pooled(v), "classes": self._by_class(one)} for v, one in self._pooled.items()},
            "pooled_interval": {v: self.pooled_interval(v) for v in self.voxels},
            "segmentation": {
                "mean": _over_cases(mean_over_cases, segmentation),
                "interval": _over_cases(bootstrap_interval, segmentation),
                "foreground_mean": {metric: self.foreground_mean(metric) for metric in self._segmentation_metrics},
            },
            "metric_per_case": cases,
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def _score_sums(self, case: Case, voxels: Voxels) -> dict[str, float]:
        return case.result.calibration[voxels].score_sums() if self._has_scores(voxels) else {}

    def to_dataframe(self) -> "pandas.DataFrame":
        """The metrics of the cases in long form: the columns case, voxels, class, metric, value.

        ``voxels`` is empty for segmentation metrics, ``class`` for metrics that belong to no single one.
        """
        import pandas

        return pandas.DataFrame(self._rows(), columns=_COLUMNS)

    def _rows(self) -> list[tuple[str, str, str, str, float]]:
        rows = []
        for case in self.cases:
            for voxels, figures in self._calibration(case).items():
                by_class = {"": {**figures, **self._score_sums(case, voxels)}, **figures["classes"]}
                del by_class[""]["classes"]
                rows += [(case.name, voxels, label, *item) for label, of in by_class.items() for item in of.items()]
            segmented = case.result.segmentation.items()
            rows += [(case.name, "", str(name), *item) for name, of in segmented for item in of.items()]
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
                write_csv(stream, [_COLUMNS, *self._rows()])
            to_summary.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def save(self, file: Path, *, compressed: bool = True) -> None:
        """Write all from which every number can be computed again, as NumPy's ``.npz``, cases as first axis.

        ``VOXELS_TABLE_PART`` and ``VOXELS_NAME`` are of :class:`CalibrationTables`; ``header`` is a JSON text.
        """
        results = [case.result for case in self.cases]
        header = {
            "origin": asdict(self.origin),
            "files": [asdict(case.files) for case in self.cases],
            "states": [case.states for case in self.cases],
            "skipped": [asdict(entry) for entry in self.skipped],
            "metrics": self._segmentation_metrics,
        }
        text = json.dumps(header, default=str, ensure_ascii=False).encode(errors="replace").decode()
        arrays: dict[str, Any] = {
            "header": np.array(text),
            "segmentation": [[list(one.values()) for one in result.segmentation.values()] for result in results],
        }
        for voxels in self.voxels if self.cases else ():
            tables = [one.arrays() for one in self.tables(voxels)]
            arrays |= {f"{voxels}_{name}": [one[name] for one in tables] for name in tables[0]}
        with file.open("wb") as stream:
            (np.savez_compressed if compressed else np.savez)(stream, **arrays)

    @classmethod
    def load(cls, file: Path, summary: Path | None = None) -> "FolderResult":
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or something else.
        """
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                arrays = dict(archive)
            header = _header_reader().validate_json(str(arrays["header"]))
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


@cache
def _header_reader() -> "TypeAdapter[_Header]":
    from pydantic import TypeAdapter

    return TypeAdapter(_Header)


def _case(number: int, header: _Header, arrays: dict[str, NDArray[Any]]) -> Case:
    calibration = {}
    for voxels in header.origin.settings.voxels:
        of_set = {name: values[number] for name, values in arrays.items() if name.startswith(f"{voxels}_")}
        parts = {name.removeprefix(f"{voxels}_"): np.asarray(value) for name, value in of_set.items()}
        calibration[voxels] = CalibrationTables.of_arrays(parts)
    segmentation = {
        structure: dict(zip(header.metrics, values, strict=True))
        for structure, values in zip(
            header.origin.labels.structures, arrays["segmentation"][number].tolist(), strict=True
        )
    }
    return Case(header.files[number], CaseResult(calibration, segmentation), header.states[number])


def bins_file(summary: Path) -> Path:
    """The file of bin tables beside a summary: ``calibration_bins.zip`` for ``calibration_summary.json``.

    An ``.npz`` in all but name: nnU-Net's ensembling takes every ``.npz`` in a folder of predictions for a case.
    """
    return _beside(summary, "bins.zip")


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


def _over_cases(function: Callable[[Sequence[float]], Any], cases: Sequence[Any]) -> dict[str, Any]:
    """``function`` of the values of all cases, for each value of a nested dictionary."""
    return {
        key: _over_cases(function, [case[key] for case in cases])
        if isinstance(value, dict)
        else function([case[key] for case in cases])
        for key, value in (cases[0] if cases else {}).items()
    }
