"""The list of a review: the order of structures and cases, its text, its CSV, and the JSON file beside that."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.files import check_output, read_json, write_csv, write_json
from nnunet_nacl.metrics import ratio
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._judgement import judgement_table, rows_of
from nnunet_nacl.use._structure_fit import StructureFit, predicted_columns, true_columns

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_FORMAT = "review of nnunet_nacl"
_NUM_LISTED = 10  # cases in the terminal
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


def check_list(file: Path, *, is_default: bool, overwrite: bool) -> None:
    """Raise an OSError if CSV or JSON file exists or cannot be written; by default, an earlier review is replaced."""
    described = file.with_suffix(".json")
    if is_default:
        with suppress(OSError, ValueError):
            overwrite |= read_json(described, ByName).get("format") == _FORMAT
    for one in (file, described):
        check_output(one, overwrite=overwrite)


@dataclass(frozen=True)
class Review:
    """A review of a folder: the ``table`` is the CSV's, a row for each structure of each case.

    With ground truth it has judgements. ``notes`` concern all cases.
    """

    table: "DataFrame"
    judgements: list[ByName]
    cases: list[str]
    skipped: list[Skipped]
    notes: list[str]
    file: Path

    def summary(self) -> str:
        """Return a text for users: the first cases with their lowest-ranked structure, judgements and notes."""
        lines = ["trust  structure, rank  case"]
        total = len(self.cases)
        for rows in list(ranked_cases(self.table).values())[:_NUM_LISTED]:
            first = rows[0]
            place = f"{first['trust']:5.2f}  {first['structure']}, {first['rank']} of {total}"
            lines.append("  ".join([place, first["case"], *first["reasons"]]))
        if total > _NUM_LISTED:
            lines.append(f"… and {total - _NUM_LISTED} more cases")
        if self.judgements:
            lines += ["", judgement_table(self.judgements)]
        return "\n".join([*lines, *self.notes])

    def write(self, outcomes: "DataFrame | None", fit: str | Path | None) -> None:
        """Write the CSV and, beside it, the judgements with the predictions and truth that they compare."""
        table = self.table.astype(object).where(self.table.notna(), "")
        table["reasons"] = table["reasons"].map("; ".join)
        table = table.map(lambda cell: f"{cell:.6g}" if isinstance(cell, float) else cell)
        content = {
            "format": _FORMAT,
            "version": __version__,
            "fit": None if fit is None else str(fit),
            "judgements": self.judgements,
            "judged": [] if outcomes is None else rows_of(outcomes),
            "notes": self.notes,
            "skipped": [asdict(case) for case in self.skipped],
        }
        # First, since it marks the list beside it as a review's, also if this process is killed in between
        write_json(self.file.with_suffix(".json"), content)
        write_csv(self.file, [table.columns, *table.to_numpy()])
