"""Reviews beside the predictions: what their confidences are good for. The only module that knows the review."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nnunet_nacl.report._comparison import Array, Comparison, Method
from nnunet_nacl.report._results import review_command
from nnunet_nacl.use import (
    ALL,
    REVIEW_NAME,
    Judged,
    Judgement,
    RiskCoverage,
    VolumeJudgement,
    image_layer,
    judge_volumes,
    outline,
    read_judged,
    risk_coverage,
    window_around,
)

__all__ = ["JudgedMethod", "JudgedMethods", "image_layer", "judged_methods", "outline", "window_around"]

_SAME_DICE = 1e-6
"""Dice of a review and of an evaluation differ by less than this if they are of the same files."""


@dataclass(frozen=True)
class JudgedMethod:
    """What the review of a method says of the compared cases, one row for each structure of each case, and is true."""

    name: str
    rows: list[Judged]

    @cached_property
    def judgement(self) -> Judgement:
        """Of all rows together."""
        return Judgement.of(ALL, self.rows)

    @property
    def structures(self) -> list[str]:
        return list(dict.fromkeys(row.structure for row in self.rows))

    @property
    def predicted_dice(self) -> Array:
        return np.array([row.predicted_dice for row in self.rows])

    @property
    def dice(self) -> Array:
        return np.array([row.dice for row in self.rows])

    @property
    def mean_ml(self) -> Array:
        """(rows,) mean of expected and true volume, in ml."""
        return np.array([(row.expected_ml + row.true_ml) / 2 for row in self.rows])

    @property
    def difference_ml(self) -> Array:
        """(rows,) expected less true volume, in ml."""
        return np.array([row.expected_ml - row.true_ml for row in self.rows])

    @cached_property
    def volumes(self) -> VolumeJudgement:
        """Bias of the volumes, and limits of agreement."""
        return judge_volumes([row.expected_ml for row in self.rows], [row.true_ml for row in self.rows])

    @property
    def risk_coverage(self) -> RiskCoverage:
        """Risk 1 − Dice, the highest predicted Dice first."""
        return risk_coverage(self.predicted_dice, 1 - self.dice)


@dataclass(frozen=True)
class JudgedMethods:
    """The methods whose predictions were reviewed and judged by the ground truth, over the cases that all reviews have.

    ``names`` are all compared methods; ``missing`` those without a usable review, which ``commands`` make; ``problems``
    say why a review that is there is not used.
    """

    names: list[str]
    methods: list[JudgedMethod]
    cases: list[str]
    missing: list[str]
    problems: list[str]
    commands: list[str]

    @property
    def least_dice(self) -> float:
        """A tenth below which no predicted or true Dice lies."""
        least = min(float(min(one.predicted_dice.min(), one.dice.min())) for one in self.methods)
        return math.floor(least * 10) / 10

    @property
    def volume_frame(self) -> tuple[float, float]:
        """The largest volume, and the largest difference of volumes or limit of agreement, of any method, in ml."""
        limits = [abs(end) for one in self.methods for end in one.volumes.limits_ml if not math.isnan(end)]
        largest = [float(np.abs(one.difference_ml).max()) for one in self.methods]
        return max(float(one.mean_ml.max()) for one in self.methods), max(*largest, *limits, 0.0)


def judged_methods(comparison: Comparison) -> JudgedMethods:
    """What reviews beside the predictions, or beside the summary, say of the compared cases and structures.

    A review that cannot be read, or whose Dice is not that of the evaluation, is among the problems.
    """
    found: dict[str, dict[str, list[Judged]]] = {}
    problems: list[str] = []
    for method in comparison.methods:
        files = _review_files(method)
        try:
            rows = [row for file in files for row in read_judged(file)]
            by_case = _compared(rows, comparison, method, files)
        except (OSError, ValueError) as error:
            problems.append(f"{method.name}: {error}")
            continue
        if by_case:
            found[method.name] = by_case
    cases = [case for case in comparison.cases if all(case in by_case for by_case in found.values())] if found else []
    if found and not cases:
        problems.append("The reviews of the methods share no case.")
    structures = range(len(comparison.structures))
    methods = [
        JudgedMethod(name, [by_case[case][number] for number in structures for case in cases])
        for name, by_case in found.items()
        if cases
    ]
    missing = [method for method in comparison.methods if method.name not in found]
    commands = [review_command(method.result) for method in missing]
    return JudgedMethods(comparison.names, methods, cases, [one.name for one in missing], problems, commands)


def _review_files(method: Method) -> list[Path]:
    """The reviews of all folders of a method's predictions, else the one beside its summary; none if one is missing."""
    name = Path(REVIEW_NAME).with_suffix(".json")
    files = [Path(place.pred_folder) / name for place in method.result.origin.places]
    if all(file.is_file() for file in files):
        return files
    summary = method.result.file
    return [summary.parent / name] if summary is not None and (summary.parent / name).is_file() else []


def _compared(
    rows: Sequence[Judged], comparison: Comparison, method: Method, files: Sequence[Path]
) -> dict[str, list[Judged]]:
    """Case -> rows of its compared structures, in their order; without the cases of which a review lacks any."""
    by_place = {(row.case, row.structure): row for row in rows}
    found: dict[str, list[Judged]] = {}
    for case, evaluated in zip(comparison.cases, method.segmentation("Dice"), strict=True):
        if any((case, structure) not in by_place for structure in comparison.structures):
            continue
        found[case] = [by_place[case, structure] for structure in comparison.structures]
        for row, dice in zip(found[case], evaluated, strict=True):
            if abs(row.dice - dice) > _SAME_DICE:  # never of NaN: the structure is in neither
                shown = ", ".join(map(str, files))
                raise ValueError(
                    f"{shown}: the Dice of {row.structure} in {case} is {row.dice:.6g}; expected {dice:.6g}, as in the "
                    "evaluation. Review and evaluate the same predictions."
                )
    return found
