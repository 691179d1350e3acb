"""A value over all cases, and over bootstrap resamples of them: its interval, paired differences, error by chance."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import Interval, case_weights, percentile_interval
from nnunet_nacl.metrics._calibration import expected_calibration_error
from nnunet_nacl.metrics._means import mean_of_known, ratio
from nnunet_nacl.metrics._registry import CalibrationTables, MetricDefinition
from nnunet_nacl.typing import Floats, Mask


@dataclass(eq=False)
class Estimate:
    """A metric over cases.

    Attributes:
        resampled: gives (resamples,) values from weights (resamples, cases): how often each case was drawn.
        patients: (cases,) the number of each case's patient, from 0, by default its own: patients are drawn and tested,
            not cases.
        is_known: (cases,) whether a case has a value.
        by_case: (cases,) values to rank and to test; None if a single case has none.
        values: (cases, structures), given for a mean over structures of means over cases.
    """

    resampled: Callable[[Floats], Floats]
    patients: NDArray[np.intp]
    is_known: Mask
    by_case: Floats | None = None
    values: Floats | None = None

    @classmethod
    def of_means(cls, values: Floats, patients: NDArray[np.intp] | None = None) -> "Estimate":
        """Mean over structures of their means over cases, NaN ones left out; values: (cases, structures)."""
        patients = np.arange(len(values)) if patients is None else patients
        known = (~np.isnan(values)).astype(np.float64)
        filled = np.nan_to_num(values)

        def resampled(weights: Floats) -> Floats:
            return mean_of_known(ratio(weights @ filled, weights @ known))

        return cls(resampled, patients, np.asarray(known.any(1)), mean_of_known(values), values)

    @classmethod
    def of_tables(
        cls,
        metric: MetricDefinition,
        tables: CalibrationTables,
        patients: NDArray[np.intp] | None = None,
    ) -> "Estimate":
        """A metric of the voxels of all cases together; the first axis of the tables is that of the cases."""
        of = metric.of
        if of is None:
            raise ValueError(f"{metric.name} is not a metric of calibration tables.")
        patients = np.arange(len(tables.nll)) if patients is None else patients

        def resampled(weights: Floats) -> Floats:
            values = of(tables.weighted(weights))
            return np.full(len(weights), np.nan) if values is None else mean_of_known(values)

        if metric.of_case is not None:
            return cls(resampled, patients, np.ones(len(patients), bool), metric.of_case(tables))
        return cls(resampled, patients, np.asarray(tables.top.total.any(-1)))

    @cached_property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, len(self.patients))))[0])

    @cached_property
    def drawn(self) -> Floats:
        """(resamples,) the values over resamples of the patients."""
        return self.resampled(case_weights(self.patients))

    @property
    def num_known(self) -> int:
        """How many patients have a value."""
        return np.unique(self.patients[self.is_known]).size

    @property
    def by_patient(self) -> Floats | None:
        """(patients,) means of the cases' values; NaN without any."""
        if self.by_case is None:
            return None
        sums = np.bincount(self.patients, np.nan_to_num(self.by_case)).astype(np.float64)
        return ratio(sums, np.bincount(self.patients, ~np.isnan(self.by_case)))

    @cached_property
    def interval(self) -> Interval:
        """95 % percentile bootstrap interval over patients; NaN for fewer than two."""
        return percentile_interval(self.drawn, num_cases=self.num_known)

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference over the same resamples, and cases and structures that both have."""
        if self.values is not None and other.values is not None:
            return Estimate.of_means(self.values - other.values, self.patients)
        by_case = None
        if self.by_case is not None and other.by_case is not None:
            # Sums over voxels may be of any size, and so are their rounding errors
            alike = np.isclose(self.by_case, other.by_case, rtol=1e-9, atol=0)
            by_case = np.where(alike, 0, self.by_case - other.by_case)
        return Estimate(
            lambda w: self.resampled(w) - other.resampled(w),
            self.patients,
            self.is_known & other.is_known,
            by_case,
        )


def error_by_chance(tables: BinCounts) -> Interval:
    """95 % interval of the pooled ECE that a perfectly calibrated model would have on as many such cases.

    Tables are top-label ones, (cases, T, M).

    Such a model's gaps in each bin, confidences minus hits, have mean 0 over cases. So each bin's mean gap is
    subtracted from the cases, ``g_im - n_im Σ_i g_im / Σ_i n_im``, and the cases are resampled.
    """
    gaps = tables.confidence - tables.hits
    centered = gaps - tables.count * np.nan_to_num(ratio(gaps.sum(0), tables.count.sum(0)))
    # The residuals of n cases vary by (n − 1) / n less than the gaps do.
    spread = np.sqrt(len(gaps) / max(len(gaps) - 1, 1))
    right = replace(tables, confidence=tables.hits + centered * spread)

    def errors(weights: Floats) -> Floats:
        return mean_of_known(expected_calibration_error(right.resampled(weights)))

    return Estimate(errors, np.arange(len(gaps)), np.asarray(tables.total.any(1))).interval
