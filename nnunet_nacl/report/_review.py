"""Reviews beside the predictions: what their confidences are good for."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from nnunet_nacl.report._comparison import Comparison, Method
from nnunet_nacl.report._results import review_command
from nnunet_nacl.use import ALL, REVIEW_NAME, Judged, Judgement, read_judged

_SAME_DICE = 1e-6  # Dice of a review and of an evaluation differ by less than this if they are of the same files


@dataclass(frozen=True)
class Reviews:
    """What the reviews say of the cases that all of them have.

    ``names`` are all compared methods, ``judgements`` those with a usable review; ``missing`` are the commands that
    make the others; ``problems`` say why a review that is there is not used. The rows of ``frame`` are a structure of a
    case by a method; its columns ``method`` and those of :class:`Judged`.
    """

    names: list[str]
    frame: pd.DataFrame
    judgements: dict[str, Judgement]
    cases: list[str]
    missing: dict[str, str]
    problems: list[str]


def read_reviews(comparison: Comparison) -> Reviews:
    """Read the reviews beside the predictions, or beside the summaries."""
    found: dict[str, dict[str, list[Judged]]] = {}
    problems: list[str] = []
    for method in comparison.methods:
        try:
            rows = _compared_rows(comparison, method)
        except (OSError, ValueError) as error:
            problems.append(f"{method.name}: {error}")
            continue
        if rows:
            found[method.name] = rows
    cases = [case for case in comparison.cases if found and all(case in rows for rows in found.values())]
    if found and not cases:
        problems.append("The reviews of the methods share no case.")
    # Structure by structure, as the rows of a review's judgement are.
    structures = range(len(comparison.structures))
    shared = {name: [rows[case][row] for row in structures for case in cases] for name, rows in found.items() if cases}
    frame = pd.DataFrame([{"method": name, **asdict(row)} for name, rows in shared.items() for row in rows])
    judgements = {name: Judgement.of(ALL, rows) for name, rows in shared.items()}
    missing = {one.name: review_command(one.result) for one in comparison.methods if one.name not in found}
    return Reviews(comparison.names, frame, judgements, cases, missing, problems)


def _compared_rows(comparison: Comparison, method: Method) -> dict[str, list[Judged]]:
    """Case -> rows of its compared structures, in their order; without the cases of which a review lacks any."""
    name = Path(REVIEW_NAME).with_suffix(".json")
    files = [Path(place.pred_folder) / name for place in method.result.origin.places]
    if not all(file.is_file() for file in files):
        summary = method.result.file
        files = [summary.parent / name] if summary is not None and (summary.parent / name).is_file() else []
    by_structure = {(row.case, row.structure): row for file in files for row in read_judged(file)}
    found: dict[str, list[Judged]] = {}
    for case, evaluated in zip(comparison.cases, method.segmentation("Dice"), strict=True):
        rows = [by_structure[case, one] for one in comparison.structures if (case, one) in by_structure]
        if len(rows) < len(comparison.structures):
            continue
        found[case] = rows
        for row, dice in zip(rows, evaluated, strict=True):
            if abs(row.dice - dice) > _SAME_DICE:  # never of NaN: the structure is in neither
                raise ValueError(
                    f"{', '.join(map(str, files))}: the Dice of {row.structure} in {case} is {row.dice:.6g}; expected "
                    f"{dice:.6g}, as in the evaluation. Review and evaluate the same predictions."
                )
    return found
