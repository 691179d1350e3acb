"""What the figures say, in sentences."""

import numpy as np

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import Metric, interval_of, mean_over_cases
from nnunet_nacl.report._reliability import overconfidence
from nnunet_nacl.report._significance import differences
from nnunet_nacl.report._tables import p_value

_DICE = Metric("Dice", higher_is_better=True)


def verdict(comparison: Comparison) -> list[str]:
    """Which method is calibrated best, at what cost in Dice, and whether that could be chance; a paragraph each.

    Args:
        comparison: methods.

    Returns:
        A paragraph for each voxel set, and one on class-wise calibration if its winner is another.
    """
    paragraphs = [_paragraph(comparison, voxels) for voxels in comparison.voxels]
    others = []
    for voxels in comparison.voxels:
        winner, best = _best(comparison, Metric("CECE", voxels)), _best(comparison, Metric("ECE", voxels))
        if winner and best and winner[1] != _mean(comparison, best[0], Metric("CECE", voxels)):
            ours = _figure(comparison, best[0], Metric("CECE", voxels)).removeprefix("CECE ")
            others.append(f"over the {voxels} {winner[0]} ({winner[1]:.3f}; {best[0]}: {ours})")
    if others:
        paragraphs.append(f"By the class-wise error (CECE) another method is best: {'; '.join(others)}.")
    return paragraphs


def _paragraph(comparison: Comparison, voxels: str) -> str:
    metric = Metric("ECE", voxels)
    winner = _best(comparison, metric)
    if winner is None:
        return f"Calibration over the {voxels} is not defined: no case has such voxels."
    best, baseline = winner[0], comparison.baseline
    figure, direction = _figure(comparison, best, metric), _direction(comparison, best, voxels)
    if len(comparison.methods) == 1:
        return (
            f"Over the {voxels}, the confidences of {best} are off by {100 * winner[1]:.1f} percentage points on "
            f"average: {figure}.{direction} Dice is {_figure(comparison, best, _DICE).removeprefix('Dice ')}."
        )
    if best == baseline:
        text = f"Over the {voxels}, no method is calibrated better than {best}, the baseline: {figure}.{direction}"
        rival = _best(comparison, metric, without=best)
        if rival is None:
            return text
        text += f" Next is {rival[0]}: {_against(comparison, rival[0], metric)}."
        return text if voxels != comparison.voxels[0] else f"{text} {_cost(comparison, rival[0])}"
    text = f"Over the {voxels}, {best} is calibrated best: {_against(comparison, best, metric)}.{direction}"
    return text if voxels != comparison.voxels[0] else f"{text} {_cost(comparison, best)}"


def _against(comparison: Comparison, name: str, metric: Metric) -> str:
    """A method's figure beside the baseline's."""
    text, baseline = _figure(comparison, name, metric), comparison.baseline
    if np.isnan(_mean(comparison, baseline, metric)):
        return f"{text}; for {baseline}, the baseline, it is not defined"
    base = _figure(comparison, baseline, metric).removeprefix(f"{metric.name} ")
    return f"{text}, against {base} for {baseline}, the baseline{_test(comparison, name, metric)}"


def _cost(comparison: Comparison, name: str) -> str:
    """What a method gains or loses in Dice."""
    dice, base = _mean(comparison, name, _DICE), _mean(comparison, comparison.baseline, _DICE)
    if np.isnan(dice) or np.isnan(base):
        return "Its Dice or the baseline's is not defined."
    return f"Its Dice is {_DICE.format(dice)} against {_DICE.format(base)}{_test(comparison, name, _DICE)}."


def _test(comparison: Comparison, name: str, metric: Metric) -> str:
    """The difference to the baseline and whether it is significant."""
    found = differences(comparison, metric)[name]
    if np.isnan(found.mean):
        return "; no case has both"
    text = metric.format_difference(found.mean)
    if not np.isnan(found.interval[0]):
        text += f" ({' to '.join(map(metric.format_difference, found.interval))})"
    figure, base = _mean(comparison, name, metric), _mean(comparison, comparison.baseline, metric)
    if abs(figure - base - found.mean) > 1e-9:
        shared = f"{metric.format(found.figure)} against {metric.format(found.base)}"
        text = f"{shared} over the cases and structures that have both, {text}"
    if np.isnan(found.p_holm) or (found.mean != 0 and not found.can_show):
        return f": {text}; too few cases to test"
    return f": {text}, {'' if found.is_significant else 'not '}significant (p {p_value(found.p_holm)})"


def _direction(comparison: Comparison, name: str, voxels: str) -> str:
    tables = comparison[name].result.pooled_tables(voxels)  # type: ignore[arg-type]
    assert tables is not None
    gap = overconfidence(tables.top)
    if np.isnan(gap) or abs(gap) < 0.005:
        return ""
    return f" On the whole, it is {'over' if gap > 0 else 'under'}-confident by {100 * abs(gap):.1f} percentage points."


def _best(comparison: Comparison, metric: Metric, *, without: str = "") -> tuple[str, float] | None:
    """The method with the lowest figure, of equal ones the baseline; None if none has one."""
    figures = {name: _mean(comparison, name, metric) for name in comparison.names if name != without}
    known = {name: figure for name, figure in figures.items() if not np.isnan(figure)}
    return min(known.items(), key=lambda item: (item[1], item[0] != comparison.baseline)) if known else None


def _mean(comparison: Comparison, name: str, metric: Metric) -> float:
    return mean_over_cases(metric.values(comparison[name]))


def _figure(comparison: Comparison, name: str, metric: Metric) -> str:
    figure = metric.format(_mean(comparison, name, metric))
    return f"{metric.name} {figure}{_interval(comparison, name, metric)}"


def _interval(comparison: Comparison, name: str, metric: Metric) -> str:
    low, high = interval_of(metric.values(comparison[name]))
    return "" if np.isnan(low) else f" ({metric.format(low)} to {metric.format(high)})"
