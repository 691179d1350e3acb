"""The result of a folder: means over cases, pooled metrics, and the files that hold them."""

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.cases import Skipped
from nnunet_nacl.evaluation._case import Case
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.files import file_state, whole_file, write_csv
from nnunet_nacl.metrics import (
    NLL_CLIP,
    SCORES,
    VOXEL_SETS,
    BinCounts,
    CalibrationTables,
    CaseResult,
    Interval,
    LabelMeaning,
    Settings,
    Structure,
    Voxels,
    expected_calibration_error,
    mean_of_known,
    percentile_interval,
    ratio,
    resample_weights,
)
from nnunet_nacl.nnunet import CaseFiles

if TYPE_CHECKING:
    import pandas
    from pydantic import TypeAdapter

States = dict[str, list[str | int] | None]

SUMMARY_NAME = "calibration_summary.json"
BINS = "bins.zip"  # an .npz in all but name: nnU-Net's ensembling takes every .npz in a folder for a case
_POOLED: dict[str, tuple[Voxels, str]] = {
    "NLL per foreground voxel": ("image", "NLL_per_foreground"),
    "ECE near": ("near", "ECE"),
    "confidence − accuracy": ("near", "over_confidence"),
}
_PAPER = [(metric, voxels) for metric in ("ECE", "CECE") for voxels in VOXEL_SETS[:2]]


