"""A study's variants: as radar, relative differences, curves and arrows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.report._study import Study, Variant, place_name, relative_difference
from nnunet_nacl.report.plots._methods import arms, draw_point, label_polar
from nnunet_nacl.report.plots._style import INK, color_of, labelled, marker_of, wrapped


def study_radar(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> Axes:
    """A metric on an axis for each group: one line for the first value of each, one for the second, and so on.

    A variant that is missing or not defined leaves a gap.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 6.
    """
    there = study.compared(comparison)
    groups = [name for name in study.groups if any(one.group == name for one in there)]
    values = {one: metric.of(comparison[one.method]).value for one in there}
    angles = np.linspace(0, 2 * np.pi, len(groups), endpoint=False)
    names = [place_name(place) for place in range(max(map(len, study.groups.values())))]
    for place, name in enumerate(names):
        here = [members[place] if place < len(members := study.groups[group]) else None for group in groups]
        if not (known := [one for one in here if one in values]):
            continue
        line = [math.nan if one is None else values.get(one, math.nan) for one in here]
        told = ", ".join(f"{one.group} {one.text}" for one in known if one is not None)
        style: Any = {"color": color_of(names, name), "marker": marker_of(names, name), "markersize": 4}
        label = wrapped(f"{name}: {told}", 44, 6)
        ax.plot([*angles, angles[0]], [*line, line[0]], linewidth=1.3, label=label, **style)
    label_polar(ax, angles, [wrapped(name, 14) for name in groups])
    low, high = _radial_limits([value for value in values.values() if not math.isnan(value)], metric)
    ax.set_ylim(low, high)
    ax.set_yticks([one for one in MaxNLocator(4).tick_values(low, high) if low <= one <= high])
    ax.set_title(f"{metric.title} (better: {'out' if metric.higher_is_better else 'in'})", pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), fontsize=8)
    return ax


def _radial_limits(known: Sequence[float], metric: Metric) -> tuple[float, float]:
    if not known or max(known) == 0:
        return 0, 1
    if not metric.higher_is_better:
        return 0, 1.1 * max(known)
    # Dice, whose differences are small: from the tenth below to the tenth above.
    return max(math.floor(10 * min(known) - 0.5) / 10, 0), math.ceil(10 * max(known)) / 10


def study_curves(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> Axes:
    """A metric against the setting, one color for each group, with 95 % intervals.

    If all values are numbers, they stand at their place on the axis, joined by a line; otherwise they are names, in the
    order given, and no line joins them.
    """
    groups, there = list(study.groups), study.compared(comparison)
    texts = {one.text for one in there}
    order = [text for text in dict.fromkeys(one.text for one in study.variants) if text in texts]
    named = any(isinstance(one.value, str) for one in study.variants)
    values = {one: float(order.index(one.text) if named else one.value) for one in there}
    positions = sorted(set(values.values()))
    slanted, gaps = named and len(positions) > 3, np.diff(positions)
    apart = 0.3 * float(min(gaps, default=1.0)) / len(groups)
    for number, group in enumerate(groups):
        own = sorted((one for one in there if one.group == group), key=values.__getitem__)
        if not own:
            continue
        estimates = [metric.of(comparison[one.method]) for one in own]
        ends = [arms(one.value, one.interval) or [[math.nan], [math.nan]] for one in estimates]
        ax.errorbar(
            [values[one] + apart * (number - (len(groups) - 1) / 2) for one in own],
            [one.value for one in estimates],
            yerr=np.array(ends)[:, :, 0].T,
            color=color_of(groups, group),
            marker=marker_of(groups, group),
            markersize=5,
            linestyle="none" if named else "-",
            linewidth=1.3,
            elinewidth=0.8,
            label=labelled(group),
        )
    names = {values[one]: one.text for one in there}
    if all(gaps > 0.08 * (positions[-1] - positions[0])):  # otherwise their names would overlap
        slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        ax.set_xticks(positions, [wrapped(names[one], 12) for one in positions], **slant)
    ax.margins(0.12)
    title = f"{metric.title} (better: {'up' if metric.higher_is_better else 'down'})"
    ax.set(xlabel=wrapped(study.setting, 40), title=title)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36 if slanted else -0.17), ncols=2, fontsize=8)
    return ax


def study_differences(
    comparison: Comparison, study: Study, metric: Metric, pairs: Sequence[tuple[Variant, Variant]], ax: Axes
) -> Axes:
    """(first − second) / first in per cent at each value, with 95 % intervals; in the color of the better one.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 7.
    """
    groups = list(study.groups)
    left, right = groups[::-1] if metric.higher_is_better else groups
    reach = 0.0
    for number, pair in enumerate(pairs):
        percent, ends = relative_difference(comparison, metric, *pair)
        if math.isnan(percent):
            continue
        ax.barh(number, percent, 0.6, color=color_of(groups, right if percent > 0 else left), alpha=0.85)
        ax.errorbar(percent, number, xerr=arms(percent, ends), color=INK, linewidth=0.8, capsize=2)
        reach = max(reach, *(abs(one) for one in (percent, *ends) if not math.isnan(one)))
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_xlim(-1.1 * reach or -1, 1.1 * reach or 1)
    ax.set_yticks(range(len(pairs)), [wrapped(first.text, 12) for first, _ in pairs])
    ax.set_ylim(len(pairs) - 0.4, -0.6)
    sides = (0, "left", f"← {wrapped(left, 16)}\nbetter"), (1, "right", f"{wrapped(right, 16)} →\nbetter")
    for x, align, text in sides:
        ax.text(x, 1.02, text, transform=ax.transAxes, ha=align, va="bottom", fontsize=8)
    ax.set_title(metric.title, pad=12 + 10 * max(text.count("\n") + 1 for _, _, text in sides))
    ax.set(xlabel="relative difference (%)", ylabel=wrapped(study.setting))
    return ax


def study_arrows(
    comparison: Comparison, study: Study, metric: Metric, pairs: Sequence[tuple[Variant, Variant]], ax: Axes
) -> Axes:
    """Dice against the calibration error: an arrow from each group's first value (cross) to its second (circle).

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 3.
    """
    for pair in pairs:
        methods = [comparison[one.method] for one in pair]
        errors, dice = [metric.of(one) for one in methods], [DICE.of(one) for one in methods]
        tail, head = ((x.value, y.value) for x, y in zip(errors, dice, strict=True))
        if np.isnan([*tail, *head]).any():
            continue
        color = color_of(list(study.groups), pair[0].group)
        draw_point(ax, tail, errors[0].interval, dice[0].interval, color=color, marker="x", label=None)
        label = f"{pair[0].group}: {pair[0].text} → {pair[1].text}"
        draw_point(ax, head, errors[1].interval, dice[1].interval, color=color, marker="o", label=label)
        ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": color, "shrinkA": 4, "shrinkB": 4})
    ax.margins(0.15)
    ax.set(xlabel=f"{metric.axis} (better: left)", ylabel="Dice (better: up)")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize=8)
    return ax
