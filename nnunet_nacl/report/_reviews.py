"""Reviews beside the predictions show what their confidences are good for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnunet_nacl.use import Judgement, Outcome, judge, read_outcomes

# Dice of a review and of an evaluation differ by less than this if they are of the same files
_SAME_DICE = 1e-6


@dataclass(frozen=True)
class Reviews:
    """What the reviews say about the cases that all of them have.

    ``names`` are all compared methods, ``judgements`` those with a usable review; ``missing`` have none; ``problems``
    say why an existing review is not used. ``frame`` has all rows, with the ``method`` of each.
    """

    names: list[str]
    frame: pd.DataFrame
    judgements: dict[str, Judgement]
    cases: list[str]
    missing: list[str]
    problems: list[str]


def read_reviews(
    dices: Mapping[str, pd.DataFrame], folders: Mapping[str, Sequence[Sequence[Path]]]
) -> Reviews:
    """Read the reviews of methods, in the order of their cases and structures.

    Args:
        dices: method -> evaluated Dice, cases × structures (``Comparison.mask_dices``), which a review must have, too.
        folders: method -> where its reviews may be (``Comparison.review_folders``): in folders together, or in others.
    """
    found: dict[str, dict[str, list[Outcome]]] = {}
    problems: list[str] = []
    for name, of_method in dices.items():
        try:
            rows = _compared_rows(of_method, folders[name])
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if rows:
            found[name] = rows
    compared = next(iter(dices.values()))
    cases = [
        case for case in compared.index if found and all(case in rows for rows in found.values())
    ]
    if found and not cases:
        problems.append("The reviews of the methods share no case.")
    # Structure by structure, as the rows of a review's judgement are.
    structures = range(len(compared.columns))
    shared = {
        name: [rows[case][row] for row in structures for case in cases]
        for name, rows in found.items()
        if cases
    }
    frame = pd.DataFrame(
        [{"method": name, **vars(row)} for name, rows in shared.items() for row in rows]
    )
    judgements = {name: judge(rows) for name, rows in shared.items()}
    missing = [name for name in dices if name not in found]
    return Reviews(list(dices), frame, judgements, cases, missing, problems)


def _compared_rows(
    dices: pd.DataFrame, places: Sequence[Sequence[Path]]
) -> dict[str, list[Outcome]]:
    """Case -> rows of its compared structures, in their order; cases for which a review lacks any are left out."""
    rows: list[Outcome] = []
    for folders in places:
        with suppress(FileNotFoundError):
            rows = rows or [row for folder in folders for row in read_outcomes(folder)]
    by_structure = {(row.case, row.structure): row for row in rows}
    found = {}
    for case, evaluated in dices.iterrows():
        of_case = [
            by_structure[case, structure]
            for structure in dices.columns
            if (case, structure) in by_structure
        ]
        if len(of_case) < len(dices.columns):
            continue
        found[case] = of_case
        for row, dice in zip(of_case, evaluated, strict=True):
            if abs(row.dice - dice) > _SAME_DICE:  # never of NaN: the structure is in neither
                raise ValueError(
                    f"the Dice of {row.structure} in {case} is {row.dice:.6g} in the review, {dice:.6g} in the "
                    "evaluation. Review and evaluate the same predictions."
                )
    return found
