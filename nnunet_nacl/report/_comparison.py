"""Methods on one data set: their cases' values, their bin tables, and what is shown of these.

What ``evaluate`` has counted is read here alone, so all that is shown has the same cases and voxel sets; its files and
commands are read wherever they are shown.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnunet_nacl.evaluation import FolderResult, Origin
from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    LABEL_FREE,
    PAPER_METRICS,
    SEGMENTATION_METRICS,
    LabelMeaning,
    Voxels,
)
from nnunet_nacl.nnunet import CaseStates
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._statistics import MetricOfMethods

Results = Mapping[str, FolderResult]
"""Method -> result."""
Made = TypeVar("Made")


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Methods on one data set, over the cases and voxel sets that all of them have.

    Attributes:
        dataset: may be empty.
        results: of the methods, by name; the first is the baseline.
        cases: their names.
        voxels: the shared voxel sets.
        notes: what was left out or differs between the methods.
        patients: (cases,) the number of each case's patient, from 0.
    """

    dataset: str
    results: Results
    cases: list[str]
    voxels: list[Voxels]
    notes: list[str]
    patients: NDArray[np.intp]

    @cached_property
    def by_metric(self) -> dict[Metric, MetricOfMethods]:
        """Each metric, of all methods."""
        metrics = [Metric(name, one) for one in self.voxels for name in CALIBRATION_METRICS]
        metrics += [Metric(name) for name in SEGMENTATION_METRICS]
        return {
            metric: MetricOfMethods(
                metric,
                {
                    method: result.estimate(metric.name, metric.voxels, self.patients)
                    for method, result in self.results.items()
                },
            )
            for metric in metrics
        }

    @cached_property
    def reliability(self) -> dict[Voxels, dict[str, Reliability]]:
        """Voxel set -> method -> what all cases' voxels say of its confidences."""
        cases_of = np.equal.outer(np.unique(self.patients), self.patients).astype(np.float64)
        return {
            voxels: {
                name: Reliability(
                    name, result.counts.calibration[voxels].weighted(cases_of), self.structures
                )
                for name, result in self.results.items()
            }
            for voxels in self.voxels
        }

    @property
    def names(self) -> list[str]:
        """The names of the methods, the baseline first."""
        return list(self.results)

    @property
    def baseline(self) -> str:
        return self.names[0]

    @property
    def meaning(self) -> LabelMeaning:
        """The meaning of the labels, which is that of the baseline's result."""
        return self.results[self.baseline].meaning

    @property
    def structures(self) -> list[str]:
        return self.meaning.names

    @property
    def origins(self) -> dict[str, Origin]:
        """What each method's values were computed from."""
        return {name: result.origin for name, result in self.results.items()}

    def file_states(self, case: str) -> dict[str, CaseStates]:
        """The states of a case's files when each method was evaluated."""
        row = self.cases.index(case)
        return {name: result.counted[row].states for name, result in self.results.items()}

    @property
    def has_scores(self) -> bool:
        """Whether there are NLL and Brier per foreground voxel."""
        return all(result.has_scores() for result in self.results.values())

    @property
    def has_surface(self) -> bool:
        return all(origin.settings.surface for origin in self.origins.values())

    @property
    def segmentation_metrics(self) -> list[Metric]:
        """Dice, and HD95 if surfaces were measured."""
        return [DICE, Metric("HD95")] if self.has_surface else [DICE]

    def of_methods(self, names: Collection[str]) -> "Comparison":
        """The comparison of some of the methods, on the same cases."""
        return replace(
            self, results={name: self.results[name] for name in self.names if name in names}
        )

    def of_case(self, case: str) -> "Comparison":
        """The comparison of all methods on a single case."""
        row = self.cases.index(case)
        results = {name: result.take([row]) for name, result in self.results.items()}
        return replace(self, results=results, cases=[case], patients=np.zeros(1, np.intp))

    def values_of(self, metric: Metric) -> pd.DataFrame:
        """(cases, methods) the metric of each case; of a segmentation, the mean over its structures."""
        values = {
            name: result.values(metric.name, metric.voxels) for name, result in self.results.items()
        }
        return pd.DataFrame(values, self.cases)

    @property
    def mask_dices(self) -> dict[str, pd.DataFrame]:
        """Method -> (cases, structures) Dice of what probabilities alone segment; of classes, the label map's."""
        dices = {}
        for name, result in self.results.items():
            measured = result.counts.segmentation_metrics["Dice"]
            dices[name] = pd.DataFrame(measured, self.cases, self.structures)
        return dices

    def of_structures(self, metric: Metric) -> dict[str, list[float]]:
        """Method -> the metric of each structure: a mean over cases, but for errors that are pooled."""
        return {
            name: [
                result.estimate(metric.name, metric.voxels, label=structure).value
                for structure in result.structures
            ]
            for name, result in self.results.items()
        }


