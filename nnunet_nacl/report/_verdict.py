"""What the numbers say, in sentences: the verdict, and what to know before believing it."""

from collections.abc import Sequence

import numpy as np

from nnunet_nacl.report._comparison import Comparison, listed
from nnunet_nacl.report._formats import p_value
from nnunet_nacl.report._metrics import (
    DICE,
    POOLED,
    CaseMeans,
    Metric,
    compared_metrics,
    judging_metrics,
    paper_metrics,
    place,
)
from nnunet_nacl.report._statistics import differences

_VISIBLE = 0.005
"""Smaller differences between confidence and accuracy are not worth a sentence."""


def verdict(comparison: Comparison) -> list[str]:
    """Which method is calibrated best, at what cost in Dice, and whether that could be chance; a paragraph each.

    Args:
        comparison: methods.

    Returns:
        A paragraph on NLL per foreground voxel, one on ECE near (or over the image), and what the paper's metrics say:
        which method they would put first, and which methods are under-confident by them. If neither near nor image was
        evaluated, a paragraph for each voxel set that was, and one on class-wise calibration if it has another winner.
    """
    judging = judging_metrics(comparison)
    if not judging:
        return _by_the_paper(comparison)
    paragraphs = [_paragraph(comparison, metric, cost=metric == judging[0]) for metric in judging]
    return paragraphs + _paper_order(comparison, judging[0]) + _under_confident(comparison)


def _by_the_paper(comparison: Comparison) -> list[str]:
    """The verdict on summaries that have neither near nor scores per foreground voxel."""
    first = comparison.voxels[0]
    paragraphs = [_paragraph(comparison, Metric("ECE", one), cost=one == first) for one in comparison.voxels]
    others = []
    for voxels in comparison.voxels:
        winner, best = _best(comparison, Metric("CECE", voxels)), _best(comparison, Metric("ECE", voxels))
        if winner and best and winner[1] != _value(comparison, best[0], Metric("CECE", voxels)):
            ours = _told(comparison, best[0], Metric("CECE", voxels)).removeprefix("CECE ")
            others.append(f"over the {voxels} {winner[0]} ({winner[1]:.3f}; {best[0]}: {ours})")
    if others:
        paragraphs.append(f"By the class-wise error (CECE) another method is best: {'; '.join(others)}.")
    return paragraphs + _under_confident(comparison)


def _paragraph(comparison: Comparison, metric: Metric, *, cost: bool) -> str:
    """The best method by a calibration metric, compared with the baseline."""
    is_score = metric.name != "ECE"
    where = place(metric.voxels)
    at_first = f"{where[0].upper()}{where[1:]}"
    winner = _best(comparison, metric)
    if winner is None:
        what = metric.label if is_score else f"Calibration {where}"
        return f"{what} is not defined: no case has {'foreground' if is_score else 'such voxels'}."
    best, baseline = winner[0], comparison.baseline
    told = _told(comparison, best, metric)
    direction = "" if is_score else _direction(comparison, [best, baseline], metric.voxels)
    about = ""
    if len(comparison.methods) == 1:
        off = f"{at_first}, the confidences of {best} are off by {100 * winner[1]:.1f} percentage points on average: "
        text = f"{told} for {best}." if is_score else f"{off}{told}.{direction}"
        about = f" Dice is {_told(comparison, best, DICE).removeprefix('Dice ')}."
    elif best == baseline:
        better = "No method gives better probabilities" if is_score else f"{at_first}, no method is calibrated better"
        text = f"{better} than {best}, the baseline: {told}.{direction}"
        rival = _best(comparison, metric, without=best)
        if rival is not None:
            text += f" Next is {rival[0]}: {_against(comparison, rival[0], metric)}."
            about = f" {_cost(comparison, rival[0])}"
    else:
        claim = f"{best} gives the best probabilities" if is_score else f"{at_first}, {best} is calibrated best"
        text = f"{claim}: {_against(comparison, best, metric)}.{direction}"
        about = f" {_cost(comparison, best)}"
    return text + about * cost


def _paper_order(comparison: Comparison, judge: Metric) -> list[str]:
    """Which method the paper's metrics put first, and what it would have if perfectly calibrated; one paragraph."""
    winner = _best(comparison, judge)
    if len(comparison.methods) == 1 or winner is None:
        return []
    claims: dict[str, list[str]] = {}  # who comes first, and why -> by which metrics
    for metric in paper_metrics(comparison):
        first = _best(comparison, metric)
        if first is None:
            continue
        name, value = first
        expected = _value(comparison, name, metric.expected)
        if value == _value(comparison, winner[0], metric):  # alone or with others
            name, claim = winner[0], f"{winner[0]} is first, too"
        elif value < expected:
            claim = f"{name} would be first: voxels chosen by their label prefer under-confident models"
        else:
            claim = f"{name} would be first: these voxels are chosen by their label"
        beside = "" if np.isnan(expected) else f"; {metric.format(expected)} if perfectly calibrated"
        claims.setdefault(claim, []).append(f"{metric.name} {place(metric.voxels)} ({metric.format(value)}{beside})")
    return [" ".join(f"By the paper's {listed(values)} {claim}." for claim, values in claims.items())] * bool(claims)


