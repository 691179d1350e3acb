"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl.evaluation import NEARLY_ALL
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import BY_LABEL, CORE_PROBABILITY, MARGIN_MM, METRICS, Voxels
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.report import _reliability as reliability
from nnunet_nacl.report import _tables as tables
from nnunet_nacl.report._comparison import DICE, Comparable, Comparison, compare_all, voxels_text
from nnunet_nacl.report._slices import CONFIDENCE_COLORS, LOWEST_CONFIDENCE, SURE, case_pictures
from nnunet_nacl.report._statistics import LEVEL, differences
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
_SWITCHED: tuple[Voxels, ...] = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_TEMPLATE = "report/templates/report.html.j2"
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'


@dataclass(frozen=True)
class PageParts:
    """Additions of another package to the page, by a template that extends the report's.

    Attributes:
        template: its path in nnunet_nacl.
        of_data_set: makes the additions to a data set's section, the template's ``section.more``.
        of_all: makes the additions to the page, the template's ``more_of_all``.
    """

    template: str
    of_data_set: Callable[[Comparison], object]
    of_all: Callable[[Sequence[Comparison]], object]


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
    comparisons = compare_all(results)
    content = {
        "sections": [
            {
                **_section(f"d{number}", comparison, file.parent, images),
                "more": None if parts is None else parts.of_data_set(comparison),
            }
            for number, comparison in enumerate(comparisons, start=1)
        ],
        "metrics": METRICS.values(),
        "voxel_sets": [
            voxels for voxels in _SWITCHED if any(voxels in one.voxels for one in comparisons)
        ],
        "margin_mm": MARGIN_MM,
        "core_probability": CORE_PROBABILITY,
        "nearly_all": NEARLY_ALL,
        "level": LEVEL,
        "limits": reliability,
        "sure": SURE,
        "lowest_confidence": LOWEST_CONFIDENCE,
        "confidence_colors": [f"rgb{color[:3]}" for color in CONFIDENCE_COLORS],
        "more_of_all": None if parts is None else parts.of_all(comparisons),
    }
    with tqdm(desc="drawing", unit=" plots") as progress:

        def drawn(panel: Panel) -> Markup:
            """Return a picture of the page."""
            progress.update()
            # Matplotlib and to_svg escape texts.
            return Markup(to_svg(draw_panels([panel])))  # noqa: S704

        filters = {
            "voxels": voxels_text,
            "number": tables.number_text,
            "percent": lambda share: f"{100 * share:g}",
            "p": tables.p_text,
            "cases": lambda number: "1 case" if number == 1 else f"{number} cases",
            "exact": tables.exact,
            "csv": tables.to_csv,
            "latex": tables.to_latex,
            "drawn": drawn,
            "color": label_color,
        }
        template = _TEMPLATE if parts is None else parts.template
        write_page(file, template, content, filters)


def _section(section_id: str, comparison: Comparison, folder: Path, images: Path | None) -> ByName:
    """Collect the content of a data set's section, of a page in this folder; the template draws the panels."""
    results = comparison.results
    several = len(results) > 1
    main = comparison.main
    methods = tables.methods_table(comparison)
    paper = None
    if comparison.paper_metrics and comparison.judging_metrics:
        paper = tables.paper_table(comparison, expected=True, rows=methods.rows)
    sets = []
    for voxels in _SWITCHED:
        if voxels not in comparison.voxels:
            continue
        shown = comparison if voxels == main else comparison.over(voxels)
        # Diagrams of the image would show little besides the easy background
        is_drawn = voxels != "image" or voxels == main
        of_set = {
            "voxels": voxels,
            "by_label": voxels in BY_LABEL,
            "scores": tables.scores_table(shown),
            "overlaid": reliability_panels(shown, overlaid=True) if is_drawn else [],
            "single": reliability_panels(shown) if is_drawn and several else [],
        }
        sets.append(of_set)
    pages = {name: one.origin.pred_folders[0] / "review.html" for name, one in results.items()}
    return {
        "id": section_id,
        "comparison": comparison,
        "main": main,
        "colors": results[comparison.names[0]].meaning.smallest_names,
        "near_is_nearly_all": [name for name, one in results.items() if "near" in one.notes],
        "first": first_screen(comparison),
        "lead": reliability_panels(comparison, overlaid=True)[0],
        "settings": _settings(comparison),
        "tables": {
            "methods": methods,
            "paper": paper,
            "structures": tables.structures_table(comparison),
            "differences": tables.differences_table(comparison) if several else None,
            "cases": tables.cases_table(comparison),
        },
        "sets": sets,
        "tradeoff": tradeoff_panels(comparison) if several else [],
        "reviews": {
            name: quote(Path(os.path.relpath(page, folder)).as_posix())
            for name, page in pages.items()
            if page.is_file()
        },
        "shown_cases": {
            case: {
                "id": f"{section_id}-case-{number}",
                "title": title,
                "curves": reliability_panels(comparison.of_case(case), overlaid=True, title=case),
                "pictures": case_pictures(comparison, case, images),
            }
            for number, (case, title) in enumerate(comparison.chosen_cases.items(), start=1)
        },
    }


def first_screen(comparison: Comparison) -> ByName:
    """Collect the content of the first screen.

    - ``assessments``: reliability of the methods that are named; of many, the baseline, the best, the calibrated ones.
    - ``error_set``: the voxel set of their ECE.
    - ``judged``: the metric that orders the methods, and ``order``; None if it was not evaluated.
    - ``against_baseline``: method -> its difference in Dice, None if there is none, and the calibration metrics by
      which it is significantly better and worse.
    """
    judging = comparison.judging_metrics  # without near and image, nothing is judged
    order = comparison.order(judging[0]) if judging else None
    names = [name for name in comparison.names if name not in comparison.finds_nothing]
    if order is not None and order.names:
        names = order.names
    if len(names) > _ALL_NAMED:
        kept = {comparison.names[0], names[0], *comparison.calibrated}
        names = [name for name in names if name in kept]
    error_set = comparison.judging_set or comparison.main
    reliabilities = [comparison.reliability[error_set][name] for name in names]
    gaps = {
        metric: differences(comparison.estimates[metric])
        for metric in [DICE, *judging, *comparison.paper_metrics]
    }
    against = {}
    for name, dice in gaps.pop(DICE).items():
        if name not in names:
            continue
        better: list[str] = []
        worse: list[str] = []
        for metric, gap in gaps.items():
            if gap[name].is_significant():
                is_better = (gap[name].value > 0) == metric.definition.higher_is_better
                (better if is_better else worse).append(metric.title)
        against[name] = {
            "dice": None if np.isnan(dice.value) else dice,
            "better": better,
            "worse": worse,
        }
    return {
        "assessments": [
            one for one in reliabilities if judging and not np.isnan(one.pooled["ECE"])
        ],
        "error_set": error_set,
        "judged": judging[0] if judging else None,
        "order": order,
        "against_baseline": against,
    }


def _settings(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Return method -> its calibration, settings and versions, as JSON but for texts."""
    settings = {}
    for name, result in comparison.results.items():
        values = {
            "calibrated by": comparison.calibrated.get(name),
            **result.origin.settings_json(),
            "versions": result.origin.versions,
        }
        settings[name] = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in values.items()
        }
    return settings
