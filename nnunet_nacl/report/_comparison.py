"""Methods on one data set, reduced to what all of them share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import (
    METRICS,
    VOXEL_SETS,
    CalibrationTables,
    Case,
    CaseResult,
    FolderResult,
    Origin,
    Voxels,
    format_html,
)
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.nnunet import Region

if TYPE_CHECKING:
    import pandas

Label = int | Region

Array = NDArray[np.float64]
Results = Mapping[str, FolderResult]
_NAMED = 5  # how many cases a note names
_WITHOUT_SURFACE = ("Dice", "Missed", "Spurious")


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
    structures = _shared_structures(results, origins, notes)
    num_bins = _coarsest_bins(origins, notes)
    cases = _shared_cases(results, origins, voxels, notes)
    notes += _different_settings(origins)
    methods = [
        Method(name, _restricted(result, cases, voxels, structures, num_bins), result.origin)
        for name, result in results.items()
    ]
    if len({method.has_surface for method in methods}) > 1:
        without = listed([method.name for method in methods if not method.has_surface])
        notes.append(f"HD95 is left out: it was not measured (--surface) for {without}.")
        methods = [replace(method, result=_without_surface(method.result)) for method in methods]
    return Comparison(dataset, methods, baseline, [origins[names[0]].labels.name_of(one) for one in structures], notes)


def _shared_structures(results: Results, origins: Mapping[str, Origin], notes: list[str]) -> list[Label]:
    """Labels or regions that have the same name and meaning in all results; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    by_method = {
        name: {one: origins[name].labels.name_of(one) for one in result.names} for name, result in results.items()
    }
    for name, structures in by_method.items():
        if not structures:
            reasons = "; ".join(f"{one.case}: {one.reason.removesuffix('.')}" for one in results[name].skipped[:1])
            raise ValueError(f"{name} has no evaluated case{f' ({reasons})' if reasons else ''}.")
    first, *others = by_method.values()
    shared = [one for one, called in first.items() if all(other.get(one) == called for other in others)]
    shown = "; ".join(f"{name}: {_described(structures)}" for name, structures in by_method.items())
    if not shared:
        raise ValueError(f"the methods share no structure ({shown}).")
    if any(len(structures) != len(shared) for structures in by_method.values()):
        notes.append(
            f"The methods know different structures ({shown}). Those that all share are compared."
            if not next(iter(origins.values())).labels.has_background
            else f"The methods know different structures ({shown}). Dice and HD95 are over those that all share, "
            "CECE over their probabilities; which voxels count, ECE and the further metrics are each method's own, and "
            "so not quite comparable."
        )
    return shared


def _described(structures: Mapping[Label, str]) -> str:
    labels = {
        one: f"label {one}" if isinstance(one, int) else f"labels {'+'.join(map(str, one))}" for one in structures
    }
    return ", ".join(f"{name} ({labels[one]})" for one, name in structures.items())


def _coarsest_bins(origins: Mapping[str, Origin], notes: list[str]) -> int:
    """The largest number of bins whose edges all results have; notes it if their numbers of bins differ.

    Raises:
        ValueError: they share no edge but 0 and 1.
    """
    counts = {name: origin.settings.num_bins for name, origin in origins.items()}
    shared = math.gcd(*counts.values())
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        if shared == 1:
            raise ValueError(f"the methods share no bin edges ({shown} bins); evaluate with the same --bins.")
        notes.append(f"The methods were evaluated with different numbers of bins ({shown}); compared with {shared}.")
    return shared


