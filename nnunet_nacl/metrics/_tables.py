"""The tables that every calibration metric of a voxel set is computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import mean_of_known, ratio
from nnunet_nacl.metrics._calibration import (
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nnunet_nacl.typing import Floats, Numbers, Record

_SUMS = ("nll", "brier", "image_voxels")
_BIN_TABLES = ("top", "classwise", "expected_top", "expected_classwise")
SCORES = ("NLL_per_foreground", "Brier_per_foreground")


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

    @property
    def foreground_voxels(self) -> int:
        """Ground truth foreground voxels in the set; for regions, summed over all regions."""
        return int(self.classwise.hits[self.activation.first_structure :].sum())

    def metrics(self) -> Numbers:
        """The metrics, expected ones where there are such tables; NaN for an empty voxel set."""
        return dict(self._metrics)

    @cached_property
    def _metrics(self) -> Numbers:
        total = self.top.total
        by_class = expected_calibration_error(self.classwise)[: self.num_classes]
        metrics = {
            "ECE": expected_calibration_error(self.top),
            "CECE": by_class,
            "CECE_fg": by_class[self.activation.first_structure :],
            "CECE_sum": mean_of_known(by_class) * (~np.isnan(by_class)).sum(keepdims=True),
            "MCE": maximum_calibration_error(self.top),
            "ACE": average_calibration_error(self.top),
            "NLL": ratio(self.nll, total),
            "Brier": ratio(self.brier, total),
            "over_confidence": self.top.over_confidence,
        }
        if self.expected_top is not None and self.expected_classwise is not None:
            # Over the same regions and classes, and so means over the same cases, as the metrics beside them.
            of_top = np.where(total > 0, expected_calibration_error(self.expected_top), np.nan)
            of_classes = np.where(
                self.classwise.total > 0,
                expected_calibration_error(self.expected_classwise),
                np.nan,
            )
            metrics |= {"ECE_expected": of_top, "CECE_expected": of_classes[: self.num_classes]}
        metrics["share"] = ratio(total, self.image_voxels)
        return {name: float(mean_of_known(values)) for name, values in metrics.items()}

    @property
    def ECE(self) -> float:  # noqa: N802 - as in papers
        """Expected calibration error of the predicted label."""
        return self._metrics["ECE"]

    @property
    def NLL_per_foreground(self) -> float:  # noqa: N802
        """See ``per_foreground``."""
        return self.per_foreground()["NLL_per_foreground"]

    def class_metrics(self) -> list[Numbers]:
        """ECE, MCE and ACE of each channel."""
        errors = (expected_calibration_error, maximum_calibration_error, average_calibration_error)
        by_channel = np.stack([error(self.classwise) for error in errors], axis=-1).tolist()
        return [dict(zip(("ECE", "MCE", "ACE"), found, strict=True)) for found in by_channel]

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
        nll, brier, foreground = self.score_sums().values()
        return {
            name: sums / (foreground or np.nan)
            for name, sums in zip(SCORES, (nll, brier), strict=True)
        }
