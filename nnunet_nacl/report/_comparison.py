"""Methods on one data set, reduced to the cases and voxel sets that all of them share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import METRICS, VOXEL_SETS, CalibrationTables, FolderResult, Origin, Voxels
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.report._results import Posthoc, posthoc_of

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Results = Mapping[str, FolderResult]
POOLED = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is that of the voxels of all cases together: within a case doubts
are shared, so that the mean over cases would not be 0 for a perfectly calibrated model."""


@dataclass(frozen=True)
class Method:
    """A method's result over the shared cases; ``origin`` says how it was evaluated before it was reduced to them."""

    name: str
    result: FolderResult
    origin: Origin

    @cached_property
    def calibration(self) -> "dict[str, pd.DataFrame]":
        """Voxel set -> data frame of cases by metrics; NaN where the voxel set is empty or the value is not known."""
        import pandas as pd

        cases = [case.name for case in self.result.cases]
        return {
            voxels: pd.DataFrame([one.metrics() for one in self.tables(voxels)], cases, METRICS, np.float64)
            for voxels in self.result.voxels
        }

    def tables(self, voxels: str) -> list[CalibrationTables]:
        """The tables of each case over a voxel set."""
        return [case.result.calibration[voxels] for case in self.result.cases]  # type: ignore[index]

    def bins(self, voxels: str, table: str) -> BinCounts | None:
        """Tables (cases, rows, M) of that name in :class:`CalibrationTables`; None if a case has none."""
        if (voxels, table) not in self.cache:
            of_cases = [getattr(tables, table) for tables in self.tables(voxels)]
            self.cache[voxels, table] = None if any(one is None for one in of_cases) else BinCounts.stack(of_cases)
        found: BinCounts | None = self.cache[voxels, table]
        return found

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """What was computed of it before."""
        return {}

    def pooled(self, voxels: str) -> dict[str, float]:
        """Metric -> value over the voxels of all cases together."""
        tables = self.result.pooled_tables(voxels)  # type: ignore[arg-type]
        assert tables is not None
        return tables.metrics()

    def num_classes(self, voxels: str) -> int:
        """How many rows of the class-wise tables enter CECE."""
        return max(tables.num_classes for tables in self.tables(voxels))

    def sums(self, voxels: str, score: Literal["nll", "brier"]) -> tuple[Array, Array]:
        """(cases,) sums of a score over a voxel set, and (cases,) foreground voxels; both over all regions."""
        tables = self.tables(voxels)
        sums = np.array([float(getattr(one, score).sum()) for one in tables])
        return sums, np.array([float(one.foreground_voxels) for one in tables])

    def segmentation(self, metric: str) -> Array:
        """(cases, structures) values; NaN where a structure is in neither ground truth nor prediction."""
        return np.array([self.result.segmentation(name, metric) for name in self.result.names]).T

    @property
    def has_surface(self) -> bool:
        """Whether distances between surfaces were measured."""
        return "HD95" in self.result.cases[0].result.segmentation[self.result.names[0]]

    @cached_property
    def posthoc(self) -> Posthoc | None:
        """How it was calibrated after training, if it was."""
        return posthoc_of(self.origin)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Methods on one data set, whose name may be empty; ``notes`` say what was left out or differs between them."""

    dataset: str
    methods: list[Method]
    baseline: str
    structures: list[str]
    notes: list[str]
    cache: dict[Any, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        names = ", ".join(f"{name} (baseline)" if name == self.baseline else name for name in self.names)
        return f"<Comparison on {self.dataset or 'a data set'}: {names}; {len(self.cases)} cases>"

    def to_dataframe(self) -> "pd.DataFrame":
        """The values of all shared cases: ``FolderResult.to_dataframe`` of each method, and the column method."""
        import pandas as pd

        frames = {method.name: method.result.to_dataframe() for method in self.methods}
        return pd.concat(frames, names=["method"]).reset_index("method").reset_index(drop=True)

    def __getitem__(self, name: str) -> Method:
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(f"expected a method, one of {', '.join(self.names)}; got {name}.")

    @property
    def names(self) -> list[str]:
        return [method.name for method in self.methods]

    @property
    def cases(self) -> list[str]:
        return [case.name for case in self.methods[0].result.cases]

    @property
    def voxels(self) -> list[str]:
        """Voxel sets, in the order of ``VOXEL_SETS``."""
        return list(self.methods[0].result.voxels)

    @property
    def main(self) -> str:
        """The voxel set of what is shown over a single one: near, or the first if near was not evaluated."""
        return "near" if "near" in self.voxels else self.voxels[0]

    def check_voxels(self, voxels: str) -> None:
        """Raise a ValueError unless the methods share this voxel set."""
        if voxels not in self.voxels:
            raise ValueError(f"voxels: expected one of {', '.join(self.voxels)}; got {voxels}.")

    @property
    def has_regions(self) -> bool:
        return not self.methods[0].result.labels.has_background

    @property
    def classes(self) -> list[str]:
        """Names of the channels that have a table of their own: with classes, the background too."""
        return self.structures if self.has_regions else ["background", *self.structures]

    @property
    def has_scores(self) -> bool:
        """Whether there are NLL and Brier per foreground voxel, which need the tables of all voxels of the image."""
        return "image" in self.voxels and all(one.result.settings.counts_all_voxels for one in self.methods)

    @property
    def has_surface(self) -> bool:
        return all(method.has_surface for method in self.methods)

    def before(self, method: Method) -> str | None:
        """The name of what a calibrated method was before, if that is compared, too."""
        if method.posthoc is None:
            return None
        folder = method.posthoc.before.resolve()
        return next((m.name for m in self.methods if Path(m.origin.places[0].pred_folder).resolve() == folder), None)


def compare_all(results: Mapping[str, Results], *, baseline: str | None = None) -> list[Comparison]:
    """A comparison for each data set of data set -> method -> result; see :func:`compare`."""
    return [_compare(methods, baseline, dataset) for dataset, methods in results.items()]


def _compare(results: Results, baseline: str | None, dataset: str) -> Comparison:
    try:
        return compare(results, baseline=baseline, dataset=dataset)
    except ValueError as error:
        raise ValueError(f"{dataset}: {error}" if dataset else str(error)) from error


def notes_on(comparisons: Sequence[Comparison]) -> list[str]:
    """What the reader must know of each, with the data set's name if there are several."""
    several = len(comparisons) > 1
    return [f"{one.dataset}: {note}" if several and one.dataset else note for one in comparisons for note in one.notes]


