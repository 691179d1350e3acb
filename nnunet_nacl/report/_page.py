"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl import metrics
from nnunet_nacl.evaluation import NEARLY_ALL
from nnunet_nacl.files import check_output
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.report import _reliability, _slices, _tables
from nnunet_nacl.report._choice import DICE, voxels_text
from nnunet_nacl.report._comparison import Comparable, Comparison, compare_all
from nnunet_nacl.report._statistics import LEVEL, Difference, Order, differences
from nnunet_nacl.report.plots import (
    Panel,
    draw_panels,
    reliability_panels,
    to_svg,
    tradeoff_panels,
)
from nnunet_nacl.typing import ByName

_ALL_NAMED = 4
"""Up to so many methods are all named on the first screen; of more, the baseline, the best and the calibrated ones."""
_SWITCHED: tuple[metrics.Voxels, ...] = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'


@dataclass(frozen=True)
class PageParts:
    """Additions of another package to the page, by a template that extends the report's; by default none.

    Attributes:
        template: its path in nnunet_nacl.
        of_data_set: makes the additions to a data set's section, the template's ``section.more``.
        of_all: makes the additions to the page, the template's ``more_of_all``.
    """

    template: str = "report/templates/report.html.j2"
    of_data_set: Callable[[Comparison], object] = lambda _: None
    of_all: Callable[[Sequence[Comparison]], object] = lambda _: None


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and _GENERATOR in file.read_bytes()


