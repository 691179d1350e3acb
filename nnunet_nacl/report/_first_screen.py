"""The sentences of the page's first screen: a verdict on each method, and how the methods compare."""

import numpy as np
from markupsafe import Markup

from nnunet_nacl.report._choice import DICE, Metric
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._formats import ALL_OTHERS, number_text, p_text
from nnunet_nacl.report._reliability import CLOSE_ACCURACY, STATED, Reliability, Verdict
from nnunet_nacl.report._statistics import LEVEL, Order

_ALL_NAMED = 4
"""Up to so many methods have a sentence each; of more, see ``named_methods``."""
_PERCENT = "\N{NO-BREAK SPACE}%"


def named_methods(comparison: Comparison) -> list[str]:
    """Choose the methods with a sentence each: of many, the baseline, the calibrated and the best ones.

    The best are those by each metric that judges calibration.
    """
    judging = comparison.choice.judging
    names = [name for name in comparison.names if name not in comparison.finds_nothing]
    names = comparison.order_by(judging[0]).names or names
    if len(names) > _ALL_NAMED:
        best = {name for metric in judging for name in comparison.order_by(metric).names[:1]}
        kept = best | {comparison.names[0], *comparison.calibrated}
        names = [name for name in names if name in kept]
    return names


def assessed_methods(comparison: Comparison) -> dict[str, Reliability]:
    """Return the reliability of all methods that find something and have an ECE."""
    return {
        name: method
        for name, method in comparison.reliability[comparison.choice.main].items()
        if name not in comparison.finds_nothing and not np.isnan(method.pooled["ECE"])
    }


def answers(comparison: Comparison) -> list[Markup]:
    """Name the structures that a method finds in no case, and give a verdict on each named method."""
    sentences = []
    for name, missed in comparison.finds_nothing.items():
        structures = [
            f"no {one} (in 0 of {number} cases with it)" for one, number in missed.items()
        ]
        sentences.append(Markup("<b>{}</b> finds {}.").format(name, ", ".join(structures)))
    assessed = assessed_methods(comparison)
    for name in named_methods(comparison):
        if name in assessed:
            calibrated_by = comparison.calibrated.get(name)
            sentences.append(verdict_sentence(assessed[name], calibrated_by))
    return sentences


def verdict_sentence(method: Reliability, calibrated_by: str | None) -> Markup:
    """Give the verdict on a method, its ECE, and its accuracy where it says 90 %.

    If that accuracy does not show the verdict, mean confidence and accuracy follow.
    """
    who = Markup("<b>{}</b>").format(method.name)
    if calibrated_by:
        name = method.name.replace(" (calibrated)", "")
        who = Markup("<b>{}</b> (calibrated by {})").format(name, calibrated_by)
    verdict = Markup(" is <b>{}</b>").format(method.verdict.value)
    if method.verdict is Verdict.UNDECIDED:
        verdict = Markup(": {}").format(method.verdict.value)
    error = Markup(" <small>({})</small>").format(error_text(method))
    curve = method.furthest_off
    accuracy, low, high = curve.accuracy_where_stated
    stated = f"{100 * STATED:g}{_PERCENT}"
    evidence = f"; it hardly ever says {stated}"
    if not np.isnan(accuracy):
        where = f"{stated} of {curve.what}" if curve.what else stated
        ends = f"{100 * low:.0f} to {100 * high:.0f}{_PERCENT}"
        interval = "" if np.isnan(low) else f" (interval {ends})"
        share = f"{100 * accuracy:.0f}{_PERCENT} of the time{interval}"
        evidence = f": where it says {where}, it is right {share}"
    shows_verdict = {
        Verdict.TOO_SURE: accuracy < CLOSE_ACCURACY[0],
        Verdict.NOT_SURE_ENOUGH: accuracy > CLOSE_ACCURACY[1],
        Verdict.MIXED: False,
    }
    if not shows_verdict.get(method.verdict, True):
        sure, right = (f"{100 * mean:.1f}{_PERCENT}" for mean in method.means)
        evidence += f"; on average {sure} sure and {right} right"
    return who + verdict + error + f"{evidence}."


