"""Reliability curves: how often the model is right, by how sure it says it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import BinCounts, Interval, expected_calibration_error, ratio, resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import place

FAINT = 0.001
"""Share of the voxels below which a bin is drawn faintly."""


@dataclass(frozen=True)
class Reliability:
    r"""A reliability curve with M bins.

    Its error is :math:`\sum_m share_m |accuracy_m - confidence_m|`, the pooled ECE.

    Attributes:
        name: of the method.
        what: class or region whose probability is shown; empty for the most probable class.
        edges: (M + 1,) of the bins.
        share: (M,) of the voxels in each bin.
        confidence: (M,) mean confidence in each bin; NaN in an empty one.
        accuracy: (M,) share of hits in each bin; NaN in an empty one.
        low: (M,) lower end of the accuracy's 95 % bootstrap interval over cases; NaN for a single case.
        high: (M,) upper end.
        error: ECE of the same voxels.
        expected_confidence: (M,) mean confidence that a perfectly calibrated model with the same probabilities would
            have in each bin, in voxel sets chosen by their label; NaN in a bin expected to be empty. None where it
            would lie on the diagonal, or is not known.
        expected_accuracy: (M,) accuracy of that model; NaN and None as above.
        expected_error: ECE of that model; NaN where the others are None.
    """

    name: str
    what: str
    edges: Array
    share: Array
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    error: float
    expected_confidence: Array | None = None
    expected_accuracy: Array | None = None
    expected_error: float = float("nan")

    @property
    def is_faint(self) -> NDArray[np.bool_]:
        """(M,) whether a bin holds so few voxels that it hardly matters; empty ones do, too."""
        return np.asarray(self.share < FAINT)

    def accuracy_at(self, confidence: float) -> float | None:
        """The accuracy at a confidence, read off the line between the points; None if hardly any voxel has about it."""
        accuracy = self._read_off(self.accuracy, confidence)
        return None if np.isnan(accuracy) else accuracy

    def accuracy_interval_at(self, confidence: float) -> Interval:
        """The 95 % interval of that accuracy, read off the band; NaN if it is not known."""
        return self._read_off(self.low, confidence), self._read_off(self.high, confidence)

    def _read_off(self, values: Array, confidence: float) -> float:
        inside = (self.edges[:-1] <= confidence) & (confidence <= self.edges[1:])  # two bins at an edge
        known = ~self.is_faint
        if not (inside & known).any():
            return float("nan")
        return float(np.interp(confidence, self.confidence[known], values[known]))

    def describe(self, voxels: str) -> str:
        """What a reliability diagram shows, in words."""
        what = f" for {self.what}" if self.what else ""
        if not self.share.any():
            return f"Reliability diagram of {self.name}{what} {place(voxels)}: no voxels."
        fullest = int(self.share.argmax())
        expected = "" if np.isnan(self.expected_error) else f" ({self.expected_error:.3f} if perfectly calibrated)"
        return (
            f"Reliability diagram of {self.name}{what} {place(voxels)}: pooled ECE {self.error:.3f}{expected}. The "
            f"fullest bin holds {100 * self.share[fullest]:.0f} % of the voxels, at confidence "
            f"{self.confidence[fullest]:.2f} and accuracy {self.accuracy[fullest]:.2f}."
        )


def top_label_curves(comparison: Comparison, method: str, voxels: str, *, case: str | None = None) -> list[Reliability]:
    """Curves of max_k p_k against argmax being right, over all cases pooled or in one.

    Args:
        comparison: methods.
        method: its name.
        voxels: voxel set.
        case: name of the case; by default all.

    Returns:
        One curve; with regions one for each, since each has voxels of its own.
    """
    tables = _stacked(comparison, method, voxels, case, "top")
    expected = _stacked(comparison, method, voxels, case, "expected_top")
    assert tables is not None
    regions = comparison.structures if comparison.has_regions else [""]
    return [_curve(method, name, tables, expected, row) for row, name in enumerate(regions)]


def class_curve(comparison: Comparison, method: str, voxels: str, name: str) -> Reliability:
    """The curve of p_k against y being k, over all cases pooled.

    Args:
        comparison: methods.
        method: its name.
        voxels: voxel set.
        name: of the class or region.

    Raises:
        ValueError: no such class.
    """
    if name not in comparison.classes:
        raise ValueError(f"expected a class, one of {', '.join(comparison.classes)}; got {name}.")
    tables = _stacked(comparison, method, voxels, None, "classwise")
    expected = _stacked(comparison, method, voxels, None, "expected_classwise")
    assert tables is not None
    return _curve(method, name, tables, expected, comparison.classes.index(name))


def class_errors(comparison: Comparison, method: str, voxels: str) -> dict[str, float]:
    """Class or region -> its ECE over all cases pooled; NaN without voxels."""
    tables = _stacked(comparison, method, voxels, None, "classwise")
    assert tables is not None
    return dict(zip(comparison.classes, expected_calibration_error(tables.sum()).tolist(), strict=True))


def _stacked(comparison: Comparison, method: str, voxels: str, case: str | None, table: str) -> BinCounts | None:
    """Tables (cases, rows, M); None if they are not known."""
    comparison.check_voxels(voxels)
    if case is not None and case not in comparison.cases:
        raise ValueError(f"case: expected one that all methods share; got {case}.")
    tables = comparison[method].bins(voxels, table)
    if tables is None or case is None:
        return tables
    return tables[[comparison.cases.index(case)]]


def _curve(method: str, what: str, all_tables: BinCounts, expected: BinCounts | None, row: int) -> Reliability:
    """A curve from a row of tables (cases, rows, M) and, where known, of those expected under perfect calibration."""
    tables = all_tables[:, row]
    num_cases, num_bins = tables.count.shape
    pooled = tables.sum()
    ends = np.full((2, num_bins), np.nan)
    if num_cases > 1:
        weights = resample_weights(num_cases)
        resampled = ratio(weights @ tables.hits, weights @ tables.count)
        filled = (tables.count > 0).sum(0) > 1  # a single case says nothing about others
        if filled.any():
            ends[:, filled] = np.nanpercentile(resampled[:, filled], [2.5, 97.5], axis=0)
    line = None if expected is None else expected[:, row].sum()
    return Reliability(
        name=method,
        what=what,
        edges=np.linspace(0, 1, num_bins + 1),
        share=pooled.count / max(float(pooled.total), 1),
        confidence=ratio(pooled.confidence, pooled.count),
        accuracy=ratio(pooled.hits, pooled.count),
        low=ends[0],
        high=ends[1],
        error=float(expected_calibration_error(pooled)),
        expected_confidence=None if line is None else ratio(line.confidence, line.count),
        expected_accuracy=None if line is None else ratio(line.hits, line.count),
        expected_error=float("nan") if line is None else float(expected_calibration_error(line)),
    )
