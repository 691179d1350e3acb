"""What the figures show, in words, for those who cannot see them."""

import numpy as np

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import place, signed_text
from nnunet_nacl.report._ranking import Ranking
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._slices import CaseSlice
from nnunet_nacl.report._study import (
    RelativeDifferences,
    Study,
    StudyScores,
    Variant,
    drawn_study,
    split_variants,
)
from nnunet_nacl.report._tradeoff import Tradeoff

_UNDRAWN = "No figure: there are no two variants here that can be held against each other."


def describe_reliability(curve: Reliability, voxels: str) -> str:
    """What a reliability diagram shows."""
    what = f" for {curve.what}" if curve.what else ""
    if not curve.share.any():
        return f"Reliability diagram of {curve.name}{what} {place(voxels)}: no voxels."
    fullest = int(curve.share.argmax())
    expected = "" if np.isnan(curve.expected_error) else f" ({curve.expected_error:.3f} if perfectly calibrated)"
    return (
        f"Reliability diagram of {curve.name}{what} {place(voxels)}: pooled ECE {curve.error:.3f}{expected}. The "
        f"fullest bin holds {100 * curve.share[fullest]:.0f} % of the voxels, at confidence "
        f"{curve.confidence[fullest]:.2f} and accuracy {curve.accuracy[fullest]:.2f}."
    )


def describe_classes(curves: list[Reliability], voxels: str) -> str:
    """What the reliability curves of a class show."""
    return f"Reliability curves of the probability of {curves[0].what} {place(voxels)}. Pooled ECE: " + _listed(
        {curve.name: curve.error for curve in curves}
    )


def describe_tradeoff(data: Tradeoff, kind: str) -> str:
    """What a scatter or radar plot shows."""
    pairs = zip(data.names, data.dice, data.error, strict=True)
    figures = "; ".join(
        f"{name}: Dice {_number(dice)}, {data.error_name} {_number(error)}" for name, dice, error in pairs
    )
    return f"{kind} of Dice against {data.error_name}. {figures}."


def describe_ranking(data: Ranking) -> str:
    """What a heat map of ranks shows."""
    order = np.argsort(data.overall, kind="stable")
    return f"Overall {data.scheme} by {', '.join(data.metrics)}, best first: " + "; ".join(
        f"{data.methods[one]}: {data.overall[one]:.4g}, first in {100 * data.stability[one, 0]:.0f} % of resamples"
        for one in order
    )


def describe_case(data: CaseSlice, errors: dict[str, float]) -> str:
    """What the pictures of a case show."""
    return (
        f"Slice {data.number + 1} of {data.num_slices} of case {data.case}: image, reference, and for each method "
        f"segmentation, map of confidence and reliability curve. ECE: {_listed(errors)}"
    )


def describe_scores(data: StudyScores, kind: str) -> str:
    """What a study's radar or curves show."""
    told: dict[str, list[str]] = {}
    for one, figure in zip(data.variants, data.figures, strict=True):
        told.setdefault(one.group, []).append(f"{one.text}: {_number(figure)}")
    lines = "; ".join(f"{group}: {', '.join(figures)}" for group, figures in told.items())
    return f"{kind} of {data.metric.title} by {data.study.setting}. {lines}."


def describe_relative_differences(data: RelativeDifferences) -> str:
    """What a study's bars of relative differences show."""
    bars = "; ".join(
        f"{value}: {'not defined' if np.isnan(percent) else signed_text(percent, 1)}"
        for value, percent in zip(data.values, data.percent, strict=True)
    )
    better = data.reference if data.metric.higher_is_better else data.other
    return (
        f"Bars of the relative difference in {data.metric.title} between {data.reference} and {data.other}, in % of "
        f"{data.reference}, by {data.study.setting}. {bars}. Above 0, {better} is better."
    )


def describe_arrows(data: Tradeoff, pairs: list[tuple[Variant, Variant]]) -> str:
    """What a study's arrows show."""

    def told(one: Variant) -> str:
        place = data.names.index(one.method)
        return f"{one.text} (Dice {_number(data.dice[place])}, {data.error_name} {_number(data.error[place])})"

    arrows = "; ".join(f"{first.group}: from {told(first)} to {told(second)}" for first, second in pairs)
    return f"Arrows of Dice against {data.error_name}. {arrows}."


def study_caption(comparison: Comparison, study: Study, *, drawn: bool) -> str:
    """How to read a study's figure, and what is missing in it.

    Args:
        comparison: methods.
        study: what is compared.
        drawn: whether there is a figure; it takes two variants that can be held against each other.
    """
    _, missing = split_variants(study, comparison)
    reading = _reading(drawn_study(study, comparison)) if drawn else _UNDRAWN
    lacking = ", ".join(one.method for one in missing)
    return f"{reading} No results here, and so left out: {lacking}." if missing else reading


def _reading(study: Study) -> str:
    if study.figure == "radar":
        return (
            "An axis for each method, and a line for the first value of each (HP1), for the second (HP2), and so on; "
            "the legend tells the values. Lines that lie close together: the value matters little. For Dice (whose "
            "axis need not begin at 0) further out is better, for ECE further in."
        )
    if study.figure == "differences":
        first, second = study.groups
        return (
            f"({first} − {second}) / {first}, in %, at each value of {study.setting} that both have. Above each plot: "
            "to which side which of them is better; bars have the color of the better one. Lines: 95 % paired "
            "bootstrap intervals."
        )
    if study.figure == "curves":
        return (
            f"Each metric by {study.setting}, with 95 % bootstrap intervals; points are moved a little sideways, "
            "so that none hides another. For Dice higher is better, for calibration errors lower."
        )
    return (
        f"Each arrow leads from the first value of {study.setting} (cross) to the second (circle). The best corner is "
        "the upper left: high Dice, low calibration error. Thin lines: 95 % bootstrap intervals."
    )


def _listed(figures: dict[str, float]) -> str:
    return "; ".join(f"{name}: {_number(value)}" for name, value in figures.items()) + "."


def _number(value: float) -> str:
    return "not defined" if np.isnan(value) else f"{value:.3f}"
