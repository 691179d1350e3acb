"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
from collections.abc import Callable, Mapping, Sequence
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
from nnunet_nacl.report._formats import p_text, to_csv, to_latex
from nnunet_nacl.report._frame import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import LABEL_FREE, number_text, titles_text, voxels_text
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
    by_patient: bool | str = False,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        command: the command line that makes this page and is shown on it.
        parts: what another package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        by_patient: which cases are of one patient, see ``compare``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    if images is not None:
        images = Path(images)
        if not images.is_dir():
            raise FileNotFoundError(f"images: {images} is not a folder.")
    comparisons = compare_all(results, by_patient=by_patient)
    switched = [
        one for one in _SWITCHED if any(one in comparison.voxels for comparison in comparisons)
    ]
    content = {
        "sections": [_section(comparison, images, parts) for comparison in comparisons],
        "command": command,
        "metrics": METRICS.values(),
        "voxel_sets": switched,
        "confidence_colors": [f"rgb{color[:3]}" for color in confidence_colors()],
    }
    with tqdm(desc="drawing", unit=" plots") as progress:

        def drawn(panel: Panel) -> Markup:
            """A picture of the page."""
            progress.update()
            # Matplotlib and to_svg escape texts.
            return Markup(to_svg(draw_panels([panel])))  # noqa: S704

        filters = {
            "voxels": voxels_text,
            "number": number_text,
            "titles": titles_text,
            "p": p_text,
            "csv": to_csv,
            "latex": to_latex,
            "drawn": drawn,
        }
        if parts is None:
            write_page(file, _PACKAGE, "report.html.j2", content, filters)
        else:
            content |= parts.of_all(comparisons)
            write_page(file, parts.package, parts.template, content, filters, base=_PACKAGE)


def _section(comparison: Comparison, images: Path | None, parts: PageParts | None) -> Record:
    """Everything that is shown of a data set; the page draws the panels."""
    reviews = read_reviews(comparison)
    several = len(comparison.names) > 1
    by_paper = comparison.judging_metrics and comparison.paper_metrics
    section: Record = {
        "comparison": comparison,
        "answer": answer(comparison),
        "reviews": reviews,
        "label_legend": legend(comparison.meaning),
        "case_views": case_views(comparison, images),
        "settings": {name: _settings(origin) for name, origin in comparison.origins.items()},
        "methods": tables.methods_table(comparison),
        "paper": tables.paper_table(comparison, expected=True) if by_paper else None,
        "structures": tables.structures_table(comparison),
        "differences": tables.differences_table(comparison) if several else None,
        "cases": tables.cases_table(comparison),
        "review_table": tables.review_table(reviews) if reviews.judgements else None,
        "sets": [_over(comparison, one) for one in _SWITCHED if one in comparison.voxels],
        "curves": panels.reliability_panels(comparison, overlaid=True),
        "tradeoff": panels.tradeoff_panels(comparison) if several else [],
        "review_panels": [partial(dice_scatter, reviews, name) for name in reviews.judgements],
    }
    return section if parts is None else section | parts.of_data_set(comparison)


def _over(comparison: Comparison, voxels: Voxels) -> Record:
    """What is shown over a voxel set; diagrams of the image show little besides the easy background."""
    shown = comparison.over(voxels)
    is_main = voxels == comparison.main
    has_diagrams = voxels != "image" or is_main
    overlaid = has_diagrams and not is_main
    return {
        "voxels": voxels,
        "scores": tables.scores_table(shown),
        "overlaid": panels.reliability_panels(shown, overlaid=True) if overlaid else [],
        "single": panels.reliability_panels(shown) if has_diagrams else [],
        "by_label": voxels not in LABEL_FREE,
    }


def _settings(origin: Origin) -> dict[str, str]:
    settings = {**origin.settings_json(), "versions": origin.versions}
    return {
        key: json.dumps(value, ensure_ascii=False).strip('"{}') for key, value in settings.items()
    }
