"""The tables that every calibration metric of a voxel set is computed from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nnunet_nacl.metrics._bins import Tables
from nnunet_nacl.metrics._bootstrap import mean_of_known
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._registry import CALIBRATION_METRICS, MetricDefinition
from nnunet_nacl.typing import Floats, Record


@dataclass(frozen=True)
class CalibrationTables(Tables):
    """Counts and sums over one voxel set, the fields of ``Tables``, and the metrics that follow from them."""

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value:.3f}" for name, value in self.metrics().items())

    def sum(self) -> "CalibrationTables":
        """Those of all cases added up."""
        return replace(
            each_column(lambda _, column: column.sum(0), self), num_classes=self.num_classes.max(0)
        )

    def resampled(self, weights: Floats) -> "CalibrationTables":
        """(resamples, ...), the sums over the cases that each resample drew."""
        drawn = each_column(lambda _, column: np.tensordot(weights, column, 1), self)
        return replace(drawn, num_classes=self.num_classes.max())

    def metrics(self) -> Record:
        """The metrics (...), expected ones where there are such tables; NaN for an empty voxel set."""
        return dict(self._metrics)

    @cached_property
    def _metrics(self) -> Record:
        of_set = [metric for metric in CALIBRATION_METRICS.values() if metric.over_cases != "sums"]
        return self._values(of_set)

    def _values(self, metrics: Sequence[MetricDefinition]) -> Record:
        """Name -> value of those that these tables have."""
        found = {}
        for metric in metrics:
            values = None if metric.of is None else metric.of(self)
            if values is not None:
                found[metric.name] = mean_of_known(values)[()]  # a number without leading axes
        return found

    @property
    def ECE(self) -> float:  # noqa: N802 - as in papers
        """Expected calibration error of the predicted label."""
        return float(self._metrics["ECE"])

    @property
    def NLL_per_foreground(self) -> float:  # noqa: N802
        """See ``per_foreground``."""
        return float(self.per_foreground()["NLL_per_foreground"])

    def class_metrics(self) -> Record:
        """The metrics (..., C) of each channel that a single class has."""
        return {
            metric.name: metric.of_class(self.classwise)
            for metric in CALIBRATION_METRICS.values()
            if metric.of_class is not None
        }

    def score_sums(self) -> Record:
        """The sums (...) that ``per_foreground`` divides."""
        return {
            "NLL_sum": self.nll.sum(-1),
            "Brier_sum": self.brier.sum(-1),
            "foreground_voxels": self.foreground_voxels,
        }

    def per_foreground(self) -> Record:
        """NLL and Brier, summed over the set's voxels and divided by the ground truth foreground voxels.

            NLL = Σ_i -ln p_i(y_i) / Σ_i [y_i > 0]

        Of the image's tables of all cases added up, these are proper scores: every method is divided by the same
        number, no voxel is chosen by its label, and cases without foreground count. NaN without foreground.
        """
        scores = [metric for metric in CALIBRATION_METRICS.values() if metric.over_cases == "sums"]
        return self._values(scores)
