"""What the confidences are good for: predicted Dice and volumes against the true ones, as reviews have them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.report._comparison import Comparison, Method
from nnunet_nacl.report._formats import Cell, Mark, Table
from nnunet_nacl.report._metrics import number_text, signed_text
from nnunet_nacl.report._results import review_command
from nnunet_nacl.use import (
    ALL,
    REVIEW_NAME,
    Judged,
    Judgement,
    RiskCoverage,
    VolumeJudgement,
    judge_volumes,
    read_judged,
    risk_coverage,
)

_SAME_DICE = 1e-6
"""Dice of a review and of an evaluation differ by less than this if they are of the same files."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedMethod:
    """What the review of a method says of the compared cases, and what is true.

    Attributes:
        name: of the method.
        rows: one for each structure of each case.
        judgement: of all of them together.
    """

    name: str
    rows: list[Judged]
    judgement: Judgement

    @property
    def structures(self) -> list[str]:
        """Names of the structures, in the order of the rows."""
        return list(dict.fromkeys(row.structure for row in self.rows))

    @property
    def predicted_dice(self) -> Array:
        """(rows,) predicted Dice."""
        return np.array([row.predicted_dice for row in self.rows])

    @property
    def dice(self) -> Array:
        """(rows,) Dice."""
        return np.array([row.dice for row in self.rows])

    @property
    def mean_ml(self) -> Array:
        """(rows,) mean of expected and true volume, in ml."""
        return np.array([(row.expected_ml + row.true_ml) / 2 for row in self.rows])

    @property
    def difference_ml(self) -> Array:
        """(rows,) expected less true volume, in ml."""
        return np.array([row.expected_ml - row.true_ml for row in self.rows])

    @property
    def volumes(self) -> VolumeJudgement:
        """Bias of the volumes, and limits of agreement."""
        return judge_volumes([row.expected_ml for row in self.rows], [row.true_ml for row in self.rows])

    @property
    def risk_coverage(self) -> RiskCoverage:
        """Risk 1 − Dice, the highest predicted Dice first."""
        return risk_coverage(self.predicted_dice, 1 - self.dice)

    def describe_dice(self) -> str:
        """The plot of predicted against true Dice, in words."""
        one = self.judgement
        return (
            f"True against predicted Dice of {self.name}: mean absolute error {number_text(_nan(one.dice_error))}, "
            f"bias {signed_text(_nan(one.dice_bias), 3)}, rank correlation {number_text(_nan(one.spearman))}."
        )

    def describe_volumes(self) -> str:
        """The plot of the volumes, in words."""
        one, (low, high) = self.volumes, self.volumes.limits_ml
        held = self.judgement.interval_coverage
        return (
            f"Expected less true volume of {self.name} against the mean of both: "
            f"bias {signed_text(one.bias_ml, 3)} ml, "
            f"95 % limits of agreement {signed_text(low, 3)} to {signed_text(high, 3)} ml"
            f"{'' if held is None else f'; intervals hold {held:.1%} of the true volumes'}."
        )


@dataclass(frozen=True)
class JudgedMethods:
    """The methods whose predictions were reviewed and judged by the ground truth.

    Attributes:
        names: of all compared methods.
        methods: those that have a review, over the same cases.
        cases: which these are.
        missing: names of the methods without a usable review.
        problems: why a review that is there is not used.
        commands: that make what is missing.
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

    def describe_risks(self) -> str:
        """The risk–coverage curves, in words."""
        shown = "; ".join(
            f"{one.name}: AURC {number_text(_nan(one.judgement.aurc))}, "
            f"{number_text(_nan(one.judgement.excess_aurc))} above the best order"
            for one in self.methods
        )
        return f"Risk–coverage curves, with risk 1 minus Dice and the highest predicted Dice first. {shown}."


def judged_methods(comparison: Comparison) -> JudgedMethods:
    """What reviews beside the predictions, or beside the summary, say of the compared cases and structures.

    A review that cannot be read, or whose Dice is not that of the evaluation, is among the problems.
    """
    found: dict[str, dict[str, list[Judged]]] = {}
    problems: list[str] = []
    for method in comparison.methods:
        files = _review_files(method)
        if not files:
            continue
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
    methods = [_judged(name, by_case, cases, comparison.structures) for name, by_case in found.items()] if cases else []
    missing = [method for method in comparison.methods if method.name not in found]
    return JudgedMethods(
        comparison.names,
        methods,
        cases,
        [method.name for method in missing],
        problems,
        [review_command(place) for method in missing for place in method.result.origin.places],
    )


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
    """Case -> rows of its compared structures, in their order; without the cases of which a review lacks any.

    Raises:
        ValueError: the review is of other predictions or of another ground truth than the evaluation.
    """
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


def _judged(
    name: str, by_case: Mapping[str, list[Judged]], cases: Sequence[str], structures: Sequence[str]
) -> JudgedMethod:
    rows = [by_case[case][number] for number in range(len(structures)) for case in cases]
    return JudgedMethod(name, rows, Judgement.of(ALL, rows))


def confidences_table(judged: JudgedMethods) -> Table:
    """Predicted Dice, expected volumes and intervals of each method, judged by the ground truth."""
    judgements = [one.judgement for one in judged.methods]
    columns = [
        ("Dice MAE ↓", _column([one.dice_error for one in judgements], best=min)),
        ("bias", _column([one.dice_bias for one in judgements], signed=True)),
        ("Spearman ↑", _column([one.spearman for one in judgements], best=max)),
        ("AURC ↓", _column([one.aurc for one in judgements], best=min)),
        ("excess AURC ↓", _column([one.excess_aurc for one in judgements], best=min)),
        ("volume bias (share)", _column([one.volume_bias_share for one in judgements], signed=True)),
    ]
    number = f"{len(judged.cases)} case{'' if len(judged.cases) == 1 else 's'}"
    note = (
        f"All structures of {number} together. Dice MAE and bias: of predicted less true Dice. "
        "Spearman: their rank correlation. AURC: area under the risk–coverage curve; excess: above that of the best "
        "order. Volume bias: sum of expected over sum of true volumes, less 1."
    )
    if any(one.interval_coverage is not None for one in judgements):
        columns += [
            ("interval held", _column([one.interval_coverage for one in judgements])),
            ("width (ml)", _column([one.interval_width_ml for one in judgements])),
        ]
        note += " Interval held: share of the true volumes that lie in their fitted interval; width: its mean."
    else:
        note += " No intervals were fitted."
    rows = [(one.name, [cells[row] for _, cells in columns]) for row, one in enumerate(judged.methods)]
    return Table("What the confidences are good for", note, ["method", *(title for title, _ in columns)], rows)


def _column(values: Sequence[float | None], *, best: object = None, signed: bool = False) -> list[Cell]:
    """Cells of one column; the best and the second are marked if ``best`` is ``min`` or ``max``."""
    known = sorted({value for value in values if value is not None}, reverse=best is max)
    names: tuple[Mark, Mark] = ("best", "second")
    marks: dict[float, Mark] = {}
    if best is not None and len(values) > 1:
        marks = dict(zip(known, names, strict=False))
    return [Cell(_nan(value), signed=signed, mark="" if value is None else marks.get(value, "")) for value in values]


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
