"""Judge predicted Dice, volumes and intervals by the ground truth."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

ALL = "(all)"
"""Stands for all structures together."""
Row = dict[str, Any]
Rows = Sequence[Row]
"""For each structure in each case, what is predicted and what is true: ``case``, ``structure``, ``predicted_dice``,
``dice``, ``expected_ml``, ``true_ml`` and, None without a fit, ``fitted_dice``, ``dice_low``, ``volume_low_ml``,
``volume_high_ml`` and ``missed``. ``true_ml`` and the interval are None, too, where voxels are ignored."""
_LINES = (
    "cases", "predicted Dice: mean absolute error", "predicted − true Dice", "predicted and true Dice: Spearman",
    "AURC", "AURC − that of the best order", "fitted Dice: mean absolute error", "Dice at least its bound (share)",
    "expected − true volume (ml)", "expected − true volume (share)", "expected volume: mean absolute error (ml)",
    "volume in its interval (share)", "width of the interval (ml)", "missed by the recall masks (share)",
)  # fmt: skip


def rows_of(table: "DataFrame") -> list[Row]:
    """The rows of a table; None where nothing is known."""
    rows: list[Row] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


def risk_coverage_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """AURC, the area under the risk–coverage curve: the mean risk of the cases kept, the most confident first.

    It uses the trapezoidal rule from coverage 1/n to 1; NaN for fewer than 2 cases. Cases with the same confidence (a
    predicted Dice, say) may come in any order: the curve is the mean over all their orders. Without such ties the area
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
    curve = np.repeat(np.bincount(group, weights=risks) / count, count).cumsum() / np.arange(
        1, risks.size + 1
    )
    return float((curve[1:] + curve[:-1]).sum() / 2 / risks.size)


def judge(rows: Rows, structure: str = ALL) -> Row:
    """Judge predicted Dice, volumes and intervals of these rows; None where something is not defined.

    Errors are mean absolute errors; a bias is predicted minus true, ``volume_bias_share`` the relative bias of the
    sums; AURC is the area under the risk–coverage curve of trust (the fitted Dice, if there is one) and risk 1 − Dice,
    excess AURC is AURC minus that of the best order. ``_coverage`` is the share of cases whose Dice is at least its
    bound, or whose volume lies in its interval. ``missed`` is the mean share of the structure that the masks of the
    recall threshold miss.
    """
    # Takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

    frame = DataFrame(rows).drop(columns=["case", "structure"]).astype(float)
    dice_error = frame.predicted_dice - frame.dice
    volume_error = frame.expected_ml - frame.true_ml
    true_sum = frame.true_ml.sum()
    expected_sum = frame.expected_ml[frame.true_ml.notna()].sum()
    risk = 1 - frame.dice
    trust = frame.fitted_dice.fillna(frame.predicted_dice)
    area = risk_coverage_area(trust, risk)
    bounded = frame.dice_low
    held = frame.volume_low_ml
    values = {
        "dice_error": dice_error.abs().mean(),
        "dice_bias": dice_error.mean(),
        "spearman": frame[["predicted_dice", "dice"]].rank().corr().iloc[0, 1],
        "aurc": area,
        "excess_aurc": area - risk_coverage_area(-risk, risk),
        "fitted_dice_error": (frame.fitted_dice - frame.dice).abs().mean(),
        "bound_coverage": (frame.dice >= bounded)[bounded.notna()].mean(),
        "volume_bias_ml": volume_error.mean(),
        "volume_bias_share": expected_sum / true_sum - 1 if true_sum > 0 else math.nan,
        "volume_error_ml": volume_error.abs().mean(),
        "interval_coverage": frame.true_ml.between(held, frame.volume_high_ml)[held.notna()].mean(),
        "interval_width_ml": (frame.volume_high_ml - held).mean(),
        "missed": frame.missed.mean(),
    }
    known = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
    return {"structure": structure, "num_cases": len(rows), **known}


def judge_structures(rows: Rows) -> list[Row]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    structures = list(dict.fromkeys(row["structure"] for row in rows))
    judgements = [
        judge([row for row in rows if row["structure"] == name], name) for name in structures
    ]
    return [*judgements, judge(rows)] if len(structures) > 1 else judgements


def ignored_note(shares: Sequence[float], whose: str = "The ground truth") -> str | None:
    """How much of cases is ignored, from the share of each one; None if nothing is.

    >>> ignored_note([0.5, 0.0])
    'The ground truth ignores 25 % of the voxels (mean over 2 cases; some in 1 of them)'
    """
    if not any(shares):
        return None
    some = np.count_nonzero(shares)
    return (
        f"{whose} ignores {100 * np.mean(shares):.3g} % of the voxels (mean over {len(shares)} cases; some in {some} "
        "of them)"
    )


def judgement_table(judgements: Rows) -> str:
    """A text table: a column for each structure, a line for each value that any of them has."""
    from pandas import DataFrame

    frame = DataFrame(judgements).set_index("structure").astype(object)
    rows = frame.set_axis(_LINES, axis=1).T.dropna(how="all")
    text: str = rows.to_string(float_format="{:.3f}".format, na_rep="–")
    return text