@dataclass(frozen=True, eq=False)
class View:
    """A comparison as it is shown: by which metrics, over which voxel sets, and which cases.

    Each table and plot is over its usual voxel sets, or all are over the one that is asked for.

    Raises:
        ValueError: the comparison lacks the set that is asked for.
    """

    comparison: Comparison
    asked: Voxels | None = None

    def __post_init__(self) -> None:
        voxels = self.comparison.voxels
        if self.asked and self.asked not in voxels:
            with naming(self.comparison.dataset):
                raise ValueError(f"voxels: expected one of {', '.join(voxels)}; got {self.asked}.")

    @property
    def main(self) -> Voxels:
        """The voxel set of everything that is shown over one set: near, or the first if near was not evaluated."""
        voxels = self.comparison.voxels
        usual: Voxels = "near" if "near" in voxels else voxels[0]
        return self.asked or usual

    @property
    def judging_set(self) -> Voxels | None:
        """The voxel set whose ECE judges calibration: near, else the image, else none; or the one that is asked for."""
        usual = [one for one in LABEL_FREE if one in self.comparison.voxels]
        return self.asked or next(iter(usual), None)

    @property
    def scores(self) -> list[Metric]:
        """NLL and Brier per foreground voxel, if they were counted."""
        if not self.comparison.has_scores:
            return []
        return [Metric("NLL_per_foreground", "image"), Metric("Brier_per_foreground", "image")]

    @property
    def judging_metrics(self) -> list[Metric]:
        """NLL per foreground voxel, if it was counted, and the ECE over the judging set; none without such a set.

        A perfectly calibrated model has the lowest; but not of an ECE over a set that is asked for and that labels
        choose: see the value beside it, if perfectly calibrated.
        """
        if self.judging_set is None:
            return []
        return [*self.scores[:1], Metric("ECE", self.judging_set)]

    @property
    def paper_metrics(self) -> list[Metric]:
        """The paper's metrics: ECE and CECE over each set that labels choose, or over the set that is asked for."""
        by_label = [one for one in BY_LABEL if one in self.comparison.voxels]
        sets = [self.asked] if self.asked else by_label
        return [Metric(name, one) for name in PAPER_METRICS for one in sets]

    @property
    def leading_metrics(self) -> list[Metric]:
        """The columns of the table of methods; without near and image, the paper's metrics."""
        errors = self.paper_metrics
        if self.judging_set is not None:
            errors = [Metric("ECE", self.judging_set)]
        return [*self.comparison.segmentation_metrics, *self.scores, *errors]

    @property
    def chosen_cases(self) -> dict[str, str]:
        """Case -> why it is shown: chosen by the mean of the methods' ECE, and by how much the methods differ."""
        names = self.comparison.names
        errors = self.comparison.values_of(Metric("ECE", self.main))
        means = errors.mean(axis=1, skipna=False).dropna()
        order = list(means.sort_values(kind="stable").index)
        if len(order) < 2:
            return dict.fromkeys(order, "The only case")
        # Of few cases, one may be chosen more than once, and keeps the last title
        titles = {
            order[-1]: "Worst calibrated case",
            order[(len(order) - 1) // 2]: "Median case",
            order[0]: "Best calibrated case",
        }
        others = [case for case in order if case not in titles]
        if len(names) > 1 and others:
            spread = errors.max(axis=1) - errors.min(axis=1)
            titles = {spread[others].idxmax(): "Where the methods differ most", **titles}
        return titles


@contextmanager
def naming(dataset: str) -> Iterator[None]:
    """Name the data set, if it has a name, in a ValueError."""
    try:
        yield
    except ValueError as error:
        if not dataset:
            raise
        raise ValueError(f"{dataset}: {error}") from error


def of_each(make: Callable[[View], Made]) -> Callable[[Sequence[View]], list[Made]]:
    """A function that shows each of several data sets, from one that shows a single one."""
    return lambda views: [make(view) for view in views]
