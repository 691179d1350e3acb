"""Methods on one data set, reduced to the cases and voxel sets that all of them share."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from nnunet_nacl.evaluation import FolderResult, Origin
from nnunet_nacl.metrics import (
    Activation,
    BinCounts,
    CalibrationTables,
    Voxels,
)
from nnunet_nacl.report._results import calibrated_by
from nnunet_nacl.typing import Floats

Results = Mapping[str, FolderResult]
POOLED = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is that of the voxels of all cases together: within a case doubts
are shared, so that the mean over cases would not be 0 for a perfectly calibrated model."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method's result over the shared cases; ``origin`` is that before it was reduced to them."""

    name: str
    result: FolderResult
    origin: Origin

    def tables(self, voxels: str) -> list[CalibrationTables]:
        """Of each case."""
        return self.result.tables(cast("Voxels", voxels))

    def bins(self, voxels: str, table: str) -> Any:
        """``BinCounts`` (cases, rows, M), the table of that name of each case; None if a case has none."""
        return self._bins[voxels, table]

    @cached_property
    def _bins(self) -> dict[tuple[str, str], BinCounts | None]:
        found: dict[tuple[str, str], BinCounts | None] = {}
        for voxels in self.result.voxels:
            for table in ("top", "classwise", "expected_top", "expected_classwise"):
                of_cases = [getattr(tables, table) for tables in self.tables(voxels)]
                has_all = all(counts is not None for counts in of_cases)
                found[voxels, table] = BinCounts.stack(of_cases) if has_all else None
        return found

    def pooled(self, voxels: str) -> dict[str, float]:
        """Metric -> value over the voxels of all cases together."""
        return self.result.pooled(cast("Voxels", voxels))

    def num_classes(self, voxels: str) -> int:
        """How many rows of the class-wise tables enter CECE."""
        return max(tables.num_classes for tables in self.tables(voxels))

    def segmentation(self, metric: str) -> Floats:
        """(cases, structures) values; NaN where a structure is in neither ground truth nor prediction."""
        return np.array(
            [self.result.segmentation(name, metric) for name in self.result.structures]
        ).T


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Methods on one data set, whose name may be empty; ``notes`` say what was left out or differs between them."""

    dataset: str
    methods: list[Method]
    baseline: str
    structures: list[str]
    notes: list[str]

    def __getitem__(self, name: str) -> Method:
        return {method.name: method for method in self.methods}[name]

    @property
    def names(self) -> list[str]:
        return [method.name for method in self.methods]

    @property
    def cases(self) -> list[str]:
        return [case.name for case in self.methods[0].result.cases]

    @property
    def voxels(self) -> list[str]:
        return list(self.methods[0].result.voxels)

    @property
    def main(self) -> str:
        """The voxel set of what is shown over one: near, or the first if near was not evaluated."""
        return "near" if "near" in self.voxels else self.voxels[0]

    @property
    def activation(self) -> Activation:
        return self.methods[0].result.meaning.activation

    @property
    def has_scores(self) -> bool:
        """Whether there are NLL and Brier per foreground voxel."""
        return "image" in self.voxels and all(
            method.result.settings.counts_all_voxels for method in self.methods
        )

    @property
    def has_surface(self) -> bool:
        return all(method.result.settings.surface for method in self.methods)

    def before(self, method: Method) -> str | None:
        """The name of what a calibrated method was before, if that is compared, too."""
        _, folder = calibrated_by(method.origin) or ("", None)
        folders = {
            Path(method.origin.folders[0].pred_folder).resolve(): method.name
            for method in self.methods
        }
        return None if folder is None else folders.get(folder.resolve())


def compare_all(results: Mapping[str, Results], voxels: str | None = None) -> list[Comparison]:
    """A comparison for each data set of data set -> method -> result, with this voxel set; notes go to stderr."""
    comparisons = [compare(methods, dataset) for dataset, methods in results.items()]
    for comparison in comparisons:
        if voxels and voxels not in comparison.voxels:
            raise ValueError(
                f"voxels: expected one of {', '.join(comparison.voxels)}; got {voxels}."
            )
        for note in comparison.notes:
            print(
                f"Note: {comparison.dataset}{': ' * bool(comparison.dataset)}{note}",
                file=sys.stderr,
            )
    return comparisons


def compare(results: Results, dataset: str = "") -> Comparison:
    """Reduce the results of methods to the cases and voxel sets that they share. The first method is the baseline.

    Raises a ValueError if they have different structures, bins or ground truth, or share nothing.
    """
    if empty := [name for name, result in results.items() if not result.cases]:
        raise ValueError(f"{empty[0]} has no evaluated case.")
    structures = {
        n: [f"{result.meaning.name_of(structure)} {structure}" for structure in result.structures]
        for n, result in results.items()
    }
    _check_alike("structures", structures)
    _check_alike(
        "numbers of bins",
        {name: [str(result.settings.num_bins)] for name, result in results.items()},
    )
    voxels = [
        name
        for name in get_args(Voxels)
        if all(name in result.voxels for result in results.values())
    ]
    if not voxels:
        _check_alike("voxel sets", {name: result.voxels for name, result in results.items()})
    notes: list[str] = []
    cases = _shared_cases(results, notes)
    for setting in ("protocol", "margin_mm", "tolerance_mm"):
        values = {name: getattr(result.settings, setting) for name, result in results.items()}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(
                f"The methods were evaluated with different {setting} ({shown}): not quite comparable."
            )
    methods = [
        Method(name, _reduced(result, cases, voxels), result.origin)
        for name, result in results.items()
    ]
    without = [name for name, result in results.items() if not result.settings.surface]
    if 0 < len(without) < len(methods):
        notes.append(f"HD95 is left out: it was not measured (--surface) for {', '.join(without)}.")
    first = methods[0].result
    return Comparison(
        dataset,
        methods,
        methods[0].name,
        [first.meaning.name_of(structure) for structure in first.structures],
        notes,
    )


def _check_alike(what: str, by_method: Mapping[str, Sequence[str]]) -> None:
    """Raise a ValueError unless all methods have the same."""
    if len({tuple(found) for found in by_method.values()}) > 1:
        shown = "; ".join(f"{name}: {', '.join(found)}" for name, found in by_method.items())
        raise ValueError(f"the methods have different {what} ({shown}); evaluate them alike.")


def _shared_cases(results: Results, notes: list[str]) -> list[str]:
    """Cases that all results have; notes those that are left out, and refuses those of different ground truth."""
    by_method = {
        name: {case.name: case for case in result.cases} for name, result in results.items()
    }
    every = set().union(*by_method.values())
    shared = sorted(set.intersection(*map(set, by_method.values())))
    if not shared:
        shown = "; ".join(f"{name}: {_first_few(cases)}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if left_out := sorted(every.difference(shared)):
        counts = f"{len(shared)} of {len(every)} cases are compared"
        notes.append(
            f"{counts}. Left out, since not every method has them: {_first_few(left_out)}."
        )
    for name, result in results.items():
        if result.skipped:
            skipped = _first_few([entry.case for entry in result.skipped])
            notes.append(
                f"{name}: cases that could not be evaluated ({len(result.skipped)}): {skipped}."
            )
    different = [
        case
        for case in shared
        if not _same_ground_truth([cases[case] for cases in by_method.values()])
    ]
    if different:
        raise ValueError(
            f"the methods' ground truth differs in {_first_few(different)}; evaluate them alike."
        )
    return shared


def _same_ground_truth(cases: Sequence[Any]) -> bool:
    """Whether each structure has as many voxels in all; True where the tables cannot tell.

    In a voxel set that holds all of a structure, its hits are its size, whatever was predicted.
    """
    whole = sorted(
        {"foreground", "union", "image"}.intersection(*(case.result.calibration for case in cases))
    )
    tables = [case.result.calibration[whole[0]] for case in cases] if whole else []
    # With the paper's protocol tables lack voxels
    if any(table.classwise.unbinned.any() for table in tables):
        return True
    sizes = [table.classwise.hits.sum(-1)[table.activation.first_structure :] for table in tables]
    return all(np.array_equal(sizes[0], other) for other in sizes)


def _reduced(result: FolderResult, cases: Sequence[str], voxels: Sequence[Voxels]) -> FolderResult:
    """A result of some of its cases and voxel sets."""
    by_name = {case.name: case for case in result.cases}
    kept = []
    for case in (by_name[name] for name in cases):
        calibration = {name: case.result.calibration[name] for name in voxels}
        kept.append(replace(case, result=replace(case.result, calibration=calibration)))
    settings = replace(result.settings, voxels=tuple(voxels))
    return replace(result, cases=kept, origin=replace(result.origin, settings=settings))


def _first_few(names: Collection[str]) -> str:
    """``A, B, C``, or the first five and how many more."""
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
