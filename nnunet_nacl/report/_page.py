"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl.evaluation import NEARLY_ALL, Origin, evaluate_command, review_command
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import BY_LABEL, CORE_PROBABILITY, MARGIN_MM, METRICS, Voxels
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.report import _panels as panels
from nnunet_nacl.report import _tables as tables
from nnunet_nacl.report._answer import Answer, answer
from nnunet_nacl.report._comparison import Comparison, View
from nnunet_nacl.report._formats import Table, to_csv, to_latex
from nnunet_nacl.report._matching import Comparable, comparisons_of
from nnunet_nacl.report._metrics import voxels_text
from nnunet_nacl.report._reliability import LIMITS
from nnunet_nacl.report._reviews import Reviews, read_reviews
from nnunet_nacl.report._slices import (
    LOWEST_CONFIDENCE,
    SURE,
    CasePictures,
    case_pictures,
    confidence_colors,
)
from nnunet_nacl.report._statistics import LEVEL
from nnunet_nacl.report._texts import cases_text, number_text, p_text, percent_text
from nnunet_nacl.report.plots._diagrams import dice_scatter
from nnunet_nacl.report.plots._style import Panel, draw_panels, to_svg

_SWITCHED: tuple[Voxels, ...] = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_TEMPLATE = "report/templates/report.html.j2"
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'


@dataclass(frozen=True)
class PageParts:
    """What another part of this package shows on the page besides, by a template that extends the report's.

    Attributes:
        template: its path in nnunet_nacl.
        of_data_set: gives what the section of a data set shows more, its ``more``.
        of_all: gives what the page shows more, its ``more_of_all``.
    """

    template: str
    of_data_set: Callable[[Comparison], object]
    of_all: Callable[[Sequence[Comparison]], object]


@dataclass(frozen=True)
class ShownCase:
    """A case: its ``id`` on the page, why it is shown (``title``), its reliability and its slices."""

    id: str
    title: str
    curves: list[Panel]
    pictures: CasePictures


@dataclass(frozen=True)
class OverSet:
    """What is shown over a voxel set: diagrams of all methods ``overlaid``, and each by itself (``single``).

    Over the image there are no diagrams, which would show little besides the easy background, unless it is the main.
    ``by_label``: whether labels choose these voxels.
    """

    voxels: Voxels
    scores: Table
    overlaid: list[Panel]
    single: list[Panel]
    by_label: bool


@dataclass(frozen=True)
class Section:
    """Everything that is shown of a data set; the page draws the panels. What needs more is None or [].

    What is shown over each voxel set is in ``sets``; the ``lead`` is the first diagram over the main one.
    """

    id: str
    comparison: Comparison
    main: Voxels
    answer: Answer
    near_is_nearly_all: list[str]
    reviews: Reviews
    review_commands: list[str]
    evaluate_commands: list[str]
    shown_cases: dict[str, ShownCase]
    settings: dict[str, dict[str, str]]
    methods: Table
    paper: Table | None
    structures: Table
    differences: Table | None
    cases: Table
    review_table: Table | None
    sets: list[OverSet]
    lead: Panel
    tradeoff: list[Panel]
    review_panels: list[Panel]
    more: object


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and _GENERATOR in file.read_bytes()


