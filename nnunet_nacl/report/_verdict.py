"""What the figures say, in sentences."""

from collections.abc import Sequence

import numpy as np

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import DICE, Metric, judging_metrics, paper_metrics, place
from nnunet_nacl.report._significance import differences
from nnunet_nacl.report._tables import p_value

_VISIBLE = 0.005
"""Smaller differences between confidence and accuracy are not worth a sentence."""


def verdict(comparison: Comparison) -> list[str]:
    """Which method is calibrated best, at what cost in Dice, and whether that could be chance; a paragraph each.

    Args:
        comparison: methods.

    Returns:
        A paragraph on NLL per foreground voxel, one on ECE near (or over the image), and what the paper's figures say,
        where they would put another method first and who is under-confident by them. If neither near nor image was
        evaluated, a paragraph for each voxel set that was, and one on class-wise calibration if its winner is another.
    """
    judging = judging_metrics(comparison)
    if not judging:
        return _by_the_paper(comparison)
    paragraphs = [_paragraph(comparison, metric, cost=metric == judging[0]) for metric in judging]
    return paragraphs + _paper_order(comparison, judging[0]) + _under_confident(comparison)


def _by_the_paper(comparison: Comparison) -> list[str]:
    """The verdict on what was evaluated before there were near and scores per foreground voxel."""
    first = comparison.voxels[0]
    paragraphs = [_paragraph(comparison, Metric("ECE", one), cost=one == first) for one in comparison.voxels]
    others = []
    for voxels in comparison.voxels:
        winner, best = _best(comparison, Metric("CECE", voxels)), _best(comparison, Metric("ECE", voxels))
        if winner and best and winner[1] != _value(comparison, best[0], Metric("CECE", voxels)):
            ours = _figure(comparison, best[0], Metric("CECE", voxels)).removeprefix("CECE ")
            others.append(f"over the {voxels} {winner[0]} ({winner[1]:.3f}; {best[0]}: {ours})")
    if others:
        paragraphs.append(f"By the class-wise error (CECE) another method is best: {'; '.join(others)}.")
    return paragraphs + _under_confident(comparison)


def _paragraph(comparison: Comparison, metric: Metric, *, cost: bool) -> str:
    """The best method by a calibration metric, held against the baseline."""
    is_score = metric.name != "ECE"
    where = place(metric.voxels)
    at_first = f"{where[0].upper()}{where[1:]}"
    winner = _best(comparison, metric)
    if winner is None:
        what = metric.label if is_score else f"Calibration {where}"
        return f"{what} is not defined: no case has {'foreground' if is_score else 'such voxels'}."
    best, baseline = winner[0], comparison.baseline
    figure = _figure(comparison, best, metric)
    direction = "" if is_score else _direction(comparison, [best, baseline], metric.voxels)
    about = ""
    if len(comparison.methods) == 1:
        off = f"{at_first}, the confidences of {best} are off by {100 * winner[1]:.1f} percentage points on average: "
        text = f"{figure} for {best}." if is_score else f"{off}{figure}.{direction}"
        about = f" Dice is {_figure(comparison, best, DICE).removeprefix('Dice ')}."
    elif best == baseline:
        better = "No method gives better probabilities" if is_score else f"{at_first}, no method is calibrated better"
        text = f"{better} than {best}, the baseline: {figure}.{direction}"
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
    """Whom the paper's figures put first, beside what a perfectly calibrated model would have; one paragraph."""
    winner = _best(comparison, judge)
    if len(comparison.methods) == 1 or winner is None:
        return []
    claims: dict[str, list[str]] = {}  # who comes first, and why -> by which figures
    for metric in paper_metrics(comparison):
        first = _best(comparison, metric)
        if first is None:
            continue
        name, figure = first
        expected = _value(comparison, name, metric.expected)
        if figure == _value(comparison, winner[0], metric):  # alone or with others
            name, claim = winner[0], f"{winner[0]} is first, too"
        elif figure < expected:
            claim = f"{name} would be first: voxels chosen by their label prefer under-confident models"
        else:
            claim = f"{name} would be first: these voxels are chosen by their label"
        beside = "" if np.isnan(expected) else f"; {metric.format(expected)} if perfectly calibrated"
        claims.setdefault(claim, []).append(f"{metric.name} {place(metric.voxels)} ({metric.format(figure)}{beside})")
    return [" ".join(f"By the paper's {_listed(figures)} {claim}." for claim, figures in claims.items())] * bool(claims)


