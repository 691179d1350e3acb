"""A value over all cases, and over bootstrap resamples of them: its interval, and paired differences."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnunet_nacl.metrics._bootstrap import (
    Interval,
    mean_of_known,
    percentile_interval,
    ratio,
    resample_weights,
)
from nnunet_nacl.metrics._registry import MetricDefinition
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats


@dataclass(eq=False)
class Estimate:
    """A metric over cases.

    ``resampled`` gives (resamples,) values from weights (resamples, cases): how often each case was drawn.
    ``num_known`` cases have a value. ``by_case`` are the cases' values to rank and to test, None if a single case has
    none; ``values`` (cases, structures) are given for a mean over structures of means over cases.
    """

    resampled: Callable[[Floats], Floats]
    num_cases: int
    num_known: int
    by_case: Floats | None = None
    values: Floats | None = None

    @classmethod
    def of_means(cls, values: Floats) -> "Estimate":
        """Mean over structures of their means over cases, NaN ones left out; values: (cases, structures)."""
        known = (~np.isnan(values)).astype(np.float64)
        filled = np.nan_to_num(values)

        def resampled(weights: Floats) -> Floats:
            return mean_of_known(ratio(weights @ filled, weights @ known))

        return cls(resampled, len(values), int(known.any(1).sum()), mean_of_known(values), values)

    @classmethod
    def of_tables(cls, metric: MetricDefinition, tables: CalibrationTables) -> "Estimate":
        """A metric of the voxels of all cases together; the first axis of the tables is that of the cases."""
        of = metric.of
        if of is None:
            raise ValueError(f"{metric.name} is not a metric of calibration tables.")

        def resampled(weights: Floats) -> Floats:
            values = of(tables.resampled(weights))
            return np.full(len(weights), np.nan) if values is None else mean_of_known(values)

        num_cases = len(tables.nll)
        if metric.of_case is not None:
            return cls(resampled, num_cases, num_cases, metric.of_case(tables))
        return cls(resampled, num_cases, int(tables.top.total.any(-1).sum()))

    @cached_property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, self.num_cases)))[0])

    @cached_property
    def interval(self) -> Interval:
        """95 % percentile bootstrap interval over cases; NaN for fewer than two cases."""
        return percentile_interval(
            self.resampled(resample_weights(self.num_cases)), num_cases=self.num_known
        )

    @property
    def reach(self) -> list[list[float]] | None:
        """How far the interval reaches below and above the value, as Matplotlib takes error bars; None if it is NaN."""
        low, high = self.interval
        # A percentile interval need not contain the value; error bars may not be negative.
        return None if np.isnan(low) else [[max(self.value - low, 0)], [max(high - self.value, 0)]]

    def shared_with(self, other: "Estimate") -> "Estimate":
        """The same estimate over the cases and structures that both have."""
        if self.values is None or other.values is None:
            return self
        return Estimate.of_means(np.where(np.isnan(other.values), np.nan, self.values))

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference over the same resamples, and cases and structures that both have."""
        if self.values is not None and other.values is not None:
            return Estimate.of_means(self.values - other.values)
        by_case = (
            None if self.by_case is None or other.by_case is None else self.by_case - other.by_case
        )
        num_known = min(self.num_known, other.num_known)
        return Estimate(
            lambda w: self.resampled(w) - other.resampled(w), self.num_cases, num_known, by_case
        )
