"""The tables that every calibration metric of a voxel set is computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import mean_of_known
from nnunet_nacl.metrics._registry import CALIBRATION_METRICS, MetricDefinition
from nnunet_nacl.typing import Floats, Numbers, Record

_SUMS = ("nll", "brier", "image_voxels")
_BIN_TABLES = ("top", "classwise", "expected_top", "expected_classwise")


@dataclass(frozen=True)
class CalibrationTables:
    """Counts and sums over one voxel set of a case, or of several added up.

    For C classes there is one top-label table, T = 1. For C regions there are T = C, one a region (confidence =
    max(p, 1 − p), hit = the region's mask is right), since each has a voxel set of its own; metrics are then means over
    the regions whose set is not empty.

    Attributes:
        top: top-label tables (T, M).
        classwise: tables (C, M) of each channel: confidence = p_k, hit = y is k, or lies in region k.
        nll: float64 (T,), sum of the negative log-likelihoods; ``brier`` of the Brier scores.
        num_classes: how many channels enter CECE: C, or fewer with the authors' protocol.
        activation: of classes, channel 0 is the background.
        image_voxels: int64 (T,), voxels of the image that are not ignored.
        expected_top: what ``top`` would hold in expectation if labels were drawn from the probabilities, as
            ``expected_classwise``; None for voxel sets without a closed form, and with the authors' protocol.
    """

    top: BinCounts
    classwise: BinCounts
    nll: Floats
    brier: Floats
    num_classes: int
    activation: Activation
    image_voxels: NDArray[np.int64]
    expected_top: BinCounts | None = None
    expected_classwise: BinCounts | None = None

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value:.3f}" for name, value in self.metrics().items())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything except the activation as arrays; of bin tables ``TABLE_count`` and so on."""
        found = {name: np.asarray(getattr(self, name)) for name in (*_SUMS, "num_classes")}
        for name in _BIN_TABLES:
            table = getattr(self, name)
            if table is not None:
                found |= {f"{name}_{part}": array for part, array in vars(table).items()}
        return found

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], activation: Activation
    ) -> "CalibrationTables":
        """The opposite of ``arrays``."""
        found: Record = {name: arrays[name] for name in (*_SUMS, "num_classes")}
        for name in _BIN_TABLES:
            if f"{name}_count" in arrays:
                found[name] = BinCounts(
                    *(arrays[f"{name}_{part.name}"] for part in fields(BinCounts))
                )
        return cls(activation=activation, **found)

    def __add__(self, other: "CalibrationTables") -> "CalibrationTables":
        sums: Record = {}
        for name in (*_BIN_TABLES, *_SUMS):
            own = getattr(self, name)
            others = getattr(other, name)
            sums[name] = None if own is None or others is None else own + others
        return replace(self, num_classes=max(self.num_classes, other.num_classes), **sums)

    @classmethod
    def stack(cls, tables: "Sequence[CalibrationTables]") -> "CalibrationTables":
        """Those of several cases as one object, whose arrays have the cases as leading axis."""
        stacked: Record = {name: np.stack([getattr(one, name) for one in tables]) for name in _SUMS}
        for name in _BIN_TABLES:
            of_cases = [getattr(one, name) for one in tables]
            stacked[name] = None if None in of_cases else BinCounts.stack(of_cases)
        num_classes = max(one.num_classes for one in tables)
        return replace(tables[0], num_classes=num_classes, **stacked)

    def resampled(self, weights: Floats) -> "CalibrationTables":
        """Of stacked cases: (resamples, ...), the sums over the cases that each resample drew."""
        drawn: Record = {name: np.tensordot(weights, getattr(self, name), 1) for name in _SUMS}
        for name in _BIN_TABLES:
            of_cases = getattr(self, name)
            drawn[name] = None if of_cases is None else of_cases.resampled(weights)
        return replace(self, **drawn)

    @property
    def foreground_voxels(self) -> int:
        """Ground truth foreground voxels in the set; for regions, summed over all regions."""
        return int(self.classwise.hits[self.activation.first_structure :].sum())

    def metrics(self) -> Numbers:
        """The metrics, expected ones where there are such tables; NaN for an empty voxel set."""
        return dict(self._metrics)

    @cached_property
    def _metrics(self) -> Numbers:
        of_set = [metric for metric in CALIBRATION_METRICS.values() if metric.over_cases != "sums"]
        return self._values(of_set)

    def _values(self, metrics: Sequence[MetricDefinition]) -> Numbers:
        """Name -> value of those that these tables have."""
        found = {}
        for metric in metrics:
            values = None if metric.of is None else metric.of(self)
            if values is not None:
                found[metric.name] = float(mean_of_known(values))
        return found

    @property
    def ECE(self) -> float:  # noqa: N802 - as in papers
        """Expected calibration error of the predicted label."""
        return self._metrics["ECE"]

    @property
    def NLL_per_foreground(self) -> float:  # noqa: N802
        """See ``per_foreground``."""
        return self.per_foreground()["NLL_per_foreground"]

    def class_metrics(self) -> list[Numbers]:
        """The metrics of each channel that a single class has."""
        of_channels: list[Numbers] = [{} for _ in self.classwise.total]
        for metric in CALIBRATION_METRICS.values():
            if metric.of_class is None:
                continue
            for found, value in zip(of_channels, metric.of_class(self.classwise), strict=True):
                found[metric.name] = float(value)
        return of_channels

    def score_sums(self) -> Numbers:
        """The sums that ``per_foreground`` divides."""
        return {
            "NLL_sum": float(self.nll.sum()),
            "Brier_sum": float(self.brier.sum()),
            "foreground_voxels": self.foreground_voxels,
        }

    def per_foreground(self) -> Numbers:
        """NLL and Brier, summed over the set's voxels and divided by the ground truth foreground voxels.

            NLL = Σ_i -ln p_i(y_i) / Σ_i [y_i > 0]

        Of the image's tables of all cases added up, these are proper scores: every method is divided by the same
        number, no voxel is chosen by its label, and cases without foreground count. NaN without foreground.
        """
        scores = [metric for metric in CALIBRATION_METRICS.values() if metric.over_cases == "sums"]
        return self._values(scores)
