"""Predictions of structures beside their truth, and how good they were."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import RECALL_THRESHOLDS, ratio
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._conformal import TooFewCasesError, recall_threshold
from nnunet_nacl.use._structure_fit import (
    StructureFit,
    predicted_columns,
    true_columns,
    truth_of,
)

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

ALL = "(all)"
"""Stands for all structures together."""


def outcomes_of(
    counted: FolderResult,
    fits: Mapping[str, StructureFit],
    coverage: float | None = None,
) -> "DataFrame":
    """Return predictions and truth of each structure of each case, over the voxels that are not ignored.

    Rows of ``case`` and ``structure``, with numbers that are NaN where they are unknown. A fit of the structure gives
    ``volume_low_ml``, ``volume_high_ml`` and, where something is segmented, ``fitted_dice`` and its lower bound
    ``dice_low``. With a coverage, ``missed`` is the share of the structure that the masks of the recall threshold
    miss. ``dice`` is 1 if the structure is in neither segmentation nor ground truth. Where voxels are ignored, the
    true volume ``true_ml`` and the interval are unknown; cases of which all is ignored are left out.
    """
    from pandas import DataFrame, concat

    is_judged = truth_of(counted.counts).ignored < 1
    counted = counted.take(np.flatnonzero(is_judged).tolist())
    tables = []
    for number, name in enumerate(counted.meaning.names):
        fit = fits.get(name, StructureFit())
        counts = counted.counts.of_structure(number)
        truth = truth_of(counts)
        columns: ByName = {
            "case": counted.cases,
            "structure": name,
            "dice_to_expect": truth.sums.dice_to_expect,
            **predicted_columns(truth.sums, counts.voxel_ml, fit),
            **true_columns(truth, counts.voxel_ml),
            "missed": np.nan,
        }
        for end in ("volume_low_ml", "volume_high_ml"):
            columns[end] = np.where(truth.ignored == 0, columns[end], np.nan)
        with suppress(TooFewCasesError):  # too few had it to fit λ
            if coverage is not None:
                threshold = recall_threshold(fit.missed, fit.num_present, 1 - coverage)
                missed = truth.missed[:, np.searchsorted(RECALL_THRESHOLDS, threshold)]
                columns["missed"] = ratio(missed.astype(np.float64), truth.voxels)
        tables.append(DataFrame(columns))
    return concat(tables)


def rows_of(table: "DataFrame") -> list[ByName]:
    """Return the rows of a table; None where nothing is known."""
    rows: list[ByName] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


_TITLES = {
    "num_cases": "cases",
    "dice_error": "Dice to expect: mean absolute error",
    "dice_bias": "Dice to expect − true Dice",
    "spearman": "Dice to expect and true Dice: Spearman",
    "aurc": "AURC",
    "excess_aurc": "AURC − that of the best order",
    "fitted_dice_error": "fitted Dice: mean absolute error",
    "num_bounds": "bounds of the Dice",
    "bound_coverage": "Dice at least its bound (share)",
    "volume_bias_ml": "expected − true volume (ml)",
    "volume_bias_share": "expected − true volume (share)",
    "volume_error_ml": "expected volume: mean absolute error (ml)",
    "num_intervals": "intervals of the volume",
    "interval_coverage": "volume in its interval (share)",
    "interval_width_ml": "width of the interval (ml)",
    "missed": "missed by the recall masks (share)",
}
"""The values of a judgement, as tables call them."""


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


def _judge(outcomes: "DataFrame", structure: str = ALL) -> ByName:
    """Judge the Dice to expect, volumes and intervals of ``outcomes_of`` one structure, or of all structures."""
    dice_error = outcomes.dice_to_expect - outcomes.dice
    risk = 1 - outcomes.dice
    area = risk_coverage_area(outcomes.fitted_dice.fillna(outcomes.dice_to_expect), risk)
    bound_held = (outcomes.dice >= outcomes.dice_low)[outcomes.dice_low.notna()]
    volume_error = outcomes.volume_ml - outcomes.true_ml
    in_interval = outcomes.true_ml.between(outcomes.volume_low_ml, outcomes.volume_high_ml)
    interval_held = in_interval[outcomes.volume_low_ml.notna()]
    values: ByName = {
        "num_cases": len(outcomes),
        "dice_error": dice_error.abs().mean(),
        "dice_bias": dice_error.mean(),
        "spearman": outcomes[["dice_to_expect", "dice"]].rank().corr().iloc[0, 1],
        "aurc": area,
        "excess_aurc": area - risk_coverage_area(-risk, risk),
        "fitted_dice_error": (outcomes.fitted_dice - outcomes.dice).abs().mean(),
        "num_bounds": len(bound_held) or np.nan,
        "bound_coverage": bound_held.mean(),
        "volume_bias_ml": volume_error.mean(),
        "volume_bias_share": ratio(volume_error.sum(), outcomes.true_ml.sum()),
        "volume_error_ml": volume_error.abs().mean(),
        "num_intervals": len(interval_held) or np.nan,
        "interval_coverage": interval_held.mean(),
        "interval_width_ml": (outcomes.volume_high_ml - outcomes.volume_low_ml).mean(),
        "missed": outcomes.missed.mean(),
    }
    known = {
        name: None if np.isnan(value) else np.asarray(value).item()
        for name, value in values.items()
    }
    return {"structure": structure, **known}


def judge_structures(outcomes: "DataFrame") -> list[ByName]:
    """Judge predictions of each structure, in the order in which they appear, and of all together if there are several.

    Errors, biases, widths and what is missed are means over the outcomes, but for ``volume_bias_share``, the sum of the
    expected volumes over that of the true ones, minus 1. The AURC is that of trust, the fitted Dice or, without a fit,
    the Dice to expect, and of risk, 1 − Dice. By a fit, there are bounds of outcomes with something segmented, and
    intervals of those without ignored voxels. Values that are not defined are None.
    """
    judgements = [
        _judge(of_structure, name)
        for name, of_structure in outcomes.groupby("structure", sort=False)
    ]
    return [*judgements, _judge(outcomes)] if len(judgements) > 1 else judgements


def judgement_table(judgements: Sequence[ByName]) -> str:
    """Return a text table: a column for each structure, a line for each value that any of them has."""
    from pandas import DataFrame

    frame = DataFrame(judgements).set_index("structure").astype(object)
    rows = frame.rename(columns=_TITLES).T.dropna(how="all")
    text: str = rows.to_string(float_format="{:.3f}".format, na_rep="–")
    return text


def ignored_text(shares: Sequence[float], whose: str = "The ground truth") -> str | None:
    """Say how much of the cases is ignored, from the share of each; None if nothing is.

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