def error_text(method: Reliability) -> str:
    """Format the ECE and that by chance: ``ECE 0.023, by chance 0.001 to 0.005``."""
    low, high = map(number_text, method.by_chance)
    return f"ECE {number_text(method.pooled['ECE'])}, by chance {low} to {high}"


def small_print(comparison: Comparison) -> str:
    """Say over what the ECE is, and give a verdict on the methods that are not named; empty if there is none."""
    named = named_methods(comparison)
    assessed = assessed_methods(comparison)
    if not assessed:
        return ""
    others = [
        f"{name}: {method.verdict.value} ({error_text(method)})"
        for name, method in assessed.items()
        if name not in named
    ]
    text = f"{comparison.choice.error.axis}; cases: {len(comparison.cases)}."
    return f"{text} The others: {'; '.join(others)}." if others else text


def findings(comparison: Comparison) -> list[Markup]:
    """Say which method is best and how the named ones differ from the baseline, or why there is no verdict."""
    leading = comparison.choice.judging[0]
    order = comparison.order_by(leading)
    if len(order.names) > 1:
        number = comparison.num_patients
        tested = (
            f"{number} {'patient' if comparison.by_patient else 'case'}{'s' if number > 1 else ''}"
        )
        others = "all others" if len(order.names) == len(comparison.names) else ALL_OTHERS
        named = named_methods(comparison)
        compared = [name for name in comparison.names[1:] if name in named]
        return [
            best_sentence(order, leading, tested, others),
            *(difference_sentence(comparison, name) for name in compared),
        ]
    if assessed_methods(comparison) or comparison.finds_nothing:
        return []
    return [Markup("No case has voxels that show whether the confidences are right.")]


def best_sentence(order: Order, metric: Metric, tested: str, all_others: str) -> Markup:
    """Name the best of two methods or more by a metric, and those that are as good or worse, as far as cases tell.

    ``tested``: how many cases or patients, such as ``8 cases``; ``all_others``: how to name the methods in the order.
    """
    behind = order.behind
    best = order.names[0]
    others = [name for name in order.names[1:] if name not in behind]
    start = Markup("By {}, <b>{}</b> is ").format(metric.title, best)
    if order.best:
        worse = " and ".join(behind) if len(behind) < 3 else all_others
        return start + f"best, significantly better than {worse}."
    if not behind and not order.can_tell:
        return start + f"first; {tested} cannot tell {len(order.names)} methods apart."
    alike = f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} not significantly worse"
    worse = f", but {', '.join(behind)} {'is' if len(behind) == 1 else 'are'}" if behind else ""
    corrected = " (corrected for all pairs)" if len(order.names) > 2 else ""
    return start + f"first; {alike} on {tested}{corrected}{worse}."


def difference_sentence(comparison: Comparison, name: str) -> Markup:
    """Compare a method with the baseline by Dice, HD95 and the metrics that judge calibration."""
    dice = comparison.differences[DICE][name]
    found = []
    if not np.isnan(dice.value):
        # A low p is that of the opposite, unless value and interval agree with it
        says_so = dice.is_significant() or dice.p_holm >= LEVEL
        p = f" ({p_text(dice.p_holm)})" if says_so else ""
        found.append(f"Dice {number_text(dice.value, signed=True)}{p}")
    choice = comparison.choice
    compared = [*choice.segmentation, *choice.judging]
    tested = [one for one in compared if one != DICE]
    changes: dict[str, list[str]] = {"better": [], "worse": []}
    for metric in tested:
        gap = comparison.differences[metric][name]
        if gap.is_significant():
            is_better = (gap.value > 0) == metric.definition.higher_is_better
            changes["better" if is_better else "worse"].append(metric.title)
    titles = [f"significantly {how} in {', '.join(own)}" for how, own in changes.items() if own]
    none = f"no significant difference in {', '.join(metric.title for metric in tested)}"
    found.append("; ".join(titles) or none)
    sentence = Markup("<b>{}</b> against {}: {}.")
    return sentence.format(name, comparison.names[0], ", ".join(found))
