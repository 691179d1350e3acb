"""Methods on one data set, reduced to what all of them share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import METRICS, VOXEL_SETS, CalibrationTables, FolderResult, Origin, format_html
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.report._shared import (
    Results,
    coarsest_bins,
    different_settings,
    restricted,
    shared_cases,
    shared_structures,
    without_surface,
)
from nnunet_nacl.report._wording import listed

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A method's result over the shared cases.

    Attributes:
        name: what it is called.
        result: reduced to what all methods share.
        origin: how it was evaluated, before that.
    """

    name: str
    result: FolderResult
    origin: Origin

    @cached_property
    def calibration(self) -> dict[str, dict[str, Array]]:
        """Voxel set -> metric -> (cases,) values; NaN where the voxel set is empty or the value is not known."""
        by_set: dict[str, dict[str, Array]] = {}
        for voxels in self.result.voxels:
            rows = [tables.metrics() for tables in self.tables(voxels)]
            by_set[voxels] = {metric: np.array([row.get(metric, np.nan) for row in rows]) for metric in METRICS}
        return by_set

    def bins(self, voxels: str, table: str) -> BinCounts | None:
        """Tables (cases, rows, M) over a voxel set, rows as in :class:`CalibrationTables`; None if a case has none.

        Args:
            voxels: the voxel set.
            table: ``top``, ``classwise``, ``expected_top`` or ``expected_classwise``.
        """
        if (voxels, table) not in self._stacked:
            of_cases = [getattr(tables, table) for tables in self.tables(voxels)]
            self._stacked[voxels, table] = None if any(one is None for one in of_cases) else BinCounts.stack(of_cases)
        return self._stacked[voxels, table]

    @cached_property
    def _stacked(self) -> dict[tuple[str, str], BinCounts | None]:
        return {}

    def tables(self, voxels: str) -> list[CalibrationTables]:
        """The tables of each case over a voxel set."""
        return [case.result.calibration[voxels] for case in self.result.cases]  # type: ignore[index]

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


@dataclass(frozen=True, repr=False)
class Comparison:
    """Methods on one data set.

    Attributes:
        dataset: its name; may be empty.
        methods: in the order given.
        baseline: name of the method that the others are compared with.
        structures: names of the foreground classes or regions, in the order of ``FolderResult.names``.
        notes: what the reader must know about what was left out or differs between the methods.
    """

    dataset: str
    methods: list[Method]
    baseline: str
    structures: list[str]
    notes: list[str]

    def __repr__(self) -> str:
        dataset = f" on {self.dataset}" if self.dataset else ""
        methods = listed([f"{name} (baseline)" if name == self.baseline else name for name in self.names])
        return f"<Comparison of {methods}{dataset}: {len(self.cases)} cases; {', '.join(self.voxels)}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return format_html({method.name: method.result for method in self.methods})

    def to_dataframe(self) -> "pandas.DataFrame":
        """The values of all shared cases: ``FolderResult.to_dataframe`` of each method, and the column method."""
        import pandas

        frames = {method.name: method.result.to_dataframe() for method in self.methods}
        return pandas.concat(frames, names=["method"]).reset_index("method").reset_index(drop=True)

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
        return self.methods[0].has_surface


def compare_all(results: Mapping[str, Results], *, baseline: str | None = None) -> list[Comparison]:
    """A comparison for each data set.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        baseline: see :func:`compare`.

    Raises:
        ValueError: nothing to compare, with the data set and the reason.
    """
    return [_compare_one(methods, baseline, dataset) for dataset, methods in results.items()]


def notes_on(comparisons: Sequence[Comparison]) -> list[str]:
    """What the reader must know of each, with the data set's name if there are several."""
    several = len(comparisons) > 1
    return [
        f"{comparison.dataset}: {note}" if several and comparison.dataset else note
        for comparison in comparisons
        for note in comparison.notes
    ]


def _compare_one(results: Results, baseline: str | None, dataset: str) -> Comparison:
    try:
        return compare(results, baseline=baseline, dataset=dataset)
    except ValueError as error:
        raise ValueError(f"{dataset}: {error}" if dataset else str(error)) from error


def compare(results: Results, *, baseline: str | None = None, dataset: str = "") -> Comparison:
    """Reduce the results of methods to what they share: cases, voxel sets, structures, bins.

    Args:
        results: method -> result.
        baseline: the method that the others are compared with; by default the first.
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
    voxels = [one for one in VOXEL_SETS if all(one in result.voxels for result in results.values())]
    if not voxels:
        sets = "; ".join(f"{name}: {', '.join(result.voxels)}" for name, result in results.items())
        raise ValueError(f"the methods share no voxel set ({sets}); evaluate with the same --voxels.")
    origins = {name: result.origin for name, result in results.items()}
    notes: list[str] = []
    structures = shared_structures(results, origins, notes)
    num_bins = coarsest_bins(origins, notes)
    cases = shared_cases(results, origins, voxels, notes)
    notes += different_settings(origins)
    methods = [
        Method(name, restricted(result, cases, voxels, structures, num_bins), result.origin)
        for name, result in results.items()
    ]
    if len({method.has_surface for method in methods}) > 1:
        without = listed([method.name for method in methods if not method.has_surface])
        notes.append(f"HD95 is left out: it was not measured (--surface) for {without}.")
        methods = [replace(method, result=without_surface(method.result)) for method in methods]
    return Comparison(dataset, methods, baseline, [origins[names[0]].labels.name_of(one) for one in structures], notes)