@dataclass(frozen=True, repr=False)
class FolderResult:
    """What :func:`evaluate` returns: evaluated cases, by name, and skipped ones, what they were computed from, and how.

    ``file`` is the summary that it was written to or read from, if it was.
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
    def voxels(self) -> list[Voxels]:
        return list(self.settings.voxels)

    @property
    def names(self) -> list[Structure]:
        """Foreground labels, or regions."""
        return self.labels.structures

    def stale_cases(self) -> list[str]:
        """Cases of which a file was replaced or changed since; files that are gone are not."""
        states = [(case.name, state) for case in self.cases for state in case.states.values() if state is not None]
        return sorted({name for name, state in states if file_state(Path(str(state[0]))) not in (None, state)})

    def tables(self, voxels: Voxels) -> list[CalibrationTables]:
        """Those of each case."""
        return [case.result.calibration[voxels] for case in self.cases]

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration metric of each case; NaN where its voxel set is empty or the metric was not computed."""
        return [tables.metrics().get(metric, np.nan) for tables in self.tables(voxels)]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's mean)."""
        return _mean(self.values(voxels, metric))

    def segmentation(self, name: Structure, metric: str) -> list[float]:
        """A segmentation metric of a label or region for each case."""
        return [case.result.segmentation[name][metric] for case in self.cases]

    def foreground_mean(self, metric: str = "Dice") -> float:
        """Mean over labels or regions of their means: nnU-Net's ``foreground_mean`` but for absent ones."""
        return _mean([_mean(self.segmentation(name, metric)) for name in self.names])

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

    @property
    def _segmentation_metrics(self) -> list[str]:
        return list(self.cases[0].result.segmentation[self.names[0]]) if self.cases and self.names else []

    def pooled_interval(self, voxels: Voxels) -> dict[str, Interval]:
        """95 % percentile bootstrap intervals over the cases of some pooled metrics; NaN for fewer than two cases."""
        if not self.cases:
            return {}
        tables = self.tables(voxels)
        weights = resample_weights(len(self.cases))
        stacked = (BinCounts.stack([getattr(table, name) for table in tables]) for name in ("top", "classwise"))
        top, classwise = (counts.resampled(weights) for counts in stacked)
        num_classes = max(table.num_classes for table in tables)
        values = {
            "ECE": mean_of_known(expected_calibration_error(top)),
            "CECE": mean_of_known(expected_calibration_error(classwise)[:, :num_classes]),
            "over_confidence": mean_of_known(ratio((top.confidence - top.hits).sum(-1), top.total)),
        }
        if self._has_scores(voxels):
            sums = np.array([list(table.score_sums().values()) for table in tables])
            nll, brier, foreground = np.moveaxis(weights @ sums, -1, 0)
            values |= {name: ratio(score, foreground) for name, score in zip(SCORES, (nll, brier), strict=True)}
        return {name: percentile_interval(resampled, num_cases=len(tables)) for name, resampled in values.items()}

    def _has_scores(self, voxels: Voxels) -> bool:
        """With the authors' protocol tables lack the voxels with p = 0, and so may the count of foreground voxels."""
        return voxels == "image" and self.settings.counts_all_voxels

    def _by_class(self, tables: CalibrationTables) -> dict[str, dict[str, float]]:
        names = ["0"] * self.labels.activation.first_structure + list(map(str, self.names))
        return dict(zip(names, tables.class_metrics(), strict=True))

    def _figures(self, case: Case) -> dict[str, dict[Any, Any]]:
        """``calibration``: voxel set -> metric -> value, and -> ``classes`` -> class -> metric; ``segmentation``."""
        calibration = {}
        for voxels, tables in case.result.calibration.items():
            sums = tables.score_sums() if self._has_scores(voxels) else {}
            calibration[voxels] = {**tables.metrics(), **sums, "classes": self._by_class(tables)}
        segmentation = {str(name): metrics for name, metrics in case.result.segmentation.items()}
        return {"calibration": calibration, "segmentation": segmentation}

    def to_json(self) -> dict[str, Any]:
        """The content of ``calibration_summary.json``."""
        cases = [self._figures(case) for case in self.cases]
        mean, interval = (_over_cases(function, cases) for function in (_mean, _interval))
        return {
            "settings": {**self.origin.settings_json(), "nll_clip": NLL_CLIP},
            "versions": self.origin.versions,
            "num_cases": {
                "evaluated": len(self.cases),
                **{v: int((~np.isnan(self.values(v, "ECE"))).sum()) for v in self.voxels},
            },
            "mean": mean.get("calibration", {}),
            "interval": interval.get("calibration", {}),
            "pooled": {v: {**self.pooled(v), "classes": self._by_class(of)} for v, of in self._pooled.items()},
            "pooled_interval": {v: self.pooled_interval(v) for v in self.voxels},
            "segmentation": {
                "mean": mean.get("segmentation", {}),
                "interval": interval.get("segmentation", {}),
                "foreground_mean": {name: self.foreground_mean(name) for name in self._segmentation_metrics},
            },
            "metric_per_case": [
                {
                    "case": case.name,
                    "reference_file": str(case.files.ground_truth),
                    "prediction_file": str(case.files.prediction),
                    "probabilities_file": str(case.files.probabilities),
                    **found,
                }
                for case, found in zip(self.cases, cases, strict=True)
            ],
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def to_dataframe(self) -> "pandas.DataFrame":
        """The metrics of the cases in long form: columns case, voxels, class, metric, value; empty where none is."""
        import pandas

        rows = []
        for case in self.cases:
            figures = self._figures(case)
            sets = {voxels: {"": of, **of.pop("classes")} for voxels, of in figures["calibration"].items()}
            for voxels, by_class in {**sets, "": figures["segmentation"]}.items():
                rows += [(case.name, voxels, label, *item) for label, of in by_class.items() for item in of.items()]
        return pandas.DataFrame(rows, columns=["case", "voxels", "class", "metric", "value"])

    def write(self, summary: str | Path) -> None:
        """Write the summary, and beside it the cases in long form and the bin tables; all replace what is there."""
        summary = Path(summary)
        # The old files are replaced once all new ones are written.
        with (
            whole_file(summary) as to_summary,
            whole_file(_beside(summary, "cases.csv")) as to_cases,
            whole_file(_beside(summary, BINS)) as to_bins,
        ):
            self.save(to_bins)
            with to_cases.open("w", newline="") as stream:
                rows = self.to_dataframe()
                write_csv(stream, [rows.columns, *rows.itertuples(index=False)])
            to_summary.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def save(self, file: Path) -> None:
        """Write all from which every number can be computed again, as NumPy's ``.npz``, cases as first axis."""
        files = [(asdict(case.files), case.states) for case in self.cases]
        header = asdict(self.origin), files, [asdict(entry) for entry in self.skipped], self._segmentation_metrics
        text = json.dumps(header, default=str, ensure_ascii=False).encode(errors="replace").decode()
        arrays: dict[str, Any] = {
            "header": np.array(text),
            "segmentation": [
                [list(values.values()) for values in case.result.segmentation.values()] for case in self.cases
            ],
        }
        for voxels in self.voxels if self.cases else ():
            tables = [table.arrays() for table in self.tables(voxels)]
            arrays |= {f"{voxels}_{name}": [arrays_of_case[name] for arrays_of_case in tables] for name in tables[0]}
        with file.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    @classmethod
    def load(cls, file: Path) -> "FolderResult":
        """Read what :meth:`save` wrote; a ValueError says that it is damaged, or something else."""
        try:
            with file.open("rb") as stream, np.lib.npyio.NpzFile(stream) as archive:
                arrays = dict(archive)
            origin, files, skipped, metrics = _header().validate_json(str(arrays["header"]))
            results = (_read_result(number, arrays, origin, metrics) for number in range(len(files)))
            cases = [Case(of, result, states) for (of, states), result in zip(files, results, strict=True)]
            return cls(cases, skipped, origin)
        except FileNotFoundError:
            raise FileNotFoundError(f"{file} does not exist.") from None
        except Exception as error:  # a damaged one makes zipfile and NumPy raise nearly anything
            raise ValueError(f"{file} cannot be read as bin tables: {error}") from error

    @classmethod
    def read(cls, summary: str | Path) -> "FolderResult":
        """Read a result from the bin tables beside its summary."""
        return replace(cls.load(_beside(Path(summary), BINS)), file=Path(summary))

    @classmethod
    def read_parts(cls, summary: str | Path) -> "list[FolderResult]":
        """The result of a summary; if there is none of that name, those of the parts that were asked for by that name.

        Raises a FileNotFoundError if there is neither, a ValueError if a file is damaged.
        """
        summary = Path(summary)
        pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
        parts = [] if _beside(summary, BINS).is_file() else sorted(summary.parent.glob(pattern))
        return [cls.read(file) for file in parts or [summary]]

    @staticmethod
    def merged(results: "Sequence[FolderResult]") -> "FolderResult":
        """Parts, or folders of one data set, put together; the same numbers as if evaluated at once.

        Raises a ValueError for different settings or labels, missing parts, or a case that is in two.
        """
        origins = [result.origin for result in results]
        for origin in origins:
            if difference := origins[0].difference(origin):
                raise ValueError(f"parts differ in {difference}.")
        parts = sorted(origin.part for origin in origins if origin.part is not None)
        if parts and parts != [(number, len(origins)) for number in range(len(origins))]:
            have = ", ".join(f"{number} of {count}" for number, count in parts)
            raise ValueError(f"expected all parts of one folder, numbered from 0, and nothing else; got {have}.")
        cases = sorted((case for result in results for case in result.cases), key=lambda case: case.name)
        for case, following in pairwise(cases):
            if case.name == following.name:
                raise ValueError(f"the case {case.name} is in two parts.")
        evaluated = {case.name for case in cases}
        skipped = {entry.case: entry for result in results for entry in result.skipped if entry.case not in evaluated}
        folders = tuple(dict.fromkeys(pair for origin in origins for pair in origin.folders))
        origin = replace(origins[0], folders=folders, part=None)
        return FolderResult(cases, [skipped[case] for case in sorted(skipped)], origin)


@cache
def _header() -> "TypeAdapter[tuple[Origin, list[tuple[CaseFiles, States]], list[Skipped], list[str]]]":
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Origin, list[tuple[CaseFiles, States]], list[Skipped], list[str]])