def write_report(
    results: Comparable,
    file: str | Path,
    *,
    images: str | Path | None = None,
    command: str = "",
    parts: PageParts | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        command: the command line that makes this page and is shown on it.
        parts: what another part of this package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    if images is not None:
        images = Path(images)
        if not images.is_dir():
            raise FileNotFoundError(f"images: {images} is not a folder.")
    comparisons = comparisons_of(results)
    switched = [
        one for one in _SWITCHED if any(one in comparison.voxels for comparison in comparisons)
    ]
    content = {
        "sections": [
            _section(f"d{number}", comparison, images, parts)
            for number, comparison in enumerate(comparisons, start=1)
        ],
        "command": command,
        "metrics": METRICS.values(),
        "voxel_sets": switched,
        "margin_mm": MARGIN_MM,
        "core_probability": CORE_PROBABILITY,
        "nearly_all": NEARLY_ALL,
        "level": LEVEL,
        "limits": LIMITS,
        "sure": SURE,
        "lowest_confidence": LOWEST_CONFIDENCE,
        "confidence_colors": [f"rgb{color[:3]}" for color in confidence_colors()],
        "more_of_all": None if parts is None else parts.of_all(comparisons),
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
            "percent": percent_text,
            "p": p_text,
            "cases": cases_text,
            "csv": to_csv,
            "latex": to_latex,
            "drawn": drawn,
            "color": label_color,
        }
        template = _TEMPLATE if parts is None else parts.template
        write_page(file, template, content, filters)


def _section(
    section_id: str, comparison: Comparison, images: Path | None, parts: PageParts | None
) -> Section:
    view = View(comparison)
    reviews = read_reviews(comparison)
    results = comparison.results
    paper_leads = not view.judging_metrics
    needs_paper = view.paper_metrics and not paper_leads
    return Section(
        id=section_id,
        comparison=comparison,
        main=view.main,
        answer=answer(comparison),
        near_is_nearly_all=[name for name, one in results.items() if one.near_is_nearly_all],
        reviews=reviews,
        review_commands=[review_command(comparison.origins[name]) for name in reviews.missing],
        evaluate_commands=[
            evaluate_command(result.origin, result.file) for result in results.values()
        ],
        shown_cases=_shown_cases(section_id, view, images),
        settings={name: _settings(origin) for name, origin in comparison.origins.items()},
        methods=tables.methods_table(view),
        paper=tables.paper_table(view, expected=True) if needs_paper else None,
        structures=tables.structures_table(view),
        differences=tables.differences_table(view) if len(comparison.names) > 1 else None,
        cases=tables.cases_table(view),
        review_table=tables.review_table(reviews) if reviews.judgements else None,
        sets=[
            _over_set(View(comparison, voxels), is_main=voxels == view.main)
            for voxels in _SWITCHED
            if voxels in comparison.voxels
        ],
        lead=panels.reliability_panels(view, overlaid=True)[0],
        tradeoff=panels.tradeoff_panels(view) if len(comparison.names) > 1 else [],
        review_panels=[partial(dice_scatter, reviews, name) for name in reviews.judgements],
        more=None if parts is None else parts.of_data_set(comparison),
    )


def _shown_cases(section_id: str, view: View, images: Path | None) -> dict[str, ShownCase]:
    """By name."""
    shown = {}
    for number, (case, title) in enumerate(view.chosen_cases.items(), start=1):
        shown[case] = ShownCase(
            id=f"{section_id}-case-{number}",
            title=title,
            curves=panels.case_panels(view, case),
            pictures=case_pictures(view.comparison, case, images),
        )
    return shown


def _over_set(view: View, *, is_main: bool) -> OverSet:
    overlaid = panels.reliability_panels(view, overlaid=True)
    single = panels.reliability_panels(view)
    if is_main:
        del overlaid[0]  # it leads the section
    elif view.main == "image":
        overlaid = []
        single = []
    return OverSet(
        voxels=view.main,
        scores=tables.scores_table(view),
        overlaid=overlaid,
        single=single,
        by_label=view.main in BY_LABEL,
    )


def _settings(origin: Origin) -> dict[str, str]:
    settings = {**origin.settings_json(), "versions": origin.versions}
    return {name: _setting_text(value) for name, value in settings.items()}


def _setting_text(value: object) -> str:
    """``background: 0, whole: [1, 2]``; – for nothing."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_bracketed(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_bracketed, value)) or "–"
    return "–" if value is None else str(value)


def _bracketed(value: object) -> str:
    """The text of a value within another, a list in brackets."""
    text = _setting_text(value)
    return f"[{text}]" if isinstance(value, (list, tuple)) else text
