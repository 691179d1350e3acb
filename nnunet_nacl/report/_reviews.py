"""Reviews beside the predictions show what their confidences are good for."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnunet_nacl.report._frame import Comparison
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.use import Judgement, Outcome, judge, read_outcomes

# Dice of a review and of an evaluation differ by less than this if they are of the same files
_SAME_DICE = 1e-6


@dataclass(frozen=True)
class Reviews:
    """What the reviews say about the cases that all of them have.

    ``names`` are all compared methods, ``judgements`` those with a usable review; ``missing`` are the commands that
    make the missing reviews; ``problems`` say why an existing review is not used. ``frame`` has all rows, with the
    ``method`` of each.
    """

    names: list[str]
    frame: pd.DataFrame
    judgements: dict[str, Judgement]
    cases: list[str]
    missing: dict[str, str]
    problems: list[str]


def read_reviews(comparison: Comparison) -> Reviews:
    """Read the reviews beside the predictions, or beside the summaries."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    problems: list[str] = []
    for name in comparison.names:
        try:
            rows = _compared_rows(comparison, name)
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if rows:
            found[name] = rows
    cases = [
        case for case in comparison.cases if found and all(case in rows for rows in found.values())
    ]
    if found and not cases:
        problems.append("The reviews of the methods share no case.")
    # Structure by structure, as the rows of a review's judgement are.
    structures = range(len(comparison.structures))
    shared = {
        name: [rows[case][row] for row in structures for case in cases]
        for name, rows in found.items()
        if cases
    }
    frame = pd.DataFrame(
        [{"method": name, **vars(row)} for name, rows in shared.items() for row in rows]
    )
    judgements = {name: judge(rows) for name, rows in shared.items()}
    missing = {
        name: origin.review_command
        for name, origin in comparison.origins.items()
        if name not in found
    }
    return Reviews(comparison.names, frame, judgements, cases, missing, problems)


def _compared_rows(comparison: Comparison, method: str) -> dict[str, list[Outcome]]:
    """Case -> rows of its compared structures, in their order; cases for which a review lacks any are left out."""
    places = [[Path(pair.pred_folder) for pair in comparison.origins[method].folders]]
    summary = comparison.summaries[method]
    if summary is not None:
        places.append([summary.parent])
    rows: list[Outcome] = []
    for folders in places:
        with suppress(FileNotFoundError):
            rows = rows or [row for folder in folders for row in read_outcomes(folder)]
    by_structure = {(row.case, row.structure): row for row in rows}
    found = {}
    of_masks = comparison.values_of(Metric("Dice_mask")).loc[method]
    dices = comparison.values_of(DICE).loc[method] if of_masks.isna().all(axis=None) else of_masks
    for case, evaluated in zip(comparison.cases, dices.to_numpy(), strict=True):
        of_case = [
            by_structure[case, structure]
            for structure in comparison.structures
            if (case, structure) in by_structure
        ]
        if len(of_case) < len(comparison.structures):
            continue
        found[case] = of_case
        for row, dice in zip(of_case, evaluated, strict=True):
            if abs(row.dice - dice) > _SAME_DICE:  # never of NaN: the structure is in neither
                raise ValueError(
                    f"the Dice of {row.structure} in {case} is {row.dice:.6g} in the review, {dice:.6g} in the "
                    "evaluation. Review and evaluate the same predictions."
                )
    return found
