"""Methods on one data set, reduced to what all of them share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import METRICS, VOXEL_SETS, CalibrationTables, FolderResult
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.report._sharing import (
    class_name,
    coarsest_bins,
    restrict,
    shared_cases,
    shared_structures,
    unlike_settings,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A method's result over the shared cases.

    Attributes:
        name: what it is called.
        result: reduced to what all methods share.
    """

    name: str
    result: FolderResult

    @cached_property
    def calibration(self) -> dict[str, dict[str, Array]]:
        """Voxel set -> metric -> (cases,) figures; NaN where the voxel set is empty, or the figure is not known."""
        found: dict[str, dict[str, Array]] = {}
        for voxels in self.result.voxels:
            rows = [case.result.calibration[voxels].metrics() for case in self.result.cases]
            found[voxels] = {metric: np.array([row.get(metric, np.nan) for row in rows]) for metric in METRICS}
        return found

    def bins(self, voxels: str, table: str) -> BinCounts | None:
        """Tables (cases, rows, M) over a voxel set, rows as in :class:`CalibrationTables`; None if a case has none.

        Args:
            voxels: the voxel set.
            table: ``top``, ``classwise``, ``expected_top`` or ``expected_classwise``.
        """
        if (voxels, table) not in self._stacked:
            found = [getattr(tables, table) for tables in self.tables(voxels)]
            self._stacked[voxels, table] = None if any(one is None for one in found) else BinCounts.stack(found)
        return self._stacked[voxels, table]

    @cached_property
    def _stacked(self) -> dict[tuple[str, str], BinCounts | None]:
        return {}

    def tables(self, voxels: str) -> list[CalibrationTables]:
        """The tables of each case over a voxel set."""
        return [case.result.calibration[voxels] for case in self.result.cases]  # type: ignore[index]

    def num_classes(self, voxels: str) -> int:
        """How many rows of the class-wise tables enter CECE."""
        return max(tables.num_classes for tables in self.tables(voxels))

    def sums(self, voxels: str, score: Literal["nll", "brier"]) -> tuple[Array, Array]:
        """Of each case: the sum of a score over a voxel set, and its foreground voxels; both over all regions."""
        tables = self.tables(voxels)
        sums = np.array([float(getattr(one, score).sum()) for one in tables])
        return sums, np.array([float(one.foreground_voxels) for one in tables])

    def segmentation(self, metric: str) -> Array:
        """(cases, structures) figures; NaN where a structure is in neither reference nor prediction."""
        return np.array([self.result.segmentation(name, metric) for name in self.result.names]).T


@dataclass(frozen=True)
class Comparison:
    """Methods on one data set.

    Attributes:
        dataset: its name; may be empty.
        methods: in the order given.
        baseline: name of the method that the others are held against.
        structures: names of the foreground classes or regions, in the order of ``FolderResult.names``.
        notes: what the reader must know about what was left out or is not alike.
    """

    dataset: str
    methods: list[Method]
    baseline: str
    structures: list[str]
    notes: list[str]

    def __getitem__(self, name: str) -> Method:
        return next(method for method in self.methods if method.name == name)

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
        """The voxel set of what is shown over a single one: near, or the first if that was not evaluated."""
        return "near" if "near" in self.voxels else self.voxels[0]

    @property
    def has_regions(self) -> bool:
        return isinstance(self.methods[0].result.names[0], tuple)

    @property
    def classes(self) -> list[str]:
        """Names of the channels that have a table of their own: with classes, the background too."""
        return self.structures if self.has_regions else ["background", *self.structures]

    @property
    def has_scores(self) -> bool:
        """Whether there are NLL and Brier per foreground voxel: the reference protocol's tables lack voxels."""
        protocols = {method.result.settings["protocol"] for method in self.methods}
        return "image" in self.voxels and protocols == {"standard"}

    @property
    def has_surface(self) -> bool:
        return "HD95" in _measured(self.methods[0])


def compare(results: Mapping[str, FolderResult], *, baseline: str | None = None, dataset: str = "") -> Comparison:
    """Reduce the results of methods to what they share: cases, voxel sets, structures, bins.

    Args:
        results: method -> result.
        baseline: the method that the others are held against; by default the first.
        dataset: name of the data set.

    Raises:
        ValueError: no results, no such baseline, or nothing shared, with the reason.
    """
    if not results:
        raise ValueError("expected at least one result.")
    names = list(results)
    baseline = names[0] if baseline is None else baseline
    if baseline not in results:
        raise ValueError(f"baseline: expected one of {', '.join(names)}; got {baseline}.")
    voxels = [chosen for chosen in VOXEL_SETS if all(chosen in result.voxels for result in results.values())]
    if not voxels:
        sets = "; ".join(f"{name}: {', '.join(result.voxels)}" for name, result in results.items())
        raise ValueError(f"the methods share no voxel set ({sets}); evaluate with the same --voxels.")
    notes: list[str] = []
    structures = shared_structures(results, notes)
    num_bins = coarsest_bins(results, notes)
    cases = shared_cases(results, voxels, notes)
    notes += unlike_settings(results)
    methods = [Method(name, restrict(result, cases, voxels, structures, num_bins)) for name, result in results.items()]
    if len({"HD95" in _measured(method) for method in methods}) > 1:
        lacking = [method.name for method in methods if "HD95" not in _measured(method)]
        notes.append(f"HD95 is left out: not measured (--surface) for {_listed(lacking)}.")
        methods = [Method(method.name, _without_surface(method.result)) for method in methods]
    shown = [class_name(next(iter(results.values())), structure) for structure in structures]
    return Comparison(dataset, methods, baseline, shown, notes)


def compare_all(results: Mapping[str, Mapping[str, FolderResult]], *, baseline: str | None = None) -> list[Comparison]:
    """A comparison for each data set.

    Raises:
        ValueError: nothing to compare, with the data set and the reason.
    """
    return [_compare_one(dataset, methods, baseline) for dataset, methods in results.items()]


def _compare_one(dataset: str, methods: Mapping[str, FolderResult], baseline: str | None) -> Comparison:
    try:
        return compare(methods, baseline=baseline, dataset=dataset)
    except ValueError as error:
        raise ValueError(f"{dataset}: {error}" if dataset else str(error)) from error


def _measured(method: Method) -> dict[str, float]:
    return method.result.cases[0].result.segmentation[method.result.names[0]]


def _without_surface(result: FolderResult) -> FolderResult:
    kept = ("Dice", "Missed", "Spurious")
    cases = []
    for case in result.cases:
        found = {name: {m: values[m] for m in kept} for name, values in case.result.segmentation.items()}
        cases.append(replace(case, result=replace(case.result, segmentation=found)))
    return replace(result, cases=cases)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
