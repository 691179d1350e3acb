"""Every metric once: what computes it, over which voxels and cases, which direction is better, and what it means.

Summaries, CSV files, the report's tables and glossary, and docs/metrics.md are made from ``METRICS``. Calibration
metrics are functions of ``CalibrationTables``, which ``measure`` calls.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nnunet_nacl.metrics._bins import (
    BinCounts,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    mean_of_known,
    ratio,
)
from nnunet_nacl.metrics._settings import LABEL_FREE, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import ByName, Floats


@dataclass(frozen=True, kw_only=True)
class MetricDefinition:
    """A metric.

    Attributes:
        name: in summaries and CSV files.
        title: in the report's tables; ``{voxels}`` stands for the voxel set, if there is one.
        formula: its definition, in docs/metrics.md.
        sentence: what it says, in the report's glossary; empty for metrics that the report does not show.
        term: its heading there, the title by default.
        from_tables: calibration metrics only: from tables, of a case, of cases added up or of resamples (...), to
            values (..., n) of regions, classes or one; their mean without NaN is the metric. None if the tables lack
            it.
        from_bins: the same metric of a single class's bins, if it has one.
        case_score: scores per foreground voxel alone, of which a case by itself has no value: what is tested of it.
        pooled_over: the voxel sets over which its estimate is that of all cases' voxels together; over the others it is
            a mean over cases.
        higher_is_better: None if neither direction is.
        digits: after the decimal point.
        signed: whether a value above 0 is shown with a plus sign.
        unit: of the value.
        further: whether the report's table of further metrics shows it, and there, over any voxel set, as a ``mean``
            over cases or ``pooled``.
    """

    name: str
    title: str = "{name} {voxels}"
    formula: str
    sentence: str = ""
    term: str = ""
    from_tables: Callable[[CalibrationTables], Floats | None] | None = None
    from_bins: Callable[[BinCounts], Floats] | None = None
    case_score: Callable[[CalibrationTables], Floats] | None = None
    pooled_over: tuple[Voxels, ...] = ()
    higher_is_better: bool | None = False
    digits: int = 3
    signed: bool = False
    unit: str = ""
    further: Literal["pooled", "mean"] | None = None

    def of_channel(self, channel: int) -> "MetricDefinition":
        """Return the metric of a single class or region, from the bins of its channel."""
        error = self.from_bins
        return replace(
            self,
            from_tables=lambda tables: error and error(tables.classwise)[..., [channel]],
            case_score=None,
        )

    def titled(self, voxels: str = "") -> str:
        """Return the title with a voxel set."""
        return " ".join(self.title.format(name=self.name, voxels=voxels).split())


def _class_errors(
    tables: CalibrationTables, error: Callable[[BinCounts], Floats] = expected_calibration_error
) -> Floats:
    """Compute an error of each channel (..., C); NaN for channels that do not enter CECE."""
    errors = error(tables.classwise)
    enters = np.arange(errors.shape[-1]) < tables.num_classes[..., None]
    return np.where(enters, errors, np.nan)


def _summed_class_errors(tables: CalibrationTables) -> Floats:
    by_class = _class_errors(tables)
    num_known = (~np.isnan(by_class)).sum(-1, keepdims=True)
    return np.asarray(mean_of_known(by_class)[..., None] * num_known)


def _expected_error(expected: BinCounts | None, observed: BinCounts) -> Floats | None:
    if expected is None:
        return None
    # Over the same regions, and so a mean over the same cases, as the ECE beside it
    return np.where(observed.total > 0, expected_calibration_error(expected), np.nan)


_CALIBRATION = (
    MetricDefinition(
        name="ECE",
        term="ECE (expected calibration error)",
        formula="Σ_m |B_m|/N · |acc(B_m) − conf(B_m)|, conf = max_k p_k, a hit where argmax p = y (Naeini et "
        "al. 2015). ECE of class k: the same with conf = p_k and a hit where y = k",
        sentence="How far confidence and accuracy are apart, averaged over the voxels. 0.05 means off by five "
        "percentage points; 0 is perfect. Voxels are sorted into bins of confidence; each bin's gap is "
        "weighted by its number of voxels. Over near and image it is pooled: computed from the voxels of "
        "all cases at once. Within a case, errors occur together, so the mean over cases would not be 0 for"
        " a perfectly calibrated model. The paper's metrics are means over cases; reliability diagrams show"
        " the pooled ECE.",
        from_tables=lambda tables: expected_calibration_error(tables.top),
        from_bins=expected_calibration_error,
        pooled_over=LABEL_FREE,
        further="pooled",
    ),
    MetricDefinition(
        name="CECE",
        term="CECE (class-wise ECE)",
        formula="mean ECE of all C classes, background included, as in the authors' code",
        sentence="The ECE of each class's probability, whether or not the model chooses that class, averaged over "
        "the classes. Unlike ECE, it detects errors in the probabilities of classes that the model does not"
        " choose.",
        from_tables=_class_errors,
        pooled_over=LABEL_FREE,
        further="pooled",
    ),
    MetricDefinition(
        name="CECE_fg",
        formula="`CECE` without the background",
        from_tables=lambda tables: _class_errors(tables)[..., tables.activation.first_structure :],
    ),
    MetricDefinition(
        name="CECE_sum",
        formula="sum over the classes in place of the mean, as in the paper's text",
        from_tables=_summed_class_errors,
    ),
    MetricDefinition(
        name="MCE",
        formula="largest gap of a bin",
        sentence="The largest gap of any bin.",
        from_tables=lambda tables: maximum_calibration_error(tables.top),
        from_bins=maximum_calibration_error,
        further="mean",
    ),
    MetricDefinition(
        name="ACE",
        formula="mean gap of the bins that hold voxels",
        sentence="The mean gap of the bins that hold voxels, all weighted equally.",
        from_tables=lambda tables: average_calibration_error(tables.top),
        from_bins=average_calibration_error,
        further="mean",
    ),
    MetricDefinition(
        name="CACE_fg",
        formula="mean over the classes, without the background, of the mean gap of the bins that hold voxels, "
        "conf = p_k and a hit where y = k; of `image` with `--bins 20`, the ACE of mL1-ACE's tables",
        from_tables=lambda tables: _class_errors(tables, average_calibration_error)[
            ..., tables.activation.first_structure :
        ],
    ),
    MetricDefinition(
        name="NLL",
        formula="mean of −ln p_y, in nats; smaller p count as 1.19e-7, since nnU-Net saves zeros",
        from_tables=lambda tables: ratio(tables.nll, tables.top.total),
    ),
    MetricDefinition(
        name="Brier",
        formula="mean of Σ_k (p_k − [y = k])², 0 to 2; of a region (p − [y in the region])², 0 to 1",
        from_tables=lambda tables: ratio(tables.brier, tables.top.total),
    ),
    MetricDefinition(
        name="over_confidence",
        title="confidence − accuracy",
        formula="mean confidence − accuracy",
        sentence="Above 0: the model is too sure on the whole. Below 0: it is not sure enough.",
        from_tables=lambda tables: tables.top.over_confidence,
        pooled_over=LABEL_FREE,
        higher_is_better=None,
        signed=True,
        further="pooled",
    ),
    MetricDefinition(
        name="ECE_expected",
        title="ECE {voxels} if perfectly calibrated",
        term="If perfectly calibrated",
        formula="`ECE` of `foreground` and `union` under perfect calibration, see below",
        sentence="What the model would score over the foreground or union if its probabilities were exactly right. "
        "It follows from the probabilities alone, as the expected number of voxels and hits in each bin if "
        "the labels were drawn from them. A model with a lower value is not sure enough, however small its "
        "ECE.",
        from_tables=lambda tables: _expected_error(tables.expected_top, tables.top),
        further="pooled",
    ),
    MetricDefinition(
        name="CECE_expected",
        title="CECE {voxels} if perfectly calibrated",
        formula="the same of `CECE`",
        from_tables=lambda tables: _expected_error(tables.expected_classwise, tables.classwise),
    ),
    MetricDefinition(
        name="share",
        title="share of the image",
        formula="share of the image's voxels",
        sentence="How many of the image's voxels count. Each method has its own near: for one that is unsure "
        "everywhere, near is large.",
        from_tables=lambda tables: ratio(tables.top.total, tables.image_voxels),
        higher_is_better=None,
        further="pooled",
    ),
    MetricDefinition(
        name="NLL_per_foreground",
        title="NLL per foreground voxel",
        formula="of `image`: NLL summed over all voxels of all cases, divided by their number of voxels with y > 0",
        sentence="The negative logarithm of the probability given to the true class, summed over all voxels of all "
        "cases and divided by the number of foreground voxels in the ground truth. All voxels count, and "
        "every method's sum is divided by the same number, so the model that knows the true probabilities "
        "has the lowest value. It depends on calibration and on how well the classes are told apart "
        "(discrimination); the further metrics have both parts.",
        from_tables=lambda tables: tables.per_foreground(tables.nll),
        case_score=lambda tables: tables.nll.sum(-1),
        pooled_over=("image",),
    ),
    MetricDefinition(
        name="Brier_per_foreground",
        title="Brier per foreground voxel",
        formula="the same of the Brier score",
        sentence="The same with the squared difference between probabilities and truth.",
        from_tables=lambda tables: tables.per_foreground(tables.brier),
        case_score=lambda tables: tables.brier.sum(-1),
        pooled_over=("image",),
    ),
)

_SEGMENTATION = (
    MetricDefinition(
        name="Dice",
        formula="of the saved segmentation; NaN where neither prediction nor ground truth has the structure, as in "
        "nnU-Net",
        sentence="How well a predicted structure overlaps with the ground truth: 1 is perfect, 0 is no overlap. Mean"
        " over the structures.",
        higher_is_better=True,
    ),
    MetricDefinition(
        name="Missed",
        title="missed",
        formula="1 if a structure of the ground truth is not predicted",
    ),
    MetricDefinition(
        name="Spurious",
        title="spurious",
        formula="1 if a predicted structure is not in the ground truth",
    ),
    MetricDefinition(
        name="HD95",
        formula="the larger of the two directed 95th percentiles of surface distances, in mm",
        sentence="How far the outlines are apart: 95 % of the outline is closer than this, in mm. A structure that "
        "is in only one of prediction and ground truth counts as the image's diagonal.",
        digits=2,
        unit="mm",
    ),
    MetricDefinition(
        name="HD95_voxels",
        title="HD95",
        formula="`HD95` with a spacing of 1",
        digits=2,
        unit="voxels",
    ),
    MetricDefinition(
        name="ASSD",
        formula="mean of all surface distances, in mm",
        digits=2,
        unit="mm",
    ),
    MetricDefinition(
        name="ASSD_voxels",
        title="ASSD",
        formula="`ASSD` with a spacing of 1",
        digits=2,
        unit="voxels",
    ),
    MetricDefinition(
        name="NSD",
        formula="share of both surfaces within 1 mm (`tolerance_mm`) of the other",
        higher_is_better=True,
    ),
)

CALIBRATION_METRICS = {metric.name: metric for metric in _CALIBRATION}
"""Metrics of bin tables, in the order of summaries and CSV files."""
SEGMENTATION_METRICS = {metric.name: metric for metric in _SEGMENTATION}
"""Metrics of a segmentation, structure by structure."""
METRICS = CALIBRATION_METRICS | SEGMENTATION_METRICS
"""All of them by name."""
PAPER_METRICS = ("ECE", "CECE")
"""The paper's calibration metrics: over sets that labels choose, means over cases."""


def measure(tables: CalibrationTables, *, scores: bool = False) -> ByName:
    """Compute the calibration metrics (...) that the tables have, by name; NaN for an empty voxel set.

    With ``scores`` those per foreground voxel, too, which are for the image alone (``per_foreground``).
    """
    found = {}
    for name, metric in CALIBRATION_METRICS.items():
        if metric.from_tables is None or (metric.case_score is not None and not scores):
            continue
        values = metric.from_tables(tables)
        if values is not None:
            found[name] = mean_of_known(values)[()]
    return found
