"""Methods on one data set, reduced to the cases that they share: all numbers that are shown of them.

Tables, plots and pages take their numbers from here alone, so all of them are over the same cases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnunet_nacl.evaluation import NEARLY_ALL, FolderResult
from nnunet_nacl.metrics import (
    CALIBRATION_METRICS,
    SEGMENTATION_METRICS,
    VOXEL_SETS,
    Estimate,
    Voxels,
)
from nnunet_nacl.nnunet import calibration_of
from nnunet_nacl.paths import FileState
from nnunet_nacl.patients import patient_numbers
from nnunet_nacl.report._choice import DICE, Choice, Metric, choose
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._statistics import Difference, Order, differences, order

Results = Mapping[str, FolderResult]
"""Method -> result."""
Made = TypeVar("Made")
# A structure must be in so many cases, or in all if they are fewer, before a method is said not to find it
_FEWEST = 3


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Methods on one data set, over the cases that all of them have.

    Attributes:
        dataset: may be empty.
        results: of the methods, by name; the first is the baseline.
        cases: their names.
        notes: what was left out or differs between the methods.
        by_patient: how the cases' names tell their patients, see ``patients.cases_of_patients``.
        chosen_voxels: the voxel set that the user chose for all tables and plots, in place of their usual ones.
    """

    dataset: str
    results: Results
    cases: list[str]
    notes: list[str]
    by_patient: bool | str = False
    chosen_voxels: Voxels | None = None

    def over(self, voxels: Voxels | None) -> "Comparison":
        """Show everything over this voxel set; None: each table and plot over its own."""
        return replace(self, chosen_voxels=voxels)

    def of_case(self, case: str) -> "Comparison":
        """Return the comparison of all methods on a single case."""
        row = self.cases.index(case)
        results = {name: result.take([row]) for name, result in self.results.items()}
        return replace(self, results=results, cases=[case])

    @property
    def names(self) -> list[str]:
        """The names of the methods, the baseline first."""
        return list(self.results)

    @cached_property
    def patients(self) -> NDArray[np.intp]:
        """The number of each case's patient, from 0: (cases,)."""
        return patient_numbers(self.cases, self.by_patient)

    @property
    def num_patients(self) -> int:
        """The number of patients: by default, of cases."""
        return int(self.patients.max()) + 1

    @cached_property
    def choice(self) -> Choice:
        """The metrics and voxel sets that tables and plots show."""
        return choose(self.results.values(), self.chosen_voxels)

    @cached_property
    def calibrated(self) -> dict[str, str]:
        """Method -> how it was calibrated, such as ``temperature``, if its folder of predictions has that record."""
        found = {
            name: calibration_of(result.folders("prediction")[0])
            for name, result in self.results.items()
        }
        return {name: how.partition("@")[0] for name, how in found.items() if how}

    def file_states(self, case: str) -> dict[str, dict[str, FileState]]:
        """Return method -> the states of a case's files when they were evaluated."""
        row = self.cases.index(case)
        return {name: result.counted[row].states for name, result in self.results.items()}

    @cached_property
    def estimates(self) -> dict[Metric, dict[str, Estimate]]:
        """Metric -> method -> its estimate."""
        metrics = [Metric(name, one) for one in VOXEL_SETS for name in CALIBRATION_METRICS]
        metrics += [Metric(name) for name in SEGMENTATION_METRICS]
        return {
            metric: {
                name: result.estimate(metric.name, metric.voxels, self.patients)
                for name, result in self.results.items()
            }
            for metric in metrics
        }

    @cached_property
    def finds_nothing(self) -> dict[str, dict[str, int]]:
        """Method -> structure that it predicts in none of the cases that have it -> their number.

        A structure that only one or two of many cases have does not count.
        """
        found: dict[str, dict[str, int]] = {}
        for name, result in self.results.items():
            meaning = result.meaning
            for structure, label in zip(meaning.names, meaning.structures, strict=True):
                missed = result.values("Missed", label=label)
                missed = missed[~np.isnan(missed)]
                if missed.size >= min(_FEWEST, len(self.cases)) and missed.all():
                    found.setdefault(name, {})[structure] = missed.size
        return found

    @cached_property
    def differences(self) -> dict[Metric, dict[str, Difference]]:
        """Metric that is shown -> other method -> its difference to the baseline."""
        shown = self.choice.leading + self.choice.paper
        return {metric: differences(self.estimates[metric]) for metric in shown}

    @cached_property
    def orders(self) -> dict[Metric, Order]:
        """Metric that is shown -> the methods' order, but for those that find nothing of a structure."""
        orders = {}
        # HD95_voxels: the paper's table has it
        for metric in [*self.choice.leading, *self.choice.paper, Metric("HD95_voxels")]:
            found = {
                name: estimate
                for name, estimate in self.estimates[metric].items()
                if name not in self.finds_nothing
            }
            higher_is_better = bool(metric.definition.higher_is_better)
            orders[metric] = order(found, higher_is_better, self.num_patients)
        return orders

    @cached_property
    def reliability(self) -> dict[Voxels, dict[str, Reliability]]:
        """Voxel set -> method -> the reliability of its confidences over all cases' voxels."""
        cases_of = np.equal.outer(np.unique(self.patients), self.patients).astype(np.float64)
        return {
            voxels: {
                name: Reliability(
                    name, result.counts.calibration[voxels].weighted(cases_of), result.meaning.names
                )
                for name, result in self.results.items()
            }
            for voxels in VOXEL_SETS
        }

    @cached_property
    def by_case(self) -> dict[Metric, pd.DataFrame]:
        """Dice, the mean over structures, and ECE -> the values of each case, (cases, methods)."""
        frames = {}
        for metric in (DICE, self.choice.error):
            values = {
                name: result.values(metric.name, metric.voxels)
                for name, result in self.results.items()
            }
            frames[metric] = pd.DataFrame(values, self.cases)
        return frames

    @cached_property
    def by_structure(self) -> dict[Metric, pd.DataFrame]:
        """Dice, HD95 and ECE -> (structures, methods): means over cases, or ECE of all their voxels."""
        meaning = self.results[self.names[0]].meaning
        frames = {}
        for metric in [*self.choice.segmentation, self.choice.error]:
            values = {
                name: [
                    result.estimate(metric.name, metric.voxels, label=structure).value
                    for structure in meaning.structures
                ]
                for name, result in self.results.items()
            }
            frames[metric] = pd.DataFrame(values, meaning.names)
        return frames


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
        "numbers of bins": lambda one: one.settings.num_bins,
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
    sizes = np.stack(
        [result.counts.truth.voxels for result in shared.values() if result.counts.truth]
    )
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
        counts = f"{len(first.cases)} of {len(every)} cases are compared"
        notes.append(f"{counts}. Left out, because some methods lack them: {_first_few(left_out)}.")
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
        for setting in ("protocol", "margin_mm", "tolerance_mm")
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
    """``one: 15; other: 10``; empty if all methods are alike."""
    values = {name: describe(result) for name, result in results.items()}
    if len({*values.values()}) < 2:
        return ""
    return "; ".join(f"{name}: {value}" for name, value in values.items())


def _first_few(names: Collection[str]) -> str:
    """``A, B, C``, or the first five and how many more."""
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def of_each(make: Callable[[Comparison], Made]) -> Callable[[Sequence[Comparison]], list[Made]]:
    """Turn a function of one data set's comparison into one of several, which returns a list."""
    return lambda comparisons: [make(comparison) for comparison in comparisons]
