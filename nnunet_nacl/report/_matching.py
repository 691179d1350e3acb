"""Reduce the results of methods to what they share, and refuse those that cannot be compared."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import VOXEL_SETS
from nnunet_nacl.names import cases_of_patients
from nnunet_nacl.report._comparison import Comparison, Results, naming

Comparable = Mapping[str, Results] | Sequence[Comparison]
"""Data set -> method -> result, or what ``compare_all`` made of these."""


def compare_all(
    results: Mapping[str, Results], *, by_patient: bool | str = False
) -> list[Comparison]:
    """A comparison for each data set of data set -> method -> result; ``by_patient`` is that of ``compare``.

    Raises the ValueErrors of ``compare``, with the name of the data set.
    """
    comparisons = []
    for dataset, methods in results.items():
        with naming(dataset):
            comparisons.append(compare(methods, dataset, by_patient=by_patient))
    return comparisons


def comparisons_of(results: Comparable) -> list[Comparison]:
    """A comparison for each data set, made here unless they are comparisons already."""
    return compare_all(results) if isinstance(results, Mapping) else list(results)


def compare(results: Results, dataset: str = "", *, by_patient: bool | str = False) -> Comparison:
    """Reduce the results of methods to the cases and voxel sets that they share. The first method is the baseline.

    ``by_patient`` tells from the cases' names which are of one patient (see ``names.cases_of_patients``): patients are
    then resampled and tested, not cases.

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
        advice="they are of different data sets",
    )
    _check_alike("numbers of bins", results, lambda result: str(result.settings.num_bins))
    voxels = [
        name for name in VOXEL_SETS if all(name in result.voxels for result in results.values())
    ]
    if not voxels:
        _check_alike("voxel sets", results, lambda result: ", ".join(result.voxels))
    cases = _shared_cases(results)
    of_shared = {name: _only_cases(result, cases) for name, result in results.items()}
    patients = _patients(cases, by_patient)
    notes = _notes(results, cases) + next(iter(of_shared.values())).notes_on_empty_cases
    if by_patient:
        notes.append(
            f"Resampled and tested are {patients.max() + 1} patients, not {len(cases)} cases."
        )
    comparison = Comparison(dataset, of_shared, cases, voxels, notes, patients)
    if different := _cases_of_different_truth(comparison):
        raise ValueError(
            f"the methods' ground truth differs in {_first_few(different)}; evaluate them alike."
        )
    return comparison


def _only_cases(result: FolderResult, names: Collection[str]) -> FolderResult:
    return result.take([row for row, case in enumerate(result.cases) if case in names])


def _patients(cases: Sequence[str], by_patient: bool | str) -> NDArray[np.intp]:
    """The number of each case's patient."""
    patients = cases_of_patients(cases, by_patient)
    number = {case: row for row, own in enumerate(patients.values()) for case in own}
    return np.array([number[case] for case in cases])


def _check_alike(
    what: str,
    results: Results,
    told: Callable[[FolderResult], str],
    *,
    advice: str = "evaluate them alike",
) -> None:
    """Raise a ValueError, with this advice, unless ``told`` gives the same for all results."""
    by_method = {name: told(result) for name, result in results.items()}
    if len(set(by_method.values())) > 1:
        shown = "; ".join(f"{name}: {found}" for name, found in by_method.items())
        raise ValueError(f"the methods have different {what} ({shown}); {advice}.")


def _shared_cases(results: Results) -> list[str]:
    """The cases that all results have."""
    by_method = {name: result.cases for name, result in results.items()}
    shared = sorted(set.intersection(*map(set, by_method.values())))
    if not shared:
        shown = "; ".join(f"{name}: {_first_few(cases)}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    return shared


def _notes(results: Results, shared: Collection[str]) -> list[str]:
    """What was left out or differs between the methods."""
    notes = []
    every = set().union(*(result.cases for result in results.values()))
    if left_out := sorted(every.difference(shared)):
        counts = f"{len(shared)} of {len(every)} cases are compared"
        notes.append(f"{counts}. Left out, because some methods lack them: {_first_few(left_out)}.")
    for name, result in results.items():
        notes += [f"{name}: {note}" for note in result.notes_on_training_cases]
        if result.skipped:
            skipped = _first_few([entry.case for entry in result.skipped])
            notes.append(
                f"{name}: cases that could not be evaluated ({len(result.skipped)}): {skipped}."
            )
    for setting in ("protocol", "margin_mm", "tolerance_mm"):
        values = {name: getattr(result.settings, setting) for name, result in results.items()}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(
                f"The methods were evaluated with different {setting} ({shown}) and are not quite comparable."
            )
    without = [name for name, result in results.items() if not result.settings.surface]
    if 0 < len(without) < len(results):
        notes.append(
            f"HD95 is left out: it was not measured (--no_surface) for {', '.join(without)}."
        )
    what_is_lost = next(iter(results.values())).meaning.what_is_lost
    if what_is_lost:
        notes.append(f"{what_is_lost} Dice and HD95 are those of the label map.")
    return notes


def _cases_of_different_truth(comparison: Comparison) -> list[str]:
    """Cases in which a structure has not the same number of voxels in all results; none where the tables cannot tell.

    In a voxel set that holds all of a structure, its hits are its size, whatever was predicted.
    """
    different: set[str] = set()
    for whole in comparison.voxels:
        if whole == "near":
            continue
        tables = [
            result.counts.calibration[whole].classwise for result in comparison.results.values()
        ]
        # With the paper's protocol tables lack voxels
        complete = ~np.any([table.unbinned.any(-1) for table in tables], axis=0)
        sizes = np.stack([table.hits.sum(-1) for table in tables])
        of_structures = sizes[..., comparison.meaning.activation.first_structure :]
        differ = (of_structures != of_structures[0]).any((0, -1))
        different.update(np.array(comparison.cases)[complete & differ])
    return sorted(different)


def _first_few(names: Collection[str]) -> str:
    """``A, B, C``, or the first five and how many more."""
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
