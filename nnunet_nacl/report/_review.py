"""Reviews beside the predictions: what their confidences are good for."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnunet_nacl.report._comparison import Comparison, Method
from nnunet_nacl.report._results import review_command
from nnunet_nacl.use import judge, read_judged

# Dice of a review and of an evaluation differ by less than this if they are of the same files
_SAME_DICE = 1e-6


@dataclass(frozen=True)
class Reviews:
    """What the reviews say of the cases that all of them have.

    ``names`` are all compared methods, ``judgements`` those with a usable review; ``missing`` are the commands that
    make the others; ``problems`` say why a review that is there is not used. The rows of ``frame`` are a structure of a
    case by a ``method``, as :func:`read_judged` reads them.
    """

    names: list[str]
    frame: pd.DataFrame
    judgements: dict[str, dict[str, Any]]
    cases: list[str]
    missing: dict[str, str]
    problems: list[str]


def read_reviews(comparison: Comparison) -> Reviews:
    """Read the reviews beside the predictions, or beside the summaries."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    problems: list[str] = []
    for method in comparison.methods:
        try:
            rows = _compared_rows(comparison, method)
        except (OSError, ValueError) as error:
            problems.append(f"{method.name}: {error}")
            continue
        if rows:
            found[method.name] = rows
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
    frame = pd.DataFrame([{"method": name, **row} for name, rows in shared.items() for row in rows])
    judgements = {name: judge(rows) for name, rows in shared.items()}
    missing = {
        method.name: review_command(method.result)
        for method in comparison.methods
        if method.name not in found
    }
    return Reviews(comparison.names, frame, judgements, cases, missing, problems)


def _compared_rows(comparison: Comparison, method: Method) -> dict[str, list[dict[str, Any]]]:
    """Case -> rows of its compared structures, in their order; without the cases of which a review lacks any."""
    summary = method.result.file
    rows = list[dict[str, Any]]()
    for folders in (
        [Path(pair.pred_folder) for pair in method.result.origin.folders],
        [summary and summary.parent],
    ):
        with suppress(FileNotFoundError):
            rows = rows or [
                row for folder in folders if folder is not None for row in read_judged(folder)
            ]
    by_structure = {(row["case"], row["structure"]): row for row in rows}
    found = {}
    for case, evaluated in zip(comparison.cases, method.segmentation("Dice"), strict=True):
        of_case = [
            by_structure[case, structure]
            for structure in comparison.structures
            if (case, structure) in by_structure
        ]
        if len(of_case) < len(comparison.structures):
            continue
        found[case] = of_case
        for row, dice in zip(of_case, evaluated, strict=True):
            if abs(row["dice"] - dice) > _SAME_DICE:  # never of NaN: the structure is in neither
                differs = (
                    f"the Dice of {row['structure']} in {case} is {row['dice']:.6g} in the review"
                )
                raise ValueError(
                    f"{differs}, {dice:.6g} in the evaluation. Review and evaluate the same predictions."
                )
    return found
