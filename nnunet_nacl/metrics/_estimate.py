"""A value over all cases, its interval by the bootstrap, and paired differences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import (
    BinCounts,
    expected_calibration_error,
    mean_of_known,
    ratio,
)
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._registry import MetricDefinition
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats, Mask

NUM_RESAMPLES = 2000

Interval = tuple[float, float]
"""Lower and upper end; both NaN where there is no interval."""


@lru_cache(maxsize=8)
def resample_weights(num_cases: int, resamples: int, seed: int) -> Floats:
    """Count how often each bootstrap resample drew each case: float64 (resamples, cases), read-only.

    The seed is fixed, so that the same cases give the same intervals, and the resamples are the same for every metric
    and method, so that differences between methods are paired. Weighted sums over cases are sums over the drawn cases.
    """
    drawn = np.random.default_rng(seed).integers(0, num_cases, (resamples, num_cases))
    weights = np.array([np.bincount(row, minlength=num_cases) for row in drawn], np.float64)
    weights.setflags(write=False)
    return weights


def case_weights(
    patients: NDArray[np.intp], resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Floats:
    """Count how often each bootstrap resample of patients drew each case; patients are numbers from 0.

    Two images of one patient are no two witnesses: drawn one by one, they would make intervals too narrow.
    """
    return resample_weights(int(patients.max(initial=-1)) + 1, resamples, seed)[:, patients]


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
        """Average values (cases, structures) over cases, then structures; NaN ones are left out."""
        patients = np.arange(len(values)) if patients is None else patients
        known = (~np.isnan(values)).astype(np.float64)
        filled = np.nan_to_num(values)
        return cls(
            lambda weights: mean_of_known(ratio(weights @ filled, weights @ known)),
            patients,
            np.asarray(known.any(1)),
            mean_of_known(values),
            values,
        )

    @classmethod
    def of_tables(
        cls,
        metric: MetricDefinition,
        tables: CalibrationTables,
        patients: NDArray[np.intp] | None = None,
    ) -> "Estimate":
        """Return a metric of the voxels of all cases together; the first axis of the tables is that of the cases."""
        from_tables = metric.from_tables
        assert from_tables is not None, metric.name
        patients = np.arange(len(tables.nll)) if patients is None else patients

        def resampled(weights: Floats) -> Floats:
            values = from_tables(tables.weighted(weights))
            return np.full(len(weights), np.nan) if values is None else mean_of_known(values)

        if metric.case_score is not None:
            return cls(resampled, patients, np.ones(len(patients), bool), metric.case_score(tables))
        return cls(resampled, patients, np.asarray(tables.top.total.any(-1)))

    @cached_property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, len(self.patients))))[0])

    @property
    def num_known(self) -> int:
        """The number of patients that have a value."""
        return np.unique(self.patients[self.is_known]).size

    @property
    def by_patient(self) -> Floats | None:
        """The means of each patient's cases, (patients,); NaN without a value."""
        if self.by_case is None:
            return None
        sums = np.bincount(self.patients, np.nan_to_num(self.by_case)).astype(np.float64)
        return ratio(sums, np.bincount(self.patients, ~np.isnan(self.by_case)))

    @cached_property
    def interval(self) -> Interval:
        """95 % percentile bootstrap interval over patients; NaN for fewer than two.

        Resamples without a value, which have no voxels, are left out.
        """
        # In parts, since the tables of all resamples take much memory with many classes
        parts = np.array_split(case_weights(self.patients), 10)
        values = np.concatenate(list(map(self.resampled, parts)))
        known = values[~np.isnan(values)]
        if self.num_known < 2 or known.size == 0:
            return np.nan, np.nan
        low, high = np.percentile(known, [2.5, 97.5])
        return float(low), float(high)

    def minus(self, other: "Estimate") -> "Estimate":
        """Return the difference over the same resamples: of means, over the cases and structures that both have."""
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
    """Return the 95 % interval of the pooled ECE that a perfectly calibrated model would have on as many such cases.

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
        drawn = each_column(lambda column: np.tensordot(weights, column, 1), right)
        return mean_of_known(expected_calibration_error(drawn))

    return Estimate(errors, np.arange(len(gaps)), np.asarray(tables.total.any(1))).interval