def _under_confident(comparison: Comparison) -> list[str]:
    """Methods whose ECE is significantly below what it would be if they were perfectly calibrated; one paragraph."""
    by_set = []
    for metric in paper_metrics(comparison):
        if metric.name != "ECE":
            continue
        methods = []
        for method in comparison.methods:
            estimate, expected = metric.of(method), metric.expected.of(method)
            if estimate.minus(expected).interval[1] < 0:
                methods.append(f"{method.name} ({metric.format(estimate.value)}; {metric.format(expected.value)})")
        if methods:
            by_set.append(f"{place(metric.voxels)} {listed(methods)}")
    if not by_set:
        return []
    told = "A method whose ECE is below what it would be if the method were perfectly calibrated is under-confident"
    return [f"{told}: {'; '.join(by_set)}."]


def _against(comparison: Comparison, name: str, metric: Metric) -> str:
    """A method's value beside the baseline's."""
    text, baseline = _told(comparison, name, metric), comparison.baseline
    if np.isnan(_value(comparison, baseline, metric)):
        return f"{text}; for {baseline}, the baseline, it is not defined"
    base = _told(comparison, baseline, metric).removeprefix(f"{metric.label} ")
    return f"{text}, against {base} for {baseline}, the baseline{_test(comparison, name, metric)}"


def _cost(comparison: Comparison, name: str) -> str:
    """What a method gains or loses in Dice."""
    dice, base = _value(comparison, name, DICE), _value(comparison, comparison.baseline, DICE)
    if np.isnan(dice) or np.isnan(base):
        return "Its Dice or the baseline's is not defined."
    return f"Its Dice is {DICE.format(dice)} against {DICE.format(base)}{_test(comparison, name, DICE)}."


def _test(comparison: Comparison, name: str, metric: Metric) -> str:
    """The difference to the baseline and whether it is significant."""
    gap = differences(comparison, metric)[name]
    if np.isnan(gap.mean):
        return "; no case has both"
    text = metric.format_difference(gap.mean)
    if not np.isnan(gap.interval[0]):
        text += f" ({' to '.join(map(metric.format_difference, gap.interval))})"
    value, base = _value(comparison, name, metric), _value(comparison, comparison.baseline, metric)
    if abs(value - base - gap.mean) > 1e-9:
        shared = f"{metric.format(gap.value)} against {metric.format(gap.baseline)}"
        text = f"{shared} over the cases and structures that have both, {text}"
    if np.isnan(gap.p_holm) or (gap.mean != 0 and not gap.can_show):
        return f": {text}; too few cases to test"
    return f": {text}, {'' if gap.is_significant else 'not '}significant (p {p_value(gap.p_holm)})"


def _direction(comparison: Comparison, names: Sequence[str], voxels: str) -> str:
    """Which methods are over- or under-confident, the first of them called 'it'; empty if the gaps are too small."""
    told = []
    for name in dict.fromkeys(names):
        gap = comparison[name].pooled(voxels)["over_confidence"]
        if not np.isnan(gap) and abs(gap) >= _VISIBLE:
            who = "it is" if name == names[0] else f"{name} is"
            told.append(f"{who} {'over' if gap > 0 else 'under'}-confident by {100 * abs(gap):.1f} percentage points")
    return f" On the whole, {listed(told)}." if told else ""


def _best(comparison: Comparison, metric: Metric, *, without: str = "") -> tuple[str, float] | None:
    """The method with the lowest value, of equal ones the baseline; None if no method has a value."""
    values = {name: _value(comparison, name, metric) for name in comparison.names if name != without}
    known = {name: value for name, value in values.items() if not np.isnan(value)}
    return min(known.items(), key=lambda item: (item[1], item[0] != comparison.baseline)) if known else None


def _value(comparison: Comparison, name: str, metric: Metric) -> float:
    return metric.of(comparison[name]).value


def _told(comparison: Comparison, name: str, metric: Metric) -> str:
    """``ECE 0.031 (0.027 to 0.035)``."""
    estimate = metric.of(comparison[name])
    low, high = estimate.interval
    interval = "" if np.isnan(low) else f" ({metric.format(low)} to {metric.format(high)})"
    return f"{metric.label} {metric.format(estimate.value)}{interval}"


def missing_notes(comparison: Comparison) -> list[str]:
    """A note if the voxel sets that methods should be judged by were not evaluated."""
    if not (missing := [voxels for voxels in POOLED if voxels not in comparison.voxels]):
        return []
    sets = f"voxel set{'s' if len(missing) > 1 else ''} {listed(missing)}"
    biased = (
        " The verdict rests on voxels chosen by their label, where an under-confident model can score better than a "
        "perfectly calibrated one."
        if len(missing) > 1
        else ""
    )
    return [f"Not every method was evaluated over the {sets}.{biased} Evaluate again, with the default voxel sets."]


def undefined_notes(comparison: Comparison) -> list[str]:
    """A note for each metric that is not defined for all methods in the same cases and structures."""
    notes = []
    for metric in compared_metrics(comparison):
        estimates = {method.name: metric.of(method) for method in comparison.methods}
        known = {name: ~np.isnan(one.values) for name, one in estimates.items() if isinstance(one, CaseMeans)}
        first = next(iter(known.values()), None)
        if first is not None and any(not np.array_equal(first, other) for other in known.values()):
            counts = ", ".join(f"{name}: {int(one.sum())}" for name, one in known.items())
            notes.append(
                f"{metric.title} is not defined everywhere for every method ({counts} of {first.size} values). Means "
                "are over each method's own values; differences and tests are over those that both have."
            )
    return notes