def write_report(
    results: Comparable,
    file: str | Path,
    *,
    images: str | Path | None = None,
    parts: PageParts | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        parts: what another part of this package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    images = None if images is None else Path(images)
    parts = parts or PageParts()
    comparisons = compare_all(results)
    sections = [
        _section(f"d{number}", comparison, file.parent, images, parts.of_data_set(comparison))
        for number, comparison in enumerate(comparisons, start=1)
    ]
    content = {
        "sections": sections,
        "voxel_sets": [
            one for one in _SWITCHED if any(one in section.sets for section in sections)
        ],
        "more_of_all": parts.of_all(comparisons),
        "metrics": metrics,
        "slices": _slices,
        "limits": _reliability,
        "level": LEVEL,
        "nearly_all": NEARLY_ALL,
    }
    with tqdm(desc="drawing", unit=" plots") as progress:

        def drawn(panel: Panel) -> Markup:
            """Return a picture of the page."""
            progress.update()
            # Matplotlib and to_svg escape texts.
            return Markup(to_svg(draw_panels([panel])))  # noqa: S704

        filters = {
            "voxels": voxels_text,
            "number": _tables.number_text,
            "percent": lambda share: f"{100 * share:g}",
            "p": _tables.p_text,
            "cases": lambda number: "1 case" if number == 1 else f"{number} cases",
            "exact": _tables.exact,
            "csv": _tables.to_csv,
            "latex": _tables.to_latex,
            "drawn": drawn,
            "color": label_color,
        }
        write_page(file, parts.template, content, filters)


@dataclass(frozen=True)
class FirstScreen:
    """What the first screen compares.

    Attributes:
        assessed: the reliability of the methods that are named; none if no voxel set judges it.
        order: of the methods by the first of the judging metrics; None without any.
        dice: method -> its difference to the baseline in Dice, of the methods that are named.
        better: method -> titles of the calibration metrics by which it is significantly better than the baseline.
        worse: likewise.
    """

    assessed: list[_reliability.Reliability]
    order: Order | None
    dice: dict[str, Difference]
    better: dict[str, list[str]]
    worse: dict[str, list[str]]


def first_screen(comparison: Comparison) -> FirstScreen:
    """Compare the methods for the first screen: of many, the baseline, the best, the calibrated ones."""
    choice = comparison.choice
    names = [name for name in comparison.names if name not in comparison.finds_nothing]
    order = None
    if choice.judging:
        order = comparison.order(choice.judging[0])
        names = order.names or names
    if len(names) > _ALL_NAMED:
        kept = {comparison.names[0], names[0], *comparison.calibrated}
        names = [name for name in names if name in kept]
    assessed = []
    if choice.judging_set is not None:
        of_methods = comparison.reliability[choice.judging_set]
        assessed = [
            of_methods[name] for name in names if not np.isnan(of_methods[name].pooled["ECE"])
        ]
    better: dict[str, list[str]] = defaultdict(list)
    worse: dict[str, list[str]] = defaultdict(list)
    for metric in [*choice.judging, *choice.paper]:
        for name, gap in differences(comparison.estimates[metric]).items():
            if gap.is_significant():
                is_better = (gap.value > 0) == metric.definition.higher_is_better
                (better if is_better else worse)[name].append(metric.title)
    in_dice = differences(comparison.estimates[DICE])
    dice = {name: gap for name, gap in in_dice.items() if name in names}
    return FirstScreen(assessed, order, dice, better, worse)


class Reliabilities(NamedTuple):
    """Calibration over a voxel set: further metrics, diagrams of all methods together, and of each method."""

    scores: _tables.Table
    overlaid: list[Panel]
    single: list[Panel]


@dataclass(frozen=True)
class Section:
    """A data set's section of the page, whose template draws the panels.

    Attributes:
        id: in the page.
        comparison: of the methods on the data set.
        first: its first screen.
        tables: by name; None for one that is not shown.
        sets: of each voxel set that all methods have.
        tradeoff: Dice against calibration.
        reviews: method -> address of its review's page.
        cases: case -> its id, title, reliability diagrams, and pictures.
        settings: method -> its calibration, settings and versions, as JSON but for texts.
        more: additions of ``PageParts``.
    """

    id: str
    comparison: Comparison
    first: FirstScreen
    tables: dict[str, _tables.Table | None]
    sets: dict[metrics.Voxels, Reliabilities]
    tradeoff: list[Panel]
    reviews: dict[str, str]
    cases: dict[str, ByName]
    settings: dict[str, dict[str, str]]
    more: object


def _section(
    section_id: str, comparison: Comparison, folder: Path, images: Path | None, more: object
) -> Section:
    """Collect a section of a page that will lie in this folder."""
    several = len(comparison.results) > 1
    main = comparison.choice.main
    methods = _tables.methods_table(comparison)
    tables: dict[str, _tables.Table | None] = {
        "methods": methods,
        "paper": None,
        "structures": _tables.structures_table(comparison),
        "differences": _tables.differences_table(comparison) if several else None,
        "cases": _tables.cases_table(comparison),
    }
    if comparison.choice.paper and comparison.choice.judging:
        tables["paper"] = _tables.paper_table(comparison, expected=True, rows=methods.rows)
    sets = {}
    for voxels in _SWITCHED:
        if voxels not in comparison.voxels:
            continue
        shown = comparison if voxels == main else comparison.over(voxels)
        # Diagrams of the image would show little besides the easy background
        is_drawn = voxels != "image" or voxels == main
        overlaid = reliability_panels(shown, overlaid=True) if is_drawn else []
        single = reliability_panels(shown) if is_drawn and several else []
        sets[voxels] = Reliabilities(_tables.scores_table(shown), overlaid, single)
    reviews = {}
    settings = {}
    for name, result in comparison.results.items():
        page = result.origin.pred_folders[0] / "review.html"
        if page.is_file():
            reviews[name] = quote(Path(os.path.relpath(page, folder)).as_posix())
        values = {
            "calibrated by": comparison.calibrated.get(name),
            **result.origin.settings_json(),
            "versions": result.origin.versions,
        }
        settings[name] = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in values.items()
        }
    cases = {
        case: {
            "id": f"{section_id}-case-{number}",
            "title": title,
            "curves": reliability_panels(comparison.of_case(case), overlaid=True, title=case),
            "pictures": _slices.case_pictures(comparison, case, images),
        }
        for number, (case, title) in enumerate(_slices.chosen_cases(comparison).items(), start=1)
    }
    tradeoff = tradeoff_panels(comparison) if several else []
    first = first_screen(comparison)
    return Section(
        section_id, comparison, first, tables, sets, tradeoff, reviews, cases, settings, more
    )
