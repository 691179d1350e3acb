"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl.evaluation import Origin
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import METRICS, Voxels
from nnunet_nacl.pages import write_page
from nnunet_nacl.report import _panels as panels
from nnunet_nacl.report import _tables as tables
from nnunet_nacl.report._answer import answer
from nnunet_nacl.report._frame import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import LABEL_FREE, number_text, titles_text, voxels_text
from nnunet_nacl.report._reading import evaluate_command
from nnunet_nacl.report._reviews import read_reviews
from nnunet_nacl.report._slices import case_views, confidence_colors, legend
from nnunet_nacl.report.plots._diagrams import dice_scatter
from nnunet_nacl.report.plots._style import Panel, draw_panels, to_svg
from nnunet_nacl.typing import Record

_SWITCHED: tuple[Voxels, ...] = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_PACKAGE = "nnunet_nacl.report"
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'


@dataclass(frozen=True)
class PageParts:
    """What another package shows on the page besides, by a template that extends ``report.html.j2``.

    Attributes:
        package: has the template.
        template: its name.
        of_data_set: gives what the section of a data set shows more.
        of_all: gives what the page shows more.
    """

    package: str
    template: str
    of_data_set: Callable[[Comparison], Record]
    of_all: Callable[[Sequence[Comparison]], Record]


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and _GENERATOR in file.read_bytes()


def write_report(
    results: Mapping[str, Results],
    file: str | Path,
    *,
    images: str | Path | None = None,
    command: str = "",
    parts: PageParts | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        command: the command line that makes this page and is shown on it.
        parts: what another package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    if images is not None:
        images = Path(images)
        if not images.is_dir():
            raise FileNotFoundError(f"images: {images} is not a folder.")
    comparisons = compare_all(results)
    sections = [
        _section(comparison, images, parts)
        for comparison in tqdm(comparisons, desc="drawing", unit="data set")
    ]
    content = {
        "sections": sections,
        "command": command,
        "metrics": METRICS.values(),
        "voxel_sets": [
            name
            for name in _SWITCHED
            if any(name in comparison.voxels for comparison in comparisons)
        ],
        "confidence_colors": [f"rgb{color[:3]}" for color in confidence_colors()],
    }
    filters = {
        "voxels": voxels_text,
        "number": number_text,
        "titles": titles_text,
        "p": tables.p_text,
        "csv": tables.to_csv,
        "latex": tables.to_latex,
    }
    if parts is None:
        write_page(file, _PACKAGE, "report.html.j2", content, filters)
    else:
        content |= parts.of_all(comparisons)
        write_page(file, parts.package, parts.template, content, filters, base=_PACKAGE)


def pictures(drawings: Iterable[Panel]) -> list[Markup]:
    """Panels as pictures of a page, each by itself."""
    # Matplotlib and to_svg escape texts.
    return [Markup(to_svg(draw_panels([drawing]))) for drawing in drawings]  # noqa: S704


def _section(comparison: Comparison, images: Path | None, parts: PageParts | None) -> Record:
    """Everything that is shown of a data set."""
    reviews = read_reviews(comparison)
    section: Record = {
        "comparison": comparison,
        "answer": answer(comparison),
        "curves": pictures(panels.reliability_panels(comparison, overlaid=True)),
        "methods": tables.methods_table(comparison),
        "paper": None,
        "folded": [tables.structures_table(comparison)],
        "sets": [
            _voxel_set(comparison, voxels) for voxels in _SWITCHED if voxels in comparison.voxels
        ],
        "tradeoff": [],
        "reviews": reviews,
        "review_table": tables.review_table(reviews) if reviews.judgements else None,
        "review_pictures": pictures(
            partial(dice_scatter, reviews, judgement) for judgement in reviews.judgements
        ),
        "case_views": [
            {**view, "curves": _case_curves(comparison, view)}
            for view in case_views(comparison, images)
        ],
        "cases": tables.cases_table(comparison),
        "label_legend": legend(comparison.meaning),
        "settings": {name: _settings(comparison.origin(name)) for name in comparison.names},
        "commands": [evaluate_command(comparison.origin(name)) for name in comparison.names],
    }
    if len(comparison.names) > 1:
        section["folded"].append(tables.differences_table(comparison))
        section["tradeoff"] = pictures(panels.tradeoff_panels(comparison))
    if comparison.judging_metrics() and comparison.paper_metrics():
        section["paper"] = tables.paper_table(comparison, expected=True)
    if parts is not None:
        section |= parts.of_data_set(comparison)
    return section


def _case_curves(comparison: Comparison, view: Record) -> list[Markup]:
    """The reliability of a case whose pictures are shown."""
    if not view["slices"]:
        return []
    return pictures(panels.reliability_panels(comparison.of_case(view["name"]), overlaid=True))


def _voxel_set(comparison: Comparison, voxels: Voxels) -> Record:
    overlaid: list[Panel] = []
    single: list[Panel] = []
    # Diagrams of the image show little besides the easy background
    if voxels != "image" or comparison.main == "image":
        single = panels.reliability_panels(comparison, voxels)
        if voxels != comparison.main:
            overlaid = panels.reliability_panels(comparison, voxels, overlaid=True)
    return {
        "voxels": voxels,
        "overlaid": pictures(overlaid),
        "single": pictures(single),
        "scores": tables.scores_table(comparison, voxels),
        "by_label": voxels not in LABEL_FREE,
    }


def _settings(origin: Origin) -> dict[str, str]:
    settings = {**origin.settings_json(), "versions": origin.versions}
    return {
        key: json.dumps(value, ensure_ascii=False).strip('"{}') for key, value in settings.items()
    }