def _under_confident(comparison: Comparison) -> list[str]:
    """Whose ECE is below what it would be if the method were perfectly calibrated, beyond chance; one paragraph."""
    found = []
    for metric in paper_metrics(comparison):
        if metric.name != "ECE":
            continue
        methods = []
        for method in comparison.methods:
            figures, expected = metric.of(method), metric.expected.of(method)
            if figures.minus(expected).interval[1] < 0:
                methods.append(f"{method.name} ({metric.format(figures.value)}; {metric.format(expected.value)})")
        if methods:
            found.append(f"{place(metric.voxels)} {_listed(methods)}")
    if not found:
        return []
    told = "A method whose ECE is below what it would be if the method were perfectly calibrated is under-confident"
    return [f"{told}: {'; '.join(found)}."]


def _against(comparison: Comparison, name: str, metric: Metric) -> str:
    """A method's figure beside the baseline's."""
    text, baseline = _figure(comparison, name, metric), comparison.baseline
    if np.isnan(_value(comparison, baseline, metric)):
        return f"{text}; for {baseline}, the baseline, it is not defined"
    base = _figure(comparison, baseline, metric).removeprefix(f"{metric.label} ")
    return f"{text}, against {base} for {baseline}, the baseline{_test(comparison, name, metric)}"


def _cost(comparison: Comparison, name: str) -> str:
    """What a method gains or loses in Dice."""
    dice, base = _value(comparison, name, DICE), _value(comparison, comparison.baseline, DICE)
    if np.isnan(dice) or np.isnan(base):
        return "Its Dice or the baseline's is not defined."
    return f"Its Dice is {DICE.format(dice)} against {DICE.format(base)}{_test(comparison, name, DICE)}."


def _test(comparison: Comparison, name: str, metric: Metric) -> str:
    """The difference to the baseline and whether it is significant."""
    found = differences(comparison, metric)[name]
    if np.isnan(found.mean):
        return "; no case has both"
    text = metric.format_difference(found.mean)
    if not np.isnan(found.interval[0]):
        text += f" ({' to '.join(map(metric.format_difference, found.interval))})"
    figure, base = _value(comparison, name, metric), _value(comparison, comparison.baseline, metric)
    if abs(figure - base - found.mean) > 1e-9:
        shared = f"{metric.format(found.figure)} against {metric.format(found.base)}"
        text = f"{shared} over the cases and structures that have both, {text}"
    if np.isnan(found.p_holm) or (found.mean != 0 and not found.can_show):
        return f": {text}; too few cases to test"
    return f": {text}, {'' if found.is_significant else 'not '}significant (p {p_value(found.p_holm)})"


def _direction(comparison: Comparison, names: Sequence[str], voxels: str) -> str:
    """Whether methods are over- or under-confident, the first of them called 'it'; empty if by too little to say."""
    told = []
    for name in dict.fromkeys(names):
        tables = comparison[name].result.pooled_tables(voxels)  # type: ignore[arg-type]
        assert tables is not None
        gap = tables.metrics()["over_confidence"]
        if not np.isnan(gap) and abs(gap) >= _VISIBLE:
            who = "it is" if name == names[0] else f"{name} is"
            told.append(f"{who} {'over' if gap > 0 else 'under'}-confident by {100 * abs(gap):.1f} percentage points")
    return f" On the whole, {_listed(told)}." if told else ""


def _best(comparison: Comparison, metric: Metric, *, without: str = "") -> tuple[str, float] | None:
    """The method with the lowest figure, of equal ones the baseline; None if none has one."""
    figures = {name: _value(comparison, name, metric) for name in comparison.names if name != without}
    known = {name: figure for name, figure in figures.items() if not np.isnan(figure)}
    return min(known.items(), key=lambda item: (item[1], item[0] != comparison.baseline)) if known else None


def _value(comparison: Comparison, name: str, metric: Metric) -> float:
    return metric.of(comparison[name]).value


def _figure(comparison: Comparison, name: str, metric: Metric) -> str:
    found = metric.of(comparison[name])
    low, high = found.interval
    interval = "" if np.isnan(low) else f" ({metric.format(low)} to {metric.format(high)})"
    return f"{metric.label} {metric.format(found.value)}{interval}"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
