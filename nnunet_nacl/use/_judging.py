"""How good predicted Dice, volumes and intervals are, judged by the ground truth."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnunet_nacl.use._quantities import case_values

Array = NDArray[np.float64]

ALL = "(all)"
"""Stands for all structures together."""


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk–coverage curve: the mean risk of the cases that are kept, the most confident first."""

    coverage: Array
    risk: Array

    @property
    def area(self) -> float:
        """AURC, the area under the curve from coverage 1/n to 1 by the trapezoidal rule; NaN for fewer than 2 cases."""
        if self.risk.size < 2:
            return math.nan
        return float((self.risk[1:] + self.risk[:-1]).sum() / 2 / self.risk.size)


def risk_coverage(confidence: ArrayLike, risk: ArrayLike) -> RiskCoverage:
    """Risk–coverage curve of a confidence, such as predicted Dice, for a risk, such as 1 − Dice.

    Of cases with the same confidence any one may come first: the curve is the mean over all their orders. Without such
    cases the area is that of Zenk et al.'s benchmark, whose figure depends on the order in which equal ones stand.

    References:
        Geifman & El-Yaniv, NeurIPS 2017; Jaeger et al., ICLR 2023; Zenk et al., Medical Image Analysis 2025
        (segmentation_failures_benchmark).

    >>> curve = risk_coverage([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    >>> curve.risk.round(3), round(curve.area, 3)
    (array([0.1, 0.2, 0.3]), 0.133)
    """
    surest, risks = case_values(confidence=confidence, risk=risk)
    _, group = np.unique(-surest, return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, weights=risks) / count
    kept = np.arange(1, risks.size + 1)
    return RiskCoverage(kept / risks.size, np.repeat(mean, count).cumsum() / kept)


def excess_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """Excess AURC: the AURC less that of the best order, by the risk itself. 0 is best; NaN for fewer than 2 cases.

    >>> excess_area([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    0.0
    """
    return risk_coverage(confidence, risk).area - risk_coverage(-np.asarray(risk, np.float64), risk).area


@dataclass(frozen=True)
class VolumeJudgement:
    """How far expected volumes are from the volumes: mean difference, and limits of agreement."""

    bias_ml: float
    limits_ml: tuple[float, float]


def judge_volumes(expected_ml: ArrayLike, true_ml: ArrayLike) -> VolumeJudgement:
    """Judge expected volumes (n,) by those of the ground truth (n,).

    References:
        Bland & Altman, The Lancet 1986.

    >>> judge_volumes([11, 22], [10, 20]).bias_ml
    1.5
    """
    expected, true = case_values(expected_ml=expected_ml, true_ml=true_ml)
    difference = expected - true
    bias, spread = float(difference.mean()), math.nan
    if difference.size > 1:
        spread = 1.96 * float(difference.std(ddof=1))
    return VolumeJudgement(bias, (bias - spread, bias + spread))


@dataclass(frozen=True)
class Judged:
    """What is predicted of a structure in a case, and what is true of it."""

    case: str
    structure: str
    predicted_dice: float
    dice: float
    expected_ml: float
    true_ml: float
    fitted_dice: float | None = None
    dice_low: float | None = None
    volume_low_ml: float | None = None
    volume_high_ml: float | None = None
    missed: float | None = None


@dataclass(frozen=True)
class Judgement:
    """How good predicted Dice, volumes and intervals of a structure are. None where something is not defined.

    Errors are mean absolute ones; a bias is predicted less true, ``volume_bias_share`` that of the sums; AURC is the
    area under the risk–coverage curve, with risk 1 − Dice, and excess AURC that above the best order. ``_coverage`` is
    the share of cases whose Dice is at least its bound, whose volume lies in its interval. ``missed`` is the mean share
    of the structure that the masks of the recall threshold miss.
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
    missed: float | None

    @classmethod
    def of(cls, structure: str, rows: Sequence[Judged]) -> "Judgement":
        """Judge these, one or more."""
        from pandas import DataFrame  # takes half a second to import, which worker processes need not spend

        frame = DataFrame(map(vars, rows)).drop(columns=["case", "structure"]).astype(float)
        expected, true = frame.expected_ml, frame.true_ml
        values = {
            "dice_error": (frame.predicted_dice - frame.dice).abs().mean(),
            "dice_bias": (frame.predicted_dice - frame.dice).mean(),
            "spearman": frame[["predicted_dice", "dice"]].rank().corr().iloc[0, 1],
            "aurc": risk_coverage(frame.predicted_dice, 1 - frame.dice).area,
            "excess_aurc": excess_area(frame.predicted_dice, 1 - frame.dice),
            "fitted_dice_error": (frame.fitted_dice - frame.dice).abs().mean(),
            "bound_coverage": (frame.dice >= frame.dice_low)[frame.dice_low.notna()].mean(),
            "volume_bias_ml": (expected - true).mean(),
            "volume_bias_share": expected.sum() / true.sum() - 1 if true.sum() > 0 else math.nan,
            "volume_error_ml": (expected - true).abs().mean(),
            "interval_coverage": frame.true_ml.between(frame.volume_low_ml, frame.volume_high_ml)[
                frame.volume_low_ml.notna()
            ].mean(),
            "interval_width_ml": (frame.volume_high_ml - frame.volume_low_ml).mean(),
            "missed": frame.missed.mean(),
        }
        known = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
        return cls(structure, len(rows), **known)


def judge(rows: Sequence[Judged]) -> list[Judgement]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    structures = list(dict.fromkeys(row.structure for row in rows))
    judgements = [Judgement.of(name, [row for row in rows if row.structure == name]) for name in structures]
    return [*judgements, Judgement.of(ALL, rows)] if len(structures) > 1 else judgements


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """A table for people; columns without any value are left out."""
    from pandas import DataFrame

    heads = ["structure", "cases", "MAE", "bias", "Spearman", "AURC", "excess", "fitted MAE", "bound held",
             "volume bias ml", "share", "volume MAE ml", "interval held", "width ml", "missed"]  # fmt: skip
    frame = DataFrame(map(asdict, judgements)).set_axis(heads, axis=1).dropna(axis=1, how="all").set_index("structure")
    text: str = frame.rename_axis(None).to_string(float_format="{:.3f}".format, na_rep="–")
    return text
