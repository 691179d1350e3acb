"""The order in which structures and cases of a review come."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import ratio
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._judgement import rows_of
from nnunet_nacl.use._structure_fit import StructureFit, predicted_columns, true_columns

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_LOW_DICE = 0.5
_LIKELY = 0.1  # from this probability on, a structure that is not segmented may be there


def ranked_structures(
    counted: FolderResult,
    fits: Mapping[str, StructureFit],
    agreements: Mapping[str, Sequence[float]],
) -> "DataFrame":
    """List each structure of each case in the order of trust; ``agreements`` are those of members, by case."""
    from pandas import DataFrame, concat

    unknown = [np.nan] * len(counted.meaning.structures)
    tables = []
    for number, name in enumerate(counted.meaning.names):
        counts = counted.counts.of_structure(number)
        sums = counts.sums
        doubt = counts.doubt
        voxel_ml = counts.voxel_ml
        predicted = predicted_columns(sums, voxel_ml, fits.get(name, StructureFit()))
        fitted = predicted["fitted_dice"]
        columns = {
            "case": counted.cases,
            "structure": name,
            "predicted_dice": sums.predicted_dice,
            **predicted,
            "segmented_ml": voxel_ml * sums.segmented,
            "max_probability": sums.max_probability,
            "mean_error": ratio(doubt.errors, doubt.near),
            "mean_entropy": ratio(doubt.entropy, doubt.near),
            "unsure_ml": voxel_ml * doubt.unsure,
            "agreement": [agreements.get(case, unknown)[number] for case in counted.cases],
            **true_columns(counts.truth, voxel_ml),
            "trust": np.where(np.isnan(fitted), sums.dice_to_expect, fitted),
        }
        tables.append(DataFrame(columns))
    table = concat(tables).sort_values(
        ["trust", "predicted_dice", "volume_ml", "case", "structure"],
        ascending=[True, True, False, True, True],
        ignore_index=True,
    )
    table["reasons"] = list(map(_reasons, rows_of(table)))
    table["rank"] = table.groupby("structure").cumcount() + 1
    return table


def _reasons(row: ByName) -> list[str]:
    """List the reasons to look at a structure."""
    if row["segmented_ml"] == 0:
        if row["max_probability"] < _LIKELY:
            return []
        return [
            f"nothing is segmented, though the structure's probability reaches {row['max_probability']:.2f}"
        ]
    reasons = []
    if row["trust"] < _LOW_DICE:
        reasons.append(
            f"the {'predicted' if row['fitted_dice'] is None else 'fitted'} Dice is below {_LOW_DICE:g}"
        )
    low = row["volume_low_ml"]
    high = row["volume_high_ml"]
    if low is not None and not low <= row["segmented_ml"] <= high:
        side = "below" if row["segmented_ml"] < low else "above"
        reasons.append(f"the segmented volume is {side} the interval of the expected volume")
    return reasons


def ranked_cases(table: "DataFrame") -> dict[str, list[ByName]]:
    """Return the rows of each case, the structure with the lowest rank first; None where nothing is known.

    Cases are in the order of their lowest rank, ties in the order of their mean rank.
    """
    ranks = table.groupby("case")["rank"].agg(["min", "mean"]).sort_values(["min", "mean"])
    cases: dict[str, list[ByName]] = {name: [] for name in ranks.index}
    for row in rows_of(table.sort_values("rank", kind="stable")):
        cases[row["case"]].append(row)
    return cases
