"""Methods on one data set, over the cases that they share: all numbers that are shown of them.

Tables, plots and pages take their numbers from here alone, so all of them are over the same cases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import (
    CALIBRATION_METRICS,
    SEGMENTATION_METRICS,
    VOXEL_SETS,
    Estimate,
    Voxels,
)
from nnunet_nacl.nnunet import calibration_of
from nnunet_nacl.patients import patient_numbers
from nnunet_nacl.report._choice import DICE, Choice, Metric, choose
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._statistics import Difference, Order, differences, order

Results = Mapping[str, FolderResult]
"""Method -> result."""
Made = TypeVar("Made")
# A structure must be in so many cases, or in all if they are fewer, before a method is said not to find it
_CASES_TO_FIND_IT = 3


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

    @cached_property
    def estimates(self) -> dict[Metric, dict[str, Estimate]]:
        """Metric -> method -> its estimate."""
        metrics = [
            *(Metric(name, one) for one in VOXEL_SETS for name in CALIBRATION_METRICS),
            *map(Metric, SEGMENTATION_METRICS),
        ]
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
                if missed.size >= min(_CASES_TO_FIND_IT, len(self.cases)) and missed.all():
                    found.setdefault(name, {})[structure] = missed.size
        return found

    @cached_property
    def differences(self) -> dict[Metric, dict[str, Difference]]:
        """Metric that is shown -> other method -> its difference to the baseline."""
        shown = self.choice.leading + self.choice.paper
        return {metric: differences(self.estimates[metric]) for metric in shown}

    def order_by(self, metric: Metric) -> Order:
        """Order the methods, but for those that find nothing of a structure."""
        found = {
            name: estimate
            for name, estimate in self.estimates[metric].items()
            if name not in self.finds_nothing
        }
        higher_is_better = bool(metric.definition.higher_is_better)
        return order(found, higher_is_better, self.num_patients)

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


def of_each(make: Callable[[Comparison], Made]) -> Callable[[Sequence[Comparison]], list[Made]]:
    """Turn a function of one data set's comparison into one of several, which returns a list."""
    return lambda comparisons: [make(comparison) for comparison in comparisons]
