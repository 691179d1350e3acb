"""How good a review is, judged by the ground truth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnunet_nacl.confidence import judge_dice, judge_intervals, judge_volumes

ALL = "(all)"
"""Stands for all structures together."""


@dataclass(frozen=True)
class Judged:
    """What is predicted of a structure in a case, and what is true of it.

    Attributes:
        case: its name.
        structure: its name.
        predicted_dice: 1 − max p where nothing is segmented.
        dice: 1 where the structure is in neither segmentation nor ground truth.
        expected_ml: expected volume in ml.
        true_ml: volume in the ground truth, in ml.
        fitted_dice: predicted Dice after a fit; None without one.
        dice_low: its lower bound; None without one.
        interval_ml: of the volume, in ml; None without a fit.
        missed: share of the structure that the mask of a recall threshold misses; None without one.
    """

    case: str
    structure: str
    predicted_dice: float
    dice: float
    expected_ml: float
    true_ml: float
    fitted_dice: float | None = None
    dice_low: float | None = None
    interval_ml: tuple[float, float] | None = None
    missed: float | None = None


@dataclass(frozen=True)
class Judgement:
    """How good predicted Dice, volumes and intervals of a structure are. None where something is not defined.

    Attributes:
        structure: its name, or ``ALL``.
        num_cases: of all structures together, how many structures in cases.
        dice_error: mean absolute error of predicted Dice.
        dice_bias: mean of predicted less true Dice; above 0 it promises too much.
        spearman: rank correlation of predicted and true Dice.
        aurc: area under the risk–coverage curve, with risk 1 − Dice.
        excess_aurc: above that of the best order.
        fitted_dice_error: mean absolute error of the fitted Dice.
        bound_coverage: share of the cases whose Dice is at least its lower bound.
        volume_bias_ml: mean of expected less true volume.
        volume_bias_share: sum of expected over sum of true volumes, less 1.
        volume_error_ml: mean absolute error of expected volumes.
        interval_coverage: share of the cases whose volume lies in its interval.
        interval_width_ml: mean width of the intervals.
        missed: mean share of the structure that the masks of the recall threshold miss.
    """

    structure: str
    num_cases: int
    dice_error: float | None
    dice_bias: float | None
    spearman: float | None
    aurc: float | None
    excess_aurc: float | None
    fitted_dice_error: float | None
    bound_coverage: float | None
    volume_bias_ml: float | None
    volume_bias_share: float | None
    volume_error_ml: float | None
    interval_coverage: float | None
    interval_width_ml: float | None
    missed: float | None = None

    @classmethod
    def of(cls, structure: str, rows: Sequence[Judged]) -> "Judgement":
        """Judge these."""
        dice = judge_dice([row.predicted_dice for row in rows], [row.dice for row in rows])
        volume = judge_volumes([row.expected_ml for row in rows], [row.true_ml for row in rows])
        fitted = [(row.fitted_dice, row.dice) for row in rows if row.fitted_dice is not None]
        bounds = [(row.dice_low, 1.0, row.dice) for row in rows if row.dice_low is not None]
        intervals = [(*row.interval_ml, row.true_ml) for row in rows if row.interval_ml is not None]
        bound, interval = (
            judge_intervals(*zip(*one, strict=True)) if one else judge_intervals([], [], [])
            for one in (bounds, intervals)
        )
        missed = [row.missed for row in rows if row.missed is not None]
        return cls(
            structure,
            len(rows),
            _known(dice.mean_absolute_error),
            _known(dice.bias),
            _known(dice.spearman),
            _known(dice.aurc),
            _known(dice.excess_aurc),
            _known(judge_dice(*zip(*fitted, strict=True)).mean_absolute_error) if fitted else None,
            _known(bound.coverage),
            _known(volume.bias_ml),
            _known(volume.bias_share),
            _known(volume.mean_absolute_error_ml),
            _known(interval.coverage),
            _known(interval.mean_width),
            sum(missed) / len(missed) if missed else None,
        )


def judge(rows: Sequence[Judged]) -> list[Judgement]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    structures = list(dict.fromkeys(row.structure for row in rows))
    judgements = [Judgement.of(one, [row for row in rows if row.structure == one]) for one in structures]
    return [*judgements, Judgement.of(ALL, rows)] if len(structures) > 1 else judgements


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


_COLUMNS = {
    "cases": "num_cases",
    "MAE": "dice_error",
    "bias": "dice_bias",
    "Spearman": "spearman",
    "AURC": "aurc",
    "excess": "excess_aurc",
    "fitted MAE": "fitted_dice_error",
    "bound held": "bound_coverage",
    "volume bias ml": "volume_bias_ml",
    "share": "volume_bias_share",
    "interval held": "interval_coverage",
    "width ml": "interval_width_ml",
    "missed": "missed",
}


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """A table for people; columns without any value are left out."""
    shown = {
        head: [getattr(one, name) for one in judgements]
        for head, name in _COLUMNS.items()
        if any(getattr(one, name) is not None for one in judgements)
    }
    rows = [["structure", *shown], *([one.structure] for one in judgements)]
    for number, row in enumerate(rows[1:]):
        row += [_text(values[number]) for values in shown.values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
