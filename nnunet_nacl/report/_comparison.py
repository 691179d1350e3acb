"""Methods on one data set, reduced to the cases and voxel sets that all of them share."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnunet_nacl.evaluation import Case, FolderResult
from nnunet_nacl.metrics import VOXEL_SETS, Activation, BinCounts, Voxels

Results = Mapping[str, FolderResult]
POOLED: tuple[Voxels, ...] = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is pooled over the voxels of all cases: within a case errors
occur together, so the mean over cases would not be 0 for a perfectly calibrated model."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method's result over the shared cases."""

    name: str
    result: FolderResult

    def bins(self, voxels: Voxels, table: str = "top") -> Any:
        """``BinCounts`` (cases, rows, M): each case's table of that name; None if a case has none."""
        of_cases = [getattr(tables, table) for tables in self.result.tables(voxels)]
        return None if None in of_cases else BinCounts.stack(of_cases)

    def classwise(self, voxels: Voxels) -> Any:
        """``BinCounts`` (cases, K, M) of the classes that enter CECE."""
        num_classes = max(tables.num_classes for tables in self.result.tables(voxels))
        return self.bins(voxels, "classwise")[:, :num_classes]


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Methods on one data set, whose name may be empty.

    All have the voxel sets ``voxels``; ``notes`` say what was left out or differs between them.
    """

    dataset: str
    methods: list[Method]
    baseline: str
    structures: list[str]
    voxels: list[Voxels]
    notes: list[str]

    def __getitem__(self, name: str) -> Method:
        return {method.name: method for method in self.methods}[name]

    def of_case(self, name: str) -> "Comparison":
        """The same methods on one case, by whose name the comparison goes."""
        row = self.cases.index(name)
        methods = [
            replace(method, result=replace(method.result, cases=[method.result.cases[row]]))
            for method in self.methods
        ]
        return replace(self, dataset=name, methods=methods)

    @property
    def names(self) -> list[str]:
        return [method.name for method in self.methods]

    @property
    def cases(self) -> list[str]:
        return [case.name for case in self.methods[0].result.cases]

    @property
    def main(self) -> Voxels:
        """The voxel set of everything that is shown over one set: near, or the first if near was not evaluated."""
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


def compare_all(results: Mapping[str, Results], voxels: Voxels | None = None) -> list[Comparison]:
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

    Raises a ValueError if they have different structures, bins or ground truth, or no common case.
    """
    if empty := [name for name, result in results.items() if not result.cases]:
        raise ValueError(f"{empty[0]} has no evaluated case.")
    _check_alike(
        "structures",
        results,
        lambda result: ", ".join(
            f"{result.meaning.name_of(one)} {one}" for one in result.structures
        ),
    )
    _check_alike("numbers of bins", results, lambda result: str(result.settings.num_bins))
    voxels = [
        name for name in VOXEL_SETS if all(name in result.voxels for result in results.values())
    ]
    if not voxels:
        _check_alike("voxel sets", results, lambda result: ", ".join(result.voxels))
    notes: list[str] = []
    shared = _shared_cases(results, notes)
    for setting in ("protocol", "margin_mm", "tolerance_mm"):
        values = {name: getattr(result.settings, setting) for name, result in results.items()}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(
                f"The methods were evaluated with different {setting} ({shown}) and are not quite comparable."
            )
    methods = []
    for name, result in results.items():
        kept = [case for case in result.cases if case.name in shared]
        methods.append(Method(name, replace(result, cases=kept)))
    different = [
        cases[0].name
        for cases in zip(*(method.result.cases for method in methods), strict=True)
        if not _same_ground_truth(cases, voxels)
    ]
    if different:
        raise ValueError(
            f"the methods' ground truth differs in {_first_few(different)}; evaluate them alike."
        )
    without = [name for name, result in results.items() if not result.settings.surface]
    if 0 < len(without) < len(methods):
        notes.append(
            f"HD95 is left out: it was not measured (--no_surface) for {', '.join(without)}."
        )
    first = methods[0].result
    if first.meaning.what_is_lost:
        notes.append(f"{first.meaning.what_is_lost} Dice and HD95 are those of the label map.")
    return Comparison(
        dataset,
        methods,
        methods[0].name,
        [first.meaning.name_of(structure) for structure in first.structures],
        voxels,
        notes,
    )


def _check_alike(what: str, results: Results, told: Callable[[FolderResult], str]) -> None:
    """Raise a ValueError unless ``told`` gives the same for all results."""
    by_method = {name: told(result) for name, result in results.items()}
    if len(set(by_method.values())) > 1:
        shown = "; ".join(f"{name}: {found}" for name, found in by_method.items())
        raise ValueError(f"the methods have different {what} ({shown}); evaluate them alike.")


def _shared_cases(results: Results, notes: list[str]) -> set[str]:
    """The cases that all results have; adds a note about the others."""
    by_method = {name: [case.name for case in result.cases] for name, result in results.items()}
    every = set().union(*by_method.values())
    shared = every.intersection(*by_method.values())
    if not shared:
        shown = "; ".join(f"{name}: {_first_few(cases)}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if left_out := sorted(every - shared):
        counts = f"{len(shared)} of {len(every)} cases are compared"
        notes.append(f"{counts}. Left out, because some methods lack them: {_first_few(left_out)}.")
    for name, result in results.items():
        if result.skipped:
            skipped = _first_few([entry.case for entry in result.skipped])
            notes.append(
                f"{name}: cases that could not be evaluated ({len(result.skipped)}): {skipped}."
            )
    return shared


def _same_ground_truth(cases: Sequence[Case], voxels: Sequence[Voxels]) -> bool:
    """Whether each structure has the same number of voxels in all; True where the tables cannot tell.

    In a voxel set that holds all of a structure, its hits are its size, whatever was predicted.
    """
    for whole in voxels:
        tables = [case.result.calibration[whole] for case in cases]
        # With the paper's protocol tables lack voxels
        if whole == "near" or any(table.classwise.unbinned.any() for table in tables):
            continue
        first = tables[0].activation.first_structure
        sizes = [table.classwise.hits.sum(-1)[first:] for table in tables]
        return all(np.array_equal(sizes[0], other) for other in sizes)
    return True


def _first_few(names: Collection[str]) -> str:
    """``A, B, C``, or the first five and how many more."""
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
