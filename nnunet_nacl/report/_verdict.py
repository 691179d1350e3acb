"""What the numbers say, in sentences: the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnunet_nacl.report._believed import answer_about
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._formats import p_value
from nnunet_nacl.report._metrics import (
    DICE,
    POOLED,
    Metric,
    judging_metrics,
    paper_metrics,
    place,
)
from nnunet_nacl.report._statistics import Difference, Ranking, differences
from nnunet_nacl.report._wording import capitalized, listed, these_cases

_VISIBLE = 0.005
"""Smaller differences between confidence and accuracy are not worth a sentence."""
_FEW = 4
"""So many methods are all named in the answer; of more, the baseline and the best."""


@dataclass(frozen=True)
class Verdict:
    """What the numbers say, most important first.

    Attributes:
        answer: whose confidences can be believed, and how often the methods are right where they say 90 %. Empty if
            that is not known.
        summary: how far off confidences are on average, and which method is best, if any is told apart from the others.
        details: the numbers behind it, with intervals and tests, and what the paper's metrics say; a paragraph each.
    """

    answer: str
    summary: list[str]
    details: list[str]

    @property
    def paragraphs(self) -> list[str]:
        """All of it."""
        return [*([self.answer] if self.answer else []), *self.summary, *self.details]


def verdict(comparison: Comparison) -> list[str]:
    """Whether confidences can be believed, which method is best, by how much, and whether that could be chance.

    Args:
        comparison: methods.

    Returns:
        A paragraph each: whose confidences can be believed, and how often methods are right where they say 90 %; how
        far off confidences are on average; which method is best, or which are not told apart; then the numbers behind
        it: NLL per foreground voxel, ECE near (or over the image), and what the paper's metrics say. If neither near
        nor image was evaluated, a paragraph for each voxel set that was, and one on class-wise calibration if it has
        another winner.
    """
    return full_verdict(comparison).paragraphs


def full_verdict(comparison: Comparison) -> Verdict:
    """The same, in parts."""
    judging = judging_metrics(comparison)
    if not judging:
        first, *others = _by_the_paper(comparison)
        return Verdict("", [first], others)
    standings = [standing for metric in judging if (standing := standing_by(comparison, metric)) is not None]
    error = judging[-1]
    details = [_paragraph(comparison, metric, cost=metric == judging[0]) for metric in judging]
    details += [*_paper_order(comparison, judging[0]), *_under_confident(comparison)]
    if not standings:
        return Verdict("", details[:1], details[1:])
    named = _named(comparison, standings[0])
    best = [_best_in_short(comparison, standings)] if len(comparison.methods) > 1 else []
    return Verdict(answer_about(comparison, named, error), [*_how_far_off(comparison, named, error), *best], details)


@dataclass(frozen=True)
class Standing:
    """The best method by a metric, and those that the cases do not tell apart from it.

    Attributes:
        metric: what they are compared by.
        order: names of the methods that have a value, the best first; of equal ones the baseline.
        gaps: other method -> its difference to the best, tested with Holm's correction for all of them.
        tied: names of those that are not told apart from the best, in the order of the methods' values. A method is
            told apart if the test is significant and the interval of the difference does not hold 0.
        too_few: whether there are too few cases to tell any of these apart.
    """

    metric: Metric
    order: list[str]
    gaps: dict[str, Difference]
    tied: list[str]
    too_few: bool

    @property
    def best(self) -> str:
        return self.order[0]

    @property
    def leaders(self) -> list[str]:
        """The best method and those that are not told apart from it."""
        return [self.best, *self.tied]


def standing_by(comparison: Comparison, metric: Metric) -> Standing | None:
    """Who is best by a metric, and whether the cases show it; None if no method has a value."""
    values = {name: _value(comparison, name, metric) for name in comparison.names}
    known = [name for name, value in values.items() if not np.isnan(value)]
    if not known:
        return None
    sign = -1 if metric.higher_is_better else 1
    order = sorted(known, key=lambda name: (sign * values[name], name != comparison.baseline))
    gaps = differences(replace(comparison, baseline=order[0]), metric)
    tied = [name for name in order[1:] if not _told_apart(gaps[name])]
    too_few = bool(tied) and not any(gaps[name].can_show for name in tied if gaps[name].mean != 0)
    return Standing(metric, order, gaps, tied, too_few and any(gaps[name].mean != 0 for name in tied))


def _told_apart(gap: Difference) -> bool:
    return gap.is_significant and not gap.interval[0] <= 0 <= gap.interval[1]


def _named(comparison: Comparison, standing: Standing) -> list[str]:
    """The methods that the first sentences name: the baseline, the best, and the others if they are few."""
    chosen = [comparison.baseline, *standing.order[:2]]
    if comparison.baseline != standing.best:
        chosen = chosen[:2]
    return list(dict.fromkeys([*chosen, *(comparison.names if len(comparison.names) <= _FEW else [])]))


def _how_far_off(comparison: Comparison, names: Sequence[str], metric: Metric) -> list[str]:
    """By how many percentage points confidences are off on average, and in which direction; at most one sentence."""
    told = []
    for name in names:
        error, gap = _value(comparison, name, metric), comparison[name].pooled(metric.voxels)["over_confidence"]
        if not np.isnan(error):
            direction = "" if abs(gap) < _VISIBLE else f" ({'too sure' if gap > 0 else 'not sure enough'})"
            told.append(f"{name} by {100 * error:.1f}{direction}")
    where = place(metric.voxels)
    return [f"On average {where}, confidences are off, in percentage points: {listed(told)}."] if told else []


def _best_in_short(comparison: Comparison, standings: Sequence[Standing]) -> str:
    """Which method is best by each metric, or which are not told apart; of two methods, their difference."""
    if len(comparison.methods) > 2:
        return " ".join(_in_short(comparison, one) for one in standings)
    gains: dict[str, list[str]] = {}  # the better method -> by how much, in which metrics
    for one in standings:
        for gap in one.gaps.values():
            if not one.tied:
                low, high = map(one.metric.format, gap.interval)
                gain = f"by {one.metric.format(gap.mean)} ({low} to {high}) in {one.metric.title}"
                gains.setdefault(one.best, []).append(gain)
    sentences = []
    for name, told in gains.items():
        (other,) = (one for one in comparison.names if one != name)
        dice = _at_dice(differences(replace(comparison, baseline=other), DICE)[name])
        sentences.append(f"{name} is better than {other} {listed(told)}{f', {dice}' if dice else ''}.")
    return " ".join([*sentences, *(_in_short(comparison, one) for one in standings if one.tied or not one.gaps)])


def _at_dice(gap: Difference) -> str:
    """``at a Dice 0.004 lower (told apart, p = 0.010)``; empty if no case has a Dice of both methods."""
    if np.isnan(gap.mean):
        return ""
    size = DICE.format(abs(gap.mean))
    if float(size) == 0:
        return "at the same Dice"
    if np.isnan(gap.p_holm) or not gap.can_show:
        test = "too few cases to test"
    else:
        test = f"{'' if _told_apart(gap) else 'not '}told apart, p {p_value(gap.p_holm)}"
    return f"at a Dice {size} {'higher' if gap.mean > 0 else 'lower'} ({test})"


def _in_short(comparison: Comparison, standing: Standing) -> str:
    """Which method is best by a metric, or which are not told apart; a sentence."""
    metric, gaps = standing.metric, standing.gaps
    values = {name: metric.format(_value(comparison, name, metric)) for name in standing.order}
    shown = f"{metric.label} {listed([values[name] for name in standing.leaders])}"
    if not standing.tied and gaps:
        rival = standing.order[1]
        shown += f"; next is {rival}, {values[rival]}, p {p_value(gaps[rival].p_holm)}"
    return f"{_claim(comparison, standing)} ({shown})."


def _claim(comparison: Comparison, standing: Standing) -> str:
    """Who is best, if the cases show it."""
    metric, where = standing.metric, place(standing.metric.voxels)
    is_score, is_honest = metric.name != "ECE", metric.voxels in POOLED
    if not standing.tied:
        if is_score:
            return f"{standing.best} gives the best probabilities"
        best = "is calibrated best" if is_honest else f"has the lowest {metric.label}"
        return f"{capitalized(where)}, {standing.best} {best}"
    by = "probabilities" if is_score else f"{'calibration' if is_honest else metric.label} {where}"
    cases, several = these_cases(len(comparison.cases)), len(comparison.cases) > 1
    few = ", which are too few for a test" if standing.too_few and several else ""
    behind = "; the others are behind" if len(standing.leaders) < len(standing.order) else ""
    return f"By their {by}, {listed(standing.leaders)} are not told apart by {cases}{few}{behind}"


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
        paragraphs.append(f"By the class-wise error (CECE) another method has the lowest value: {'; '.join(others)}.")
    return paragraphs + _under_confident(comparison)


def _paragraph(comparison: Comparison, metric: Metric, *, cost: bool) -> str:
    """The best method by a calibration metric, with intervals, and beside it the next and the baseline."""
    is_score, where = metric.name != "ECE", place(metric.voxels)
    standing = standing_by(comparison, metric)
    if standing is None:
        what = metric.label if is_score else f"Calibration {where}"
        return f"{what} is not defined: no case has {'foreground' if is_score else 'such voxels'}."
    best, baseline = standing.best, comparison.baseline
    direction = "" if is_score else _direction(comparison, [best, baseline], metric.voxels)
    if len(comparison.methods) == 1:
        off = f"{100 * _value(comparison, best, metric):.1f} percentage points"
        lead = "" if is_score else f"{capitalized(where)}, the confidences of {best} are off by {off} on average: "
        text = f"{lead}{_told(comparison, best, metric)}{f' for {best}' if is_score else ''}.{direction}"
        return text + f" Dice is {_told(comparison, best, DICE).removeprefix('Dice ')}." * cost
    text = f"{_claim(comparison, standing)}: {_told(comparison, best, metric)}{f' for {best}' * bool(standing.tied)}."
    others = {name: f"Next is {name}" for name in standing.order[1:2]}
    if baseline != best:
        others[baseline] = f"{others[baseline]}, the baseline" if baseline in others else f"{baseline}, the baseline"
    for name, called in others.items():
        gap = standing.gaps[name]
        if np.isnan(_value(comparison, name, metric)):
            text += f" For {called}, it is not defined."
        else:
            value = _told(comparison, name, metric).removeprefix(f"{metric.label} ")
            text += f" {called}: {value}, {_tested(comparison, name, best, metric, gap)}."
    other = best if baseline != best else next(iter(standing.order[1:]), baseline)
    return text + direction + f" {_cost(comparison, other)}" * (cost and other != baseline)


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


def _cost(comparison: Comparison, name: str) -> str:
    """What a method gains or loses in Dice."""
    baseline = comparison.baseline
    dice, base = _value(comparison, name, DICE), _value(comparison, baseline, DICE)
    if np.isnan(dice) or np.isnan(base):
        return f"The Dice of {name if np.isnan(dice) else baseline} is not defined."
    gap = differences(comparison, DICE)[name]
    test = _tested(comparison, name, baseline, DICE, gap)
    return f"The Dice of {name} is {DICE.format(dice)}, that of {baseline} {DICE.format(base)}: {test}."


def _tested(comparison: Comparison, name: str, other: str, metric: Metric, gap: Difference) -> str:
    """A method's difference to another, and whether it is significant."""
    if np.isnan(gap.mean):
        return "no case has both"
    text = metric.format_difference(gap.mean)
    if not np.isnan(gap.interval[0]):
        text += f" ({' to '.join(map(metric.format_difference, gap.interval))})"
    value, base = _value(comparison, name, metric), _value(comparison, other, metric)
    if abs(value - base - gap.mean) > 1e-9:
        shared = f"{metric.format(gap.value)} against {metric.format(gap.baseline)}"
        text = f"{shared} over the cases and structures that have both, {text}"
    if np.isnan(gap.p_holm) or (gap.mean != 0 and not gap.can_show):
        return f"{text}; too few cases to test"
    return f"{text}, {'' if gap.is_significant else 'not '}significant (p {p_value(gap.p_holm)})"


