"""Reviews beside the predictions show what their confidences are good for."""

from contextlib import suppress
from dataclasses import dataclass

import pandas as pd

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.use import Judgement, judge_outcomes, read_outcomes

# Dice of a review and of an evaluation differ by less than this if they are of the same files
_SAME_DICE = 1e-6


@dataclass(frozen=True)
class Reviews:
    """What the reviews say about the cases that all of them have.

    ``names`` are all compared methods. Those with a usable review have ``outcomes`` and ``judgements``, those that are
    ``missing`` have none. ``problems`` say why an existing review is not used.
    """

    names: list[str]
    outcomes: dict[str, pd.DataFrame]
    judgements: dict[str, Judgement]
    cases: list[str]
    missing: list[str]
    problems: list[str]


def read_reviews(comparison: Comparison) -> Reviews:
    """Read the reviews of methods, in the order of their cases and structures; each must have the Dice evaluated."""
    dices = comparison.mask_dices
    found: dict[str, pd.DataFrame] = {}
    problems: list[str] = []
    for name, of_method in dices.items():
        try:
            outcomes = _first_review(comparison.results[name])
            if outcomes is None:
                continue
            rows = _compared(outcomes, of_method)
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if len(rows):
            found[name] = rows
    cases = [
        case
        for case in comparison.cases
        if found and all(case in rows.index for rows in found.values())
    ]
    if found and not cases:
        problems.append("The reviews of the methods share no case.")
    # Structure by structure, as the rows of a review's judgement are.
    shown = [(case, structure) for structure in comparison.structures for case in cases]
    shared = {name: rows.loc[shown] for name, rows in found.items() if cases}
    judgements = {name: judge_outcomes(rows) for name, rows in shared.items()}
    missing = [name for name in dices if name not in found]
    return Reviews(list(dices), shared, judgements, cases, missing, problems)


def _first_review(result: FolderResult) -> pd.DataFrame | None:
    """The outcomes of the reviews in each folder of predictions, or else beside the summary, if there are any."""
    beside_summary = [] if result.file is None else [result.file.parent]
    for folders in (result.origin.pred_folders, beside_summary):
        with suppress(FileNotFoundError):
            outcomes = [read_outcomes(folder) for folder in folders]
            if any(map(len, outcomes)):
                return pd.concat(outcomes)
    return None


def _compared(outcomes: pd.DataFrame, evaluated: pd.DataFrame) -> pd.DataFrame:
    """The outcomes of the compared structures, in their order; cases for which the review lacks any are left out."""
    dices = evaluated.T.unstack().rename_axis(["case", "structure"])
    rows = outcomes[~outcomes.index.duplicated(keep="last")].reindex(dices.index)
    is_whole = rows.dice.notna().groupby("case").transform("all")
    rows = rows[is_whole]
    differs = (rows.dice - dices[is_whole]).abs() > _SAME_DICE  # never of NaN: it is in neither
    if differs.any():
        case, structure = differs.idxmax()  # the first one
        raise ValueError(
            f"the Dice of {structure} in {case} is {rows.dice[case, structure]:.6g} in the review, "
            f"{dices[case, structure]:.6g} in the evaluation. Review and evaluate the same predictions."
        )
    return rows
