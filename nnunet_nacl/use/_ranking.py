"""The list of a review: structures of cases, those that are trusted least first, with reasons to look at them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics.counting import ratio
from nnunet_nacl.typing import ByName, Floats
from nnunet_nacl.use._structures import (
    StructureFit,
    predicted_columns,
    rows_of,
    true_columns,
    trust_of,
)

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_LOW_DICE = 0.5
_PRESENT = 0.1  # a probability of a structure of which nothing is segmented that is worth a look


def ranked_structures(
    counted: FolderResult,
    fits: Mapping[str, StructureFit],
    agreement: Floats,
) -> "DataFrame":
    """A row for each structure of each case, in the order of trust; ``agreement`` of members is (cases, structures)."""
    from pandas import DataFrame, concat

    tables = []
    for number, name in enumerate(counted.meaning.names):
        counts = counted.counts.of_structure(number)
        sums = counts.sums
        doubt = counts.doubt
        voxel_ml = counts.voxel_ml
        predicted = predicted_columns(sums, voxel_ml, fits.get(name, StructureFit()))
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
            "agreement": agreement[:, number],
            **true_columns(counts.truth, voxel_ml),
            "trust": trust_of(sums.dice_to_expect, predicted["fitted_dice"]),
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
    """Reasons to look at a structure."""
    if row["segmented_ml"] == 0:
        if row["max_probability"] < _PRESENT:
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
    """The rows of each case, the structure with the lowest rank first; None where nothing is known.

    Cases are in the order of their lowest rank, ties in the order of their mean rank.
    """
    ranks = table.groupby("case")["rank"].agg(["min", "mean"]).sort_values(["min", "mean"])
    cases: dict[str, list[ByName]] = {name: [] for name in ranks.index}
    for row in rows_of(table.sort_values("rank", kind="stable")):
        cases[row["case"]].append(row)
    return cases