def _direction(comparison: Comparison, names: Sequence[str], voxels: str) -> str:
    """Which methods are over- or under-confident; empty if the gaps are too small."""
    told = []
    for name in dict.fromkeys(names):
        gap = comparison[name].pooled(voxels)["over_confidence"]
        if not np.isnan(gap) and abs(gap) >= _VISIBLE:
            side = "over" if gap > 0 else "under"
            told.append(f"{name} is {side}-confident by {100 * abs(gap):.1f} percentage points")
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


def ranking_remark(comparison: Comparison, ranking: Ranking) -> str:
    """Why the ranking and the verdict put different methods first; empty if they agree."""
    judging = judging_metrics(comparison)
    standing = standing_by(comparison, judging[0]) if judging else None
    first = [name for name, place_ in zip(ranking.methods, ranking.places, strict=True) if place_ == 1]
    if standing is None or set(first) == set(standing.leaders):
        return ""
    by = f"by {judging[0].label}"
    why = "Ranks count Dice too, and a small difference like a large one."
    if set(first) <= set(standing.leaders):
        leaders = listed(standing.leaders)
        return f"The ranking puts {listed(first)} first; {by} the cases do not tell {leaders} apart. {why}"
    return f"The ranking puts {listed(first)} first, the verdict, {by}, {standing.best}. {why}"
