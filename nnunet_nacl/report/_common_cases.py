"""Reduce methods to the cases that they have in common, and note what was left out or differs between them."""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter

import numpy as np

from nnunet_nacl.evaluation import NEARLY_ALL, FolderResult
from nnunet_nacl.report._comparison import Comparison, Results


def compare_all(
    results: Mapping[str, Results], *, by_patient: bool | str = False
) -> list[Comparison]:
    """Make a comparison for each data set of data set -> method -> result, as ``read_results`` returns them.

    ``by_patient`` is that of ``compare_methods``, whose ValueErrors get the name of the data set.
    """
    comparisons = []
    try:
        for dataset, methods in results.items():
            comparisons.append(compare_methods(methods, dataset, by_patient=by_patient))
    except ValueError as error:
        raise ValueError(f"{dataset}: {error}" if dataset else str(error)) from error
    return comparisons


def compare_methods(
    results: Results, dataset: str = "", *, by_patient: bool | str = False
) -> Comparison:
    """Reduce the results of methods to the cases that they share. The first method is the baseline.

    ``by_patient`` tells from the cases' names which are of one patient (see ``patients.cases_of_patients``). Patients
    are then resampled and tested, not cases.

    Raises a ValueError if they have different structures, bins or ground truth, or no common case.
    """
    alike: dict[str, Callable[[FolderResult], object]] = {
        "structures": lambda one: ", ".join(
            map("{} {}".format, one.meaning.names, one.meaning.structures)
        ),
        "numbers of bins": attrgetter("settings.num_bins"),
    }
    for what, describe in alike.items():
        if shown := _differing(results, describe):
            raise ValueError(f"the methods have different {what} ({shown}); evaluate them alike.")
    cases = sorted(set.intersection(*(set(result.cases) for result in results.values())))
    if not cases:
        shown = "; ".join(f"{name}: {_first_few(one.cases)}" for name, one in results.items())
        raise ValueError(f"the methods share no case ({shown}).")
    shared = {name: result.only(cases) for name, result in results.items()}
    comparison = Comparison(dataset, shared, cases, _notes(results, shared), by_patient)
    if by_patient:
        comparison.notes.append(
            f"Resampled and tested are {comparison.num_patients} patients, not {len(cases)} cases."
        )
    truths = [result.counts.truth for result in shared.values()]
    sizes = np.stack([np.column_stack([one.ignored, one.voxels]) for one in truths if one])
    if (differ := (sizes != sizes[0]).any((0, 2))).any():
        different = np.array(cases)[differ].tolist()
        raise ValueError(
            f"the methods' ground truth differs in {_first_few(different)}; evaluate them alike."
        )
    return comparison


def _notes(results: Results, shared: Results) -> list[str]:
    """List what was left out or differs between the methods; ``shared`` are their results on the compared cases."""
    notes = []
    first = next(iter(shared.values()))
    every = set().union(*(result.cases for result in results.values()))
    if left_out := sorted(every.difference(first.cases)):
        notes.append(
            f"{len(first.cases)} of {len(every)} cases are compared. Left out, because some methods lack them: "
            f"{_first_few(left_out)}."
        )
    for name, result in results.items():
        if note := result.notes.get("training"):
            notes.append(f"{name}: {note}")
        if result.skipped:
            skipped = _first_few([entry.case for entry in result.skipped])
            notes.append(
                f"{name}: cases that could not be evaluated ({len(result.skipped)}): {skipped}."
            )
    notes += [
        f"The methods were evaluated with different {setting} ({shown}) and are not quite comparable."
        for setting in ("protocol", "margin_mm", "tolerance_mm", "ignore_geometry")
        if (shown := _differing(results, attrgetter(f"settings.{setting}")))
    ]
    without = [name for name, result in results.items() if not result.settings.surface]
    if 0 < len(without) < len(results):
        notes.append(
            f"HD95 is left out: it was not measured (--no_surface) for {', '.join(without)}."
        )
    if wide := [name for name, result in results.items() if "near" in result.notes]:
        notes.append(
            f"Near is more than {100 * NEARLY_ALL:g} % of the image for {', '.join(wide)}: there, the ECE counts the "
            "easy background, too."
        )
    if lost := first.meaning.note_on_overlap:
        notes.append(f"{lost} Dice and HD95 are those of the label map.")
    if empty := first.notes.get("empty"):
        notes.append(empty)
    return notes


def _differing(results: Results, describe: Callable[[FolderResult], object]) -> str:
    """Describe each method: ``one: 15; other: 10``; empty if all are alike."""
    values = {name: describe(result) for name, result in results.items()}
    if len({*values.values()}) < 2:
        return ""
    return "; ".join(f"{name}: {value}" for name, value in values.items())


def _first_few(names: Collection[str]) -> str:
    """List names: ``A, B, C``, or the first five and how many more."""
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