def _read_result(number: int, arrays: dict[str, NDArray[Any]], origin: Origin, metrics: list[str]) -> CaseResult:
    calibration = {}
    for voxels in origin.settings.voxels:
        of_set = {name.removeprefix(f"{voxels}_"): of for name, of in arrays.items() if name.startswith(f"{voxels}_")}
        of_case = {name: np.asarray(of[number]) for name, of in of_set.items()}
        calibration[voxels] = CalibrationTables.of_arrays(of_case, origin.labels.activation)
    values = [dict(zip(metrics, of, strict=True)) for of in arrays["segmentation"][number].tolist()]
    return CaseResult(calibration, dict(zip(origin.labels.structures, values, strict=True)))


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


def _mean(values: Sequence[float]) -> float:
    return float(mean_of_known(values))


def _interval(values: Sequence[float]) -> Interval:
    """95 % percentile bootstrap interval of the mean over cases.

    All cases are drawn, then those with NaN left out, so that it is the interval of comparisons between methods.
    """
    known = ~np.isnan(values)
    weights = resample_weights(len(values))
    resampled = ratio(weights @ np.nan_to_num(values), weights @ known)
    return percentile_interval(resampled, num_cases=int(known.sum()))


def _over_cases(function: Callable[[Sequence[float]], Any], cases: Sequence[Any]) -> dict[str, Any]:
    """``function`` of the values of all cases, for each value of a nested dictionary."""
    return {
        key: _over_cases(function, [case[key] for case in cases])
        if isinstance(value, dict)
        else function([case[key] for case in cases])
        for key, value in (cases[0] if cases else {}).items()
    }


def format_table(results: Mapping[str, FolderResult]) -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics; ``–`` is not known."""
    import pandas

    values = pandas.DataFrame({name: _table_row(result) for name, result in results.items()}).T
    shown = values.loc[:, values.notna().any() | (values.columns == "Dice")].rename_axis(columns="method")
    formats = dict.fromkeys(shown, "{:.3f}".format) | {
        "HD95": "{:.1f}".format,
        "confidence − accuracy": "{:+.3f}".format,
    }
    table = shown.to_string(formatters=formats, na_rep="–")
    return f"{table}\n{', '.join(_POOLED)}: all cases pooled; the others are means over cases."


def _table_row(result: FolderResult) -> dict[str, float]:
    metrics = ("Dice", "HD95", "NSD") if result.settings.surface else ("Dice",)
    values = dict.fromkeys(("Dice", "HD95", "NSD"), np.nan) | {
        metric: result.foreground_mean(metric) for metric in metrics
    }
    values |= {title: result.pooled(voxels).get(metric, np.nan) for title, (voxels, metric) in _POOLED.items()}
    return values | {f"{m} {of}": result.mean(of, m) if of in result.voxels else np.nan for m, of in _PAPER}