def compare(results: Results, *, baseline: str | None = None, dataset: str = "") -> Comparison:
    """Reduce the results of methods to the cases and voxel sets that they share.

    Args:
        results: method -> result.
        baseline: the method that the others are compared with; by default the first.
        dataset: name of the data set.

    Raises:
        ValueError: no results, no such baseline, different structures or bins, or nothing shared, with the reason.
    """
    if not results:
        raise ValueError("expected at least one result.")
    names = list(results)
    baseline = names[0] if baseline is None else baseline
    if baseline not in results:
        raise ValueError(f"baseline: expected one of {', '.join(names)}; got {baseline}.")
    voxels = [one for one in VOXEL_SETS if all(one in result.voxels for result in results.values())]
    if not voxels:
        sets = "; ".join(f"{name}: {', '.join(result.voxels)}" for name, result in results.items())
        raise ValueError(f"the methods share no voxel set ({sets}); evaluate with the same ones.")
    structures = _structures(results)
    bins = {name: result.settings.num_bins for name, result in results.items()}
    if len(set(bins.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in bins.items())
        raise ValueError(f"the methods have different numbers of bins ({shown}); evaluate with the same --bins.")
    notes: list[str] = []
    cases = _shared_cases(results, notes)
    notes += _different_settings(results)
    methods = [Method(name, _reduced(result, cases, voxels), result.origin) for name, result in results.items()]
    without = [method.name for method in methods if not method.has_surface]
    if without and len(without) < len(methods):
        notes.append(f"HD95 is left out: it was not measured (--surface) for {', '.join(without)}.")
    return Comparison(dataset, methods, baseline, structures, notes)


def _structures(results: Results) -> list[str]:
    """Names of the labels or regions, which must have the same meaning in all results."""
    for name, result in results.items():
        if not result.cases:
            reason = f" ({result.skipped[0].case}: {result.skipped[0].reason})" if result.skipped else ""
            raise ValueError(f"{name} has no evaluated case{reason}.")
    known = {name: {one: result.labels.name_of(one) for one in result.names} for name, result in results.items()}
    first, *others = known.values()
    if any(other != first for other in others):
        shown = "; ".join(f"{name}: {', '.join(map('{0[1]} {0[0]}'.format, of.items()))}" for name, of in known.items())
        raise ValueError(f"the methods know different structures ({shown}).")
    return list(first.values())


def _shared_cases(results: Results, notes: list[str]) -> list[str]:
    """Cases that all results have, with the same ground truth; notes those that are left out."""
    by_method = {name: {case.name: case for case in result.cases} for name, result in results.items()}
    every = sorted({case for cases in by_method.values() for case in cases})
    shared = [case for case in every if all(case in cases for cases in by_method.values())]
    if not shared:
        shown = "; ".join(f"{name}: {first_few(list(cases))}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if len(shared) < len(every):
        left_out = first_few([case for case in every if case not in set(shared)])
        notes.append(
            f"{len(shared)} of {len(every)} cases are compared. Left out, since not every method has them: {left_out}."
        )
    for name, result in results.items():
        if result.skipped:
            skipped = first_few([entry.case for entry in result.skipped])
            notes.append(f"{name}: cases that could not be evaluated ({len(result.skipped)}): {skipped}.")
    different = [case for case in shared if not _same_ground_truth([cases[case] for cases in by_method.values()])]
    if len(different) == len(shared):
        raise ValueError(f"the methods share no case: their ground truth differs in {first_few(different)}.")
    if different:
        notes.append(f"Left out, since the methods' ground truth differs: {first_few(different)}.")
    return [case for case in shared if case not in set(different)]


def _same_ground_truth(cases: Sequence[Any]) -> bool:
    """Whether each structure has as many voxels in all; True where the tables cannot tell.

    A class's hits are the voxels that have its label, so in a voxel set that holds all of the structure they are its
    size, whatever was predicted.
    """
    sets = [set(case.result.calibration) & {"foreground", "union", "image"} for case in cases]
    sizes = []
    for case in cases:
        if not (whole := sorted(set.intersection(*sets))):
            return True
        tables = case.result.calibration[whole[0]]
        if tables.classwise.unbinned.any():  # with the paper's protocol tables lack voxels
            return True
        sizes.append(tables.classwise.hits.sum(-1)[1 if tables.has_background else 0 :])
    return all(np.array_equal(sizes[0], other) for other in sizes)


def _different_settings(results: Results) -> list[str]:
    """A note for each setting that changes values and is not the same in all results."""
    notes = []
    for setting in ("protocol", "margin_mm", "tolerance_mm"):
        values = {name: getattr(result.settings, setting, None) for name, result in results.items()}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(f"The methods were evaluated with different {setting} ({shown}): not quite comparable.")
    for name, result in results.items():
        if result.origin.part is not None:
            part, count = result.origin.part
            notes.append(f"{name}: only part {part} of {count} of the cases was evaluated.")
    return notes


def _reduced(result: FolderResult, cases: Sequence[str], voxels: Sequence[Voxels]) -> FolderResult:
    """A result of some of its cases (in that order) and voxel sets."""
    by_name = {case.name: case for case in result.cases}
    kept = [
        replace(by_name[name], result=replace(by_name[name].result, calibration=calibration))
        for name in cases
        if (calibration := {one: by_name[name].result.calibration[one] for one in voxels})
    ]
    settings = replace(result.settings, voxels=tuple(voxels))
    return replace(result, cases=kept, origin=replace(result.origin, settings=settings))


def first_few(names: Sequence[str]) -> str:
    """``A, B, C``, or the first five and how many more."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