def _shared_cases(
    results: Results, origins: Mapping[str, Origin], voxels: Sequence[Voxels], notes: list[str]
) -> list[str]:
    """Cases that all results have, with the same ground truth; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    by_method = {name: {case.name: case for case in result.cases} for name, result in results.items()}
    every = sorted({case for cases in by_method.values() for case in cases})
    shared = [case for case in every if all(case in cases for cases in by_method.values())]
    if not shared:
        shown = "; ".join(f"{name}: {_first_few(list(cases))}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if len(shared) < len(every):
        left_out = [case for case in every if case not in set(shared)]
        notes.append(
            f"{len(shared)} of {len(every)} cases are compared. Left out, since not every method has them: "
            f"{_first_few(left_out)}."
        )
    for name, result in results.items():
        if result.skipped:
            notes.append(
                f"{name}: {len(result.skipped)} case{'' if len(result.skipped) == 1 else 's'} could not be evaluated: "
                f"{_first_few([entry.case for entry in result.skipped])}."
            )
    alike = [
        case for case in shared if _same_ground_truth([cases[case] for cases in by_method.values()], origins, voxels)
    ]
    different = [case for case in shared if case not in set(alike)]
    if not alike:
        raise ValueError(f"the methods share no case: their ground truth differs in {_first_few(different)}.")
    if different:
        notes.append(f"Left out, since the methods' ground truth differs: {_first_few(different)}.")
    return alike


def _same_ground_truth(cases: Sequence[Case], origins: Mapping[str, Origin], voxels: Sequence[Voxels]) -> bool:
    """Whether each structure has as many voxels in all; True where the tables cannot tell.

    A class's hits are the voxels that have its label, so in a voxel set that holds all of the structure they are its
    size, whatever was predicted. That needs tables of all voxels, and structures that mean the same.
    """
    whole = [one for one in voxels if one not in {"near", "boundary"}]
    first, *others = origins.values()
    can_tell = all(one.settings.counts_all_voxels for one in origins.values()) and all(
        other.labels.labels == first.labels.labels for other in others
    )
    if not whole or not can_tell:
        return True
    tables = [case.result.calibration[whole[0]] for case in cases]
    structures = slice(1 if tables[0].has_background else 0, None)
    sizes, *other_sizes = [one.classwise.hits.sum(-1)[structures] for one in tables]
    return all(np.array_equal(sizes, other) for other in other_sizes)


def _different_settings(origins: Mapping[str, Origin]) -> list[str]:
    """A note for each setting that changes values and is not the same in all results."""
    notes = []
    for setting in ("protocol", "margin_mm", "boundary_mm", "tolerance_mm"):
        values = {
            name: getattr(origin.settings, setting)
            for name, origin in origins.items()
            if setting != "margin_mm" or origin.counting > 1  # before there was the voxel set near
        }
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(f"The methods were evaluated with different --{setting} ({shown}): not quite comparable.")
    for name, origin in origins.items():
        if origin.part is not None:
            part, count = origin.part
            notes.append(f"{name}: only part {part} of {count} of the cases was evaluated.")
    return notes


def _restricted(
    result: FolderResult, cases: Sequence[str], voxels: Sequence[Voxels], structures: Sequence[Label], num_bins: int
) -> FolderResult:
    """A result reduced to some cases (in that order), voxel sets and structures, with bins joined to ``num_bins``."""
    by_name = {case.name: case for case in result.cases}
    positions = [result.names.index(structure) for structure in structures]
    # Rows of the class-wise tables, and of what is there once, or once for each region.
    channels = positions if not result.labels.has_background else [0, *(position + 1 for position in positions)]
    rows = positions if not result.labels.has_background else [0]

    def joined(table: BinCounts | None, chosen: list[int]) -> Any:
        return None if table is None else _join_bins(table[chosen], num_bins)

    def reduced(tables: CalibrationTables) -> CalibrationTables:
        return replace(
            tables,
            top=joined(tables.top, rows),
            classwise=joined(tables.classwise, channels),
            fine=tables.fine[rows],
            nll=tables.nll[rows],
            brier=tables.brier[rows],
            num_classes=sum(channel < tables.num_classes for channel in channels),
            expected_top=joined(tables.expected_top, rows),
            expected_classwise=joined(tables.expected_classwise, channels),
            image_voxels=None if tables.image_voxels is None else tables.image_voxels[rows],
        )

    def reduced_case(case: Case) -> Case:
        calibration = {one: reduced(case.result.calibration[one]) for one in voxels}
        segmentation = {one: case.result.segmentation[one] for one in structures}
        return replace(case, result=CaseResult(calibration, segmentation))

    settings = replace(result.settings, voxels=tuple(voxels), num_bins=num_bins)
    return replace(
        result,
        cases=[reduced_case(by_name[name]) for name in cases],
        origin=replace(result.origin, settings=settings),
    )


def _join_bins(tables: BinCounts, num_bins: int) -> BinCounts:
    shape = (*tables.count.shape[:-1], num_bins, -1)
    return BinCounts(
        tables.count.reshape(shape).sum(-1),
        tables.hits.reshape(shape).sum(-1),
        tables.confidence.reshape(shape).sum(-1),
        tables.unbinned,
    )


def _without_surface(result: FolderResult) -> FolderResult:
    cases = []
    for case in result.cases:
        kept = {name: {m: values[m] for m in _WITHOUT_SURFACE} for name, values in case.result.segmentation.items()}
        cases.append(replace(case, result=replace(case.result, segmentation=kept)))
    return replace(result, cases=cases)


def _first_few(cases: Sequence[str]) -> str:
    named = ", ".join(cases[:_NAMED])
    return f"{named} and {len(cases) - _NAMED} more" if len(cases) > _NAMED else named or "none"


def listed(names: Sequence[str]) -> str:
    """``A``, ``A and B`` or ``A, B and C``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
