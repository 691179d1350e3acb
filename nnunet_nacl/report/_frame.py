"""Methods on one data set: their cases' values in a data frame, and their bin tables.

What ``evaluate`` has counted is read here alone, so all that is shown has the same cases and voxel sets.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnunet_nacl.evaluation import FolderResult, Origin
from nnunet_nacl.metrics import (
    CALIBRATION_METRICS,
    SEGMENTATION_METRICS,
    VOXEL_SETS,
    Estimate,
    LabelMeaning,
    Voxels,
    expected_calibration_error,
    mean_of_known,
)
from nnunet_nacl.names import cases_of_patients
from nnunet_nacl.nnunet import CaseStates
from nnunet_nacl.report._metrics import DICE, LABEL_FREE, Metric
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._statistics import MetricOfMethods
from nnunet_nacl.typing import Floats

Results = Mapping[str, FolderResult]
"""Method -> result."""


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
    def values(self) -> pd.DataFrame:
        """Of the cases. NaN where not defined.

        Rows: method, case. Columns: voxels (empty for metrics of the segmentation), metric, structure (empty for what
        belongs to no single structure).
        """
        of_methods = {}
        for name, result in self.results.items():
            columns: dict[tuple[str, str, str], Floats] = {}
            for one in self.voxels:
                for metric in CALIBRATION_METRICS:
                    columns[one, metric, ""] = result.values(one, metric)
            for metric in SEGMENTATION_METRICS:
                for structure in result.structures:
                    of_cases = result.segmentation(structure, metric)
                    columns["", metric, result.meaning.name_of(structure)] = of_cases
            of_methods[name] = pd.DataFrame(columns, result.cases)
        values = pd.concat(of_methods, names=["method", "case"])
        return values.rename_axis(columns=["voxels", "metric", "structure"])

    @cached_property
    def by_metric(self) -> dict[Metric, MetricOfMethods]:
        """Each metric of ``values``, of all methods."""
        of_values = self.values.columns.droplevel("structure").unique()
        metrics = [Metric(name, voxels) for voxels, name in of_values]
        return {
            metric: MetricOfMethods(
                metric, {method: self._estimate(metric, method) for method in self.names}
            )
            for metric in metrics
        }

    def _estimate(self, metric: Metric, method: str) -> Estimate:
        if metric.voxels and metric.is_pooled:
            tables = self.results[method].tables(metric.voxels)
            return Estimate.of_tables(metric.definition, tables, self.patients)
        of_cases = self.values_of(metric).loc[method]
        return Estimate.of_means(of_cases.to_numpy(np.float64), self.patients)

    @cached_property
    def reliability(self) -> dict[Voxels, dict[str, Reliability]]:
        """Voxel set -> method -> what all cases' voxels say of its confidences."""
        cases_of = np.equal.outer(np.unique(self.patients), self.patients).astype(np.float64)
        return {
            voxels: {
                name: Reliability(name, result.tables(voxels).resampled(cases_of), self.structures)
                for name, result in self.results.items()
            }
            for voxels in self.voxels
        }

    @property
    def names(self) -> list[str]:
        """Of the methods."""
        return list(self.results)

    @property
    def baseline(self) -> str:
        return self.names[0]

    @property
    def meaning(self) -> LabelMeaning:
        """Of the labels."""
        return self.results[self.baseline].meaning

    @property
    def structures(self) -> list[str]:
        return self.meaning.names

    @property
    def origins(self) -> dict[str, Origin]:
        """What each method's values were computed from."""
        return {name: result.origin for name, result in self.results.items()}

    @property
    def summaries(self) -> dict[str, Path | None]:
        """The summary that each method's values were read from, if any."""
        return {name: result.file for name, result in self.results.items()}

    @property
    def wide(self) -> list[str]:
        """Methods whose near is nearly the whole of the images."""
        return [name for name, result in self.results.items() if result.near_is_wide]

    def file_states(self, case: str) -> dict[str, CaseStates]:
        """The states of a case's files when each method was evaluated."""
        row = self.cases.index(case)
        return {name: result.counted[row].states for name, result in self.results.items()}

    @property
    def has_scores(self) -> bool:
        """Whether there are NLL and Brier per foreground voxel."""
        return "image" in self.voxels and all(
            origin.settings.counts_all_voxels for origin in self.origins.values()
        )

    @property
    def has_surface(self) -> bool:
        return all(origin.settings.surface for origin in self.origins.values())

    @property
    def segmentation_metrics(self) -> list[Metric]:
        """Dice, and HD95 if surfaces were measured."""
        return [DICE, Metric("HD95")] if self.has_surface else [DICE]

    def of_methods(self, names: Collection[str]) -> "Comparison":
        """Some of the methods, on the same cases."""
        return replace(
            self, results={name: self.results[name] for name in self.names if name in names}
        )

    def of_case(self, case: str) -> "Comparison":
        """A single case."""
        results = {name: _only_cases(result, [case]) for name, result in self.results.items()}
        return replace(self, results=results, cases=[case], patients=np.zeros(1, np.intp))

    def values_of(self, metric: Metric) -> pd.DataFrame:
        """The cases' values of a metric: rows method, case; a column for each structure, or one."""
        key = (metric.voxels, metric.name)
        return self.values.xs(key, axis=1, level=["voxels", "metric"])

    def class_errors(self, voxels: Voxels) -> dict[str, Floats]:
        """Method -> ECE of each structure's own probability, as a mean over cases.

        Where labels do not choose the voxels, that of all cases together.
        """
        found = {}
        for name, result in self.results.items():
            tables = result.tables(voxels).classwise
            if voxels in LABEL_FREE:
                tables = tables.sum()[None]
            errors = mean_of_known(expected_calibration_error(tables).T)
            found[name] = errors[-len(self.structures) :]
        return found


Comparable = Mapping[str, Results] | Sequence[Comparison]
"""Data set -> method -> result, or what ``compare_all`` made of these."""


def compare_all(
    results: Mapping[str, Results], *, by_patient: bool | str = False
) -> list[Comparison]:
    """A comparison for each data set of data set -> method -> result; ``by_patient`` is that of ``compare``."""
    return [
        compare(methods, dataset, by_patient=by_patient) for dataset, methods in results.items()
    ]


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


def _check_alike(what: str, results: Results, told: Callable[[FolderResult], str]) -> None:
    """Raise a ValueError unless ``told`` gives the same for all results."""
    by_method = {name: told(result) for name, result in results.items()}
    if len(set(by_method.values())) > 1:
        shown = "; ".join(f"{name}: {found}" for name, found in by_method.items())
        raise ValueError(f"the methods have different {what} ({shown}); evaluate them alike.")


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
        tables = [result.tables(whole).classwise for result in comparison.results.values()]
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
