"""Judge the Dice to expect, volumes and intervals by the ground truth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.metrics.counting import ratio
from nnunet_nacl.typing import Floats
from nnunet_nacl.use._structures import trust_of

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

ALL = "(all)"
"""Stands for all structures together."""


def _labelled(label: str) -> Any:
    """A field of a judgement, and its label in tables."""
    return field(metadata={"label": label})


@dataclass(frozen=True)
class Judgement:
    """How good predictions were, over ``num_cases`` outcomes; None where something is not defined.

    Errors, biases, widths and what is missed are means over the outcomes, but for ``volume_bias_share``, the sum of the
    expected volumes over that of the true ones, minus 1. The AURC is that of trust, the fitted Dice or, without a fit,
    the Dice to expect, and of risk, 1 − Dice. By a fit, there are bounds of outcomes with something segmented, and
    intervals of those without ignored voxels.
    """

    structure: str
    num_cases: int = _labelled("cases")
    dice_error: float | None = _labelled("Dice to expect: mean absolute error")
    dice_bias: float | None = _labelled("Dice to expect − true Dice")
    spearman: float | None = _labelled("Dice to expect and true Dice: Spearman")
    aurc: float | None = _labelled("AURC")
    excess_aurc: float | None = _labelled("AURC − that of the best order")
    fitted_dice_error: float | None = _labelled("fitted Dice: mean absolute error")
    num_bounds: int | None = _labelled("bounds of the Dice")
    bound_coverage: float | None = _labelled("Dice at least its bound (share)")
    volume_bias_ml: float | None = _labelled("expected − true volume (ml)")
    volume_bias_share: float | None = _labelled("expected − true volume (share)")
    volume_error_ml: float | None = _labelled("expected volume: mean absolute error (ml)")
    num_intervals: int | None = _labelled("intervals of the volume")
    interval_coverage: float | None = _labelled("volume in its interval (share)")
    interval_width_ml: float | None = _labelled("width of the interval (ml)")
    missed: float | None = _labelled("missed by the recall masks (share)")


JUDGEMENT_LABELS: dict[str, str] = {
    each.name: each.metadata["label"] for each in fields(Judgement) if each.metadata
}
"""Of each value of a judgement, in tables."""


def risk_coverage_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """AURC, the area under the risk–coverage curve: the mean risk of the cases kept, the most confident first.

    It uses the trapezoidal rule from coverage 1/n to 1; NaN for fewer than 2 cases. Cases with the same confidence (a
    Dice to expect, say) may come in any order: the curve is the mean over all their orders. Without such ties the area
    equals that of Zenk et al.'s benchmark, whose value depends on the order of ties.

    References:
        Geifman & El-Yaniv, NeurIPS 2017; Jaeger et al., ICLR 2023; Zenk et al., Medical Image Analysis 2025
        (segmentation_failures_benchmark).

    >>> round(risk_coverage_area([0.9, 0.8, 0.5], [0.1, 0.3, 0.5]), 3)
    0.133
    """
    surest = np.asarray(confidence, np.float64)
    risks = np.asarray(risk, np.float64)
    if risks.size < 2:
        return math.nan
    _, group = np.unique(-surest, return_inverse=True)
    count = np.bincount(group)
    mean_risks = np.bincount(group, weights=risks) / count
    in_order = np.repeat(mean_risks, count)
    curve = in_order.cumsum() / np.arange(1, risks.size + 1)
    return float((curve[1:] + curve[:-1]).sum() / 2 / risks.size)


def judge_outcomes(outcomes: "DataFrame", structure: str = ALL) -> Judgement:
    """Judge the Dice to expect, volumes and intervals of one structure's outcomes, or of those of all structures.

    ``outcomes`` is a data frame with a row for each ``Outcome``, as ``read_outcomes`` returns it.

    Raises:
        ValueError: there are no outcomes.
    """
    if outcomes.empty:
        raise ValueError("expected the outcome of at least one case; got none.")
    dice_error = outcomes.dice_to_expect - outcomes.dice
    risk = 1 - outcomes.dice
    trust = trust_of(outcomes.dice_to_expect, outcomes.fitted_dice)
    area = risk_coverage_area(trust, risk)
    bound_held = (outcomes.dice >= outcomes.dice_low)[outcomes.dice_low.notna()]
    volume_error = outcomes.volume_ml - outcomes.true_ml
    in_interval = outcomes.true_ml.between(outcomes.volume_low_ml, outcomes.volume_high_ml)
    interval_held = in_interval[outcomes.volume_low_ml.notna()]
    return Judgement(
        structure=structure,
        num_cases=len(outcomes),
        dice_error=_known(dice_error.abs().mean()),
        dice_bias=_known(dice_error.mean()),
        spearman=_known(outcomes[["dice_to_expect", "dice"]].rank().corr().iloc[0, 1]),
        aurc=_known(area),
        excess_aurc=_known(area - risk_coverage_area(-risk, risk)),
        fitted_dice_error=_known((outcomes.fitted_dice - outcomes.dice).abs().mean()),
        num_bounds=len(bound_held) or None,
        bound_coverage=_known(bound_held.mean()),
        volume_bias_ml=_known(volume_error.mean()),
        volume_bias_share=_known(ratio(volume_error.sum(), outcomes.true_ml.sum())),
        volume_error_ml=_known(volume_error.abs().mean()),
        num_intervals=len(interval_held) or None,
        interval_coverage=_known(interval_held.mean()),
        interval_width_ml=_known((outcomes.volume_high_ml - outcomes.volume_low_ml).mean()),
        missed=_known(outcomes.missed.mean()),
    )


def _known(value: float | Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def judge_structures(outcomes: "DataFrame") -> list[Judgement]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    judgements = [
        judge_outcomes(of_structure, name)
        for name, of_structure in outcomes.groupby("structure", sort=False)
    ]
    return [*judgements, judge_outcomes(outcomes)] if len(judgements) > 1 else judgements


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """A text table: a column for each structure, a line for each value that any of them has."""
    from pandas import DataFrame

    frame = DataFrame(map(vars, judgements)).set_index("structure").astype(object)
    rows = frame.rename(columns=JUDGEMENT_LABELS).T.dropna(how="all")
    text: str = rows.to_string(float_format="{:.3f}".format, na_rep="–")
    return text


def ignored_text(shares: Sequence[float], whose: str = "The ground truth") -> str | None:
    """How much of cases is ignored, from the share of each one; None if nothing is.

    >>> ignored_text([0.5, 0.0])
    'The ground truth ignores 25 % of the voxels (mean over 2 cases; some in 1 of them)'
    """
    if not any(shares):
        return None
    some = np.count_nonzero(shares)
    return (
        f"{whose} ignores {100 * np.mean(shares):.3g} % of the voxels (mean over {len(shares)} cases; some in {some} "
        "of them)"
    )
