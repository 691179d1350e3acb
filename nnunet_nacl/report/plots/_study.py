"""A study's variants: as radar, relative differences, curves and arrows."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.report._metrics import Tradeoff
from nnunet_nacl.report._study import RelativeDifferences, StudyScores, Variant, place_name
from nnunet_nacl.report.plots._methods import arms, label_polar
from nnunet_nacl.report.plots._style import INK, color_of, marker_of, wrapped


def study_radar(data: StudyScores, ax: Axes) -> Axes:
    """A metric on an axis for each group: one line for the first value of each, one for the second, and so on.

    Args:
        data: a metric of the variants; one that is missing or not defined leaves a gap.
        ax: polar axes to draw on.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 6.
    """
    groups = [name for name in data.study.groups if any(one.group == name for one in data.variants)]
    places = range(max(map(len, data.study.groups.values())))
    by_place = {
        (one.group, data.study.groups[one.group].index(one)): (one, value)
        for one, value in zip(data.variants, data.values, strict=True)
    }
    angles = np.linspace(0, 2 * np.pi, len(groups), endpoint=False)
    names = [place_name(place) for place in places]
    for place, name in enumerate(names):
        here = [by_place.get((group, place)) for group in groups]
        if not any(here):
            continue
        values = [math.nan if one is None else one[1] for one in here]
        told = ", ".join(f"{one[0].group} {one[0].text}" for one in here if one is not None)
        ax.plot(
            [*angles, angles[0]],
            [*values, values[0]],
            color=color_of(names, name),
            marker=marker_of(names, name),
            markersize=4,
            linewidth=1.3,
            label=wrapped(f"{name}: {told}", 44, 6),
        )
    label_polar(ax, angles, [wrapped(name, 14) for name in groups])
    low, high = _radial_limits(data)
    ax.set_ylim(low, high)
    ax.set_yticks([one for one in MaxNLocator(4).tick_values(low, high) if low <= one <= high])
    ax.set_title(_better(data, "out", "in"), pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), fontsize=8)
    return ax


def _radial_limits(data: StudyScores) -> tuple[float, float]:
    known = [one for one in data.values if not math.isnan(one)]
    if not known or max(known) == 0:
        return 0, 1
    if not data.metric.higher_is_better:
        return 0, 1.1 * max(known)
    # Dice, whose differences are small: from the tenth below to the tenth above.
    return max(math.floor(10 * min(known) - 0.5) / 10, 0), math.ceil(10 * max(known)) / 10


def study_curves(data: StudyScores, ax: Axes) -> Axes:
    """A metric against the setting, one color for each group, with 95 % intervals.

    Args:
        data: a metric of the variants. If all values are numbers, they stand at their place on the axis, joined by a
            line; otherwise they are names, in the order given, and no line joins them.
        ax: where to draw.
    """
    groups = list(data.study.groups)
    values = _places(data)
    positions = sorted(set(values.values()))
    named = any(isinstance(one.value, str) for one in data.variants)
    slanted = named and len(positions) > 3
    gaps = np.diff(positions)
    apart = 0.3 * float(min(gaps, default=1.0)) / len(groups)
    rows = list(zip(data.variants, data.values, data.intervals, strict=True))
    for number, group in enumerate(groups):
        own = sorted((row for row in rows if row[0].group == group), key=lambda row: values[row[0]])
        if not own:
            continue
        ends = np.array([arms(value, ends) or ([math.nan], [math.nan]) for _, value, ends in own])[:, :, 0].T
        ax.errorbar(
            [values[one] + apart * (number - (len(groups) - 1) / 2) for one, _, _ in own],
            [value for _, value, _ in own],
            yerr=ends,
            color=color_of(groups, group),
            marker=marker_of(groups, group),
            markersize=5,
            linestyle="none" if named else "-",
            linewidth=1.3,
            elinewidth=0.8,
            label=f"\u200b{wrapped(group)}",
        )
    names = {values[one]: one.text for one in data.variants}
    if all(gaps > 0.08 * (positions[-1] - positions[0])):  # otherwise their names would overlap
        slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        ax.set_xticks(positions, [wrapped(names[one], 12) for one in positions], **slant)
    ax.margins(0.12)
    ax.set(xlabel=wrapped(data.study.setting, 40), title=_better(data, "up", "down"))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36 if slanted else -0.17), ncols=2, fontsize=8)
    return ax


def _places(data: StudyScores) -> dict[Variant, float]:
    if all(not isinstance(one.value, str) for one in data.variants):
        return {one: float(one.value) for one in data.variants}
    there = {one.text for one in data.variants}
    order = list(dict.fromkeys(one.text for one in data.study.variants if one.text in there))
    return {one: float(order.index(one.text)) for one in data.variants}


def study_differences(data: RelativeDifferences, ax: Axes) -> Axes:
    """(first − second) / first in per cent at each value, with 95 % intervals; in the color of the better one.

    Args:
        data: relative differences; one that is not defined leaves a gap.
        ax: where to draw.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 7.
    """
    groups = [data.first, data.second]
    left, right = (data.second, data.first) if data.metric.higher_is_better else (data.first, data.second)
    reach = 0.0
    for number, (percent, ends) in enumerate(zip(data.percent, data.intervals, strict=True)):
        if math.isnan(percent):
            continue
        ax.barh(number, percent, 0.6, color=color_of(groups, right if percent > 0 else left), alpha=0.85)
        ax.errorbar(percent, number, xerr=arms(percent, ends), color=INK, linewidth=0.8, capsize=2)
        reach = max(reach, *(abs(one) for one in (percent, *ends) if not math.isnan(one)))
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_xlim(-1.1 * reach or -1, 1.1 * reach or 1)
    ax.set_yticks(range(len(data.values)), [wrapped(one, 12) for one in data.values])
    ax.set_ylim(len(data.values) - 0.4, -0.6)
    sides = (0, "left", f"← {wrapped(left, 16)}\nbetter"), (1, "right", f"{wrapped(right, 16)} →\nbetter")
    for x, align, text in sides:
        ax.text(x, 1.02, text, transform=ax.transAxes, ha=align, va="bottom", fontsize=8)
    ax.set_title(data.metric.title, pad=12 + 10 * max(text.count("\n") + 1 for _, _, text in sides))
    ax.set(xlabel="relative difference (%)", ylabel=wrapped(data.study.setting))
    return ax


def study_arrows(data: Tradeoff, pairs: list[tuple[Variant, Variant]], groups: list[str], ax: Axes) -> Axes:
    """Dice against the calibration error: an arrow from each group's first value (cross) to its second (circle).

    Args:
        data: Dice and error of the methods.
        pairs: the variants at both ends of each arrow; one that is not defined is left out.
        groups: all groups of the study, in the order of their colors.
        ax: where to draw.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 3.
    """
    for first, second in pairs:
        places = [data.names.index(one.method) for one in (first, second)]
        tail, head = ((data.error[place], data.dice[place]) for place in places)
        if np.isnan([*tail, *head]).any():
            continue
        color = color_of(groups, first.group)
        label = wrapped(f"{first.group}: {first.text} → {second.text}", 40)
        for place, marker, told in zip(places, "xo", (None, f"\u200b{label}"), strict=True):
            ax.errorbar(
                data.error[place],
                data.dice[place],
                xerr=arms(data.error[place], data.error_intervals[place]),
                yerr=arms(data.dice[place], data.dice_intervals[place]),
                color=color,
                marker=marker,
                markersize=7,
                linestyle="none",
                elinewidth=0.6,
                label=told,
            )
        ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": color, "shrinkA": 4, "shrinkB": 4})
    ax.margins(0.15)
    ax.set(xlabel=f"{data.error_name} (better: left)", ylabel="Dice (better: up)")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize=8)
    return ax


def _better(data: StudyScores, high: str, low: str) -> str:
    return f"{data.metric.title} (better: {high if data.metric.higher_is_better else low})"
