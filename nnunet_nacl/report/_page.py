"""The page: one self-contained HTML file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.evaluation import VOXEL_SETS, FolderResult
from nnunet_nacl.files import Kind, check_file, whole_file
from nnunet_nacl.report._comparison import Comparison, Method, compare_all
from nnunet_nacl.report._confidences import JudgedMethods, confidences_table, judged_methods
from nnunet_nacl.report._formats import Table, to_csv, to_latex
from nnunet_nacl.report._logit_plots import read_logit_plots
from nnunet_nacl.report._metrics import POOLED, judging_metrics, paper_metrics, place
from nnunet_nacl.report._names import ShortNames
from nnunet_nacl.report._notes import missing_notes, undefined_notes
from nnunet_nacl.report._panels import (
    MAX_REGIONS,
    class_panels,
    confidence_panels,
    overlaid_panels,
    radar_panels,
    reliability_panels,
    stability_panel,
    study_panels,
    tradeoff_panels,
)
from nnunet_nacl.report._pictures import CaseView, case_views, confidence_colors, legend
from nnunet_nacl.report._published import published_method, published_table
from nnunet_nacl.report._results import evaluate_command
from nnunet_nacl.report._shared import Results
from nnunet_nacl.report._slices import check_images
from nnunet_nacl.report._statistics import SCHEMES, Ranking, rank_by_scores, rank_methods, ranked_voxels
from nnunet_nacl.report._study import Study, study_caption
from nnunet_nacl.report._tables import (
    cases_table,
    differences_table,
    methods_table,
    paper_table,
    ranks_table,
    score_ranks_table,
    scores_table,
    structures_table,
)
from nnunet_nacl.report._verdict import Verdict, full_verdict, ranking_remark
from nnunet_nacl.report._wording import listed
from nnunet_nacl.report.plots._style import Panel, color_of, draw_panels, glyph_of, to_svg

_PAGE = Kind("a report", re.compile(rb'<meta name="generator" content="nnunet_nacl '))
Setting = tuple[str, str]
"""Name and value, as the page shows them."""
_SWITCHED = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""


@dataclass(frozen=True)
class StudyView:
    """A study, as the page shows it."""

    title: str
    caption: str
    pictures: list[Markup]


@dataclass(frozen=True)
class VoxelSetView:
    """What is shown over one voxel set.

    Attributes:
        voxels: the set.
        overlaid: the curves of all methods; empty for the set at the top of the section, which has them there.
        single: a diagram of each method.
        classes: a diagram of each class.
        scores: further metrics.
        by_label: whether labels choose the voxels.
        has_expected: whether it is known where a perfectly calibrated model would lie.
        num_classes: of which some may not be drawn.
        regions_left_out: how many regions have no diagram.
    """

    voxels: str
    overlaid: list[Markup]
    single: list[Markup]
    classes: list[Markup]
    scores: Table
    by_label: bool
    has_expected: bool
    num_classes: int
    regions_left_out: int


@dataclass(frozen=True)
class RankingView:
    """Rankings by the same metrics, and how stable they are."""

    title: str
    tables: list[Table]
    pictures: list[Markup]
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """Everything that is shown of a data set."""

    comparison: Comparison
    verdict: Verdict
    curves: list[Markup]
    notes: list[str]
    study: StudyView | None
    methods: Table
    folded: list[Table]
    structures: Table
    sets: list[VoxelSetView]
    tradeoff: list[Markup]
    radar: list[Markup]
    rankings: list[RankingView]
    judged: JudgedMethods
    judged_table: Table | None
    judged_pictures: list[Markup]
    case_views: list[CaseView]
    cases: Table

    @property
    def main(self) -> str:
        return self.comparison.main

    @property
    def num_cases(self) -> int:
        return len(self.comparison.cases)

    @property
    def label_legend(self) -> list[tuple[str, str]]:
        """Color and name of each label in pictures."""
        return legend(self.comparison.methods[0].result.labels)

    @property
    def method_legend(self) -> list[tuple[str, str, str]]:
        """Glyph, color and name of each method in plots."""
        names = self.comparison.names
        return [(glyph_of(names, name), color_of(names, name), name) for name in names]

    @property
    def settings(self) -> tuple[list[Setting], list[tuple[str, list[Setting]]]]:
        """Settings and versions that all methods share, and for each method its own."""
        of_methods = [_settings(method) for method in self.comparison.methods]
        shared = [one for one in of_methods[0] if all(one in other for other in of_methods)]
        own = [[one for one in settings if one not in shared] for settings in of_methods]
        return shared, list(zip(self.comparison.names, own, strict=True))

    @property
    def commands(self) -> list[str]:
        """That evaluated the methods."""
        return [evaluate_command(method.result) for method in self.comparison.methods]


def write_report(
    results: Mapping[str, Results],
    file: str | Path,
    *,
    baseline: str | None = None,
    images: str | Path | None = None,
    logits: str | Path | None = None,
    command: str = "",
    study: Study | None = None,
    paper: bool = False,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> None:
    """Write the page that compares methods. The file is written completely or not at all.

    Words that all names of methods begin or end with are left out on the page, which says so.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        file: the page.
        baseline: the method that the others are compared with; by default each data set's first.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        logits: folder that ``nnunet_nacl logits`` has written; its plots become a section.
        command: the command line that makes this page, to be shown on it.
        study: variants along a setting; its plots begin each data set's section.
        paper: show the paper's published values beside ours.
        overwrite: replace a file that is no page of ours, too.
        ignore_geometry: in pictures of cases, take files as they are, though their spacing, origin or direction differ.

    Raises:
        FileNotFoundError: ``logits`` or ``images`` is no such folder.
        OSError: the page cannot be written, or there is a file that is none.
        ValueError: nothing to compare, with the reason.
    """
    file = check_file(file, _PAGE, overwrite=overwrite)
    check_images(images)
    logit_plots = [] if logits is None else read_logit_plots(logits)
    names = ShortNames.of(name for methods in results.values() for name in methods)
    if study is not None:  # its variants have the names of the results
        names = ShortNames("", "", {name: name for name in names.by_full})
    comparisons = compare_all(_renamed(results, names), baseline=names.by_full.get(baseline or "", baseline))
    page = _Page(images, ignore_geometry=ignore_geometry)
    with tqdm(total=len(comparisons) * len(_Page.PARTS), desc="drawing", unit="part") as progress:
        sections = [page.section(comparison, study, progress) for comparison in comparisons]
    together = page.rankings(comparisons) if len(comparisons) > 1 and _same_methods(comparisons) else []
    methods = [method for comparison in comparisons for method in comparison.methods]
    voxel_sets = [one for one in _SWITCHED if any(one in comparison.voxels for comparison in comparisons)]
    full = [_with_full_names(comparison, names) for comparison in comparisons]
    known = [one for one in full if any(map(published_method, one.names))]
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(place=place, listed=listed, csv=to_csv, latex=to_latex)
    html = environment.get_template("report.html.j2").render(
        sections=sections,
        together=together,
        published=[_published_table(one, names) for one in known or full] if paper else [],
        datasets=[comparison.dataset for comparison in comparisons],
        names=names,
        logit_plots=logit_plots,
        command=command,
        version=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        has_surface=any(comparison.has_surface for comparison in comparisons),
        has_regions=any(comparison.has_regions for comparison in comparisons),
        voxel_sets=voxel_sets,
        has_scores=any(comparison.has_scores for comparison in comparisons),
        by_label=[voxels for voxels in VOXEL_SETS if voxels in voxel_sets and voxels not in POOLED],
        margins=sorted({f"{method.result.settings.margin_mm:g}" for method in methods}),
        has_expected=any(
            method.bins(voxels, "expected_top") is not None for method in methods for voxels in method.result.voxels
        ),
        confidence_colors=[f"rgb{color[:3]}" for color in confidence_colors()],
    )
    with whole_file(file, _PAGE, overwrite=overwrite) as partial:
        partial.write_text(html, encoding="utf-8")


def _renamed(results: Mapping[str, Results], names: ShortNames) -> dict[str, dict[str, FolderResult]]:
    return {
        dataset: {names.by_full[name]: result for name, result in methods.items()}
        for dataset, methods in results.items()
    }


def _with_full_names(comparison: Comparison, names: ShortNames) -> Comparison:
    full = {short: name for name, short in names.by_full.items()}
    return replace(comparison, methods=[replace(method, name=full[method.name]) for method in comparison.methods])


def _published_table(comparison: Comparison, names: ShortNames) -> Table:
    """With short names of the methods, which are known to the paper by their full ones."""
    table = published_table(comparison)
    return replace(table, rows=[(names.by_full[name], cells) for name, cells in table.rows])


def _settings(method: Method) -> list[Setting]:
    settings = [(key, _setting_text(value)) for key, value in method.result.origin.settings_json().items()]
    versions = ", ".join(f"{package} {version}" for package, version in method.result.versions.items())
    return [*settings, ("versions", versions)]


def _setting_text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_setting_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(f"({_setting_text(one)})" if isinstance(one, list | tuple) else str(one) for one in value)
    return str(value)


def _same_methods(comparisons: Sequence[Comparison]) -> bool:
    first = comparisons[0]
    return all(sorted(one.names) == sorted(first.names) for one in comparisons) and bool(
        set.intersection(*(set(one.voxels) for one in comparisons))
    )


class _Page:
    """Makes the parts of a page; numbers its plots, so that no two share an id."""

    PARTS = ("verdict", "tables", "reliability", "ranks", "confidences", "cases")

    def __init__(self, images: str | Path | None, *, ignore_geometry: bool) -> None:
        self._number = 0
        self._images, self._ignore_geometry = images, ignore_geometry

    def pictures(self, panels: Iterable[Panel]) -> list[Markup]:
        return [self._picture(panel) for panel in panels]

    def _picture(self, panel: Panel) -> Markup:
        self._number += 1
        svg = to_svg(draw_panels([panel]), description=panel.description, prefix=f"f{self._number}-")
        return Markup(svg)  # noqa: S704 - Matplotlib and to_svg escape texts

    def section(self, comparison: Comparison, study: Study | None, progress: "tqdm[Any]") -> Section:
        """Everything that is shown of a data set."""
        parts = iter(self.PARTS)

        def begin() -> None:
            progress.set_postfix_str(next(parts))

        main, several = comparison.main, len(comparison.methods) > 1
        begin()
        verdict = full_verdict(comparison)
        notes = [*comparison.notes, *missing_notes(comparison), *undefined_notes(comparison)]
        curves = self.pictures(overlaid_panels(comparison, main))
        study_view = None if study is None else self._study(comparison, study)
        progress.update()

        begin()
        folded = [differences_table(comparison)] if several else []
        folded += [paper_table(comparison)] if judging_metrics(comparison) and paper_metrics(comparison) else []
        methods, structures = methods_table(comparison), structures_table(comparison, main)
        progress.update()

        begin()
        sets = [self._voxel_set(comparison, voxels) for voxels in _SWITCHED if voxels in comparison.voxels]
        tradeoff = self.pictures(tradeoff_panels(comparison, legend=False)) if several else []
        radar = self.pictures(radar_panels(comparison, main)) if len(comparison.methods) > 2 else []
        progress.update()

        begin()
        rankings = self.rankings([comparison]) if len(comparison.methods) > 2 else []
        progress.update()

        begin()
        judged = judged_methods(comparison)
        judged_table = confidences_table(judged) if judged.methods else None
        judged_pictures = self.pictures(confidence_panels(judged)) if judged.methods else []
        progress.update()

        begin()
        views = case_views(comparison, main, images=self._images, ignore_geometry=self._ignore_geometry)
        cases = cases_table(comparison, main)
        progress.update()
        return Section(
            comparison, verdict, curves, notes, study_view, methods, folded, structures, sets, tradeoff, radar,
            rankings, judged, judged_table, judged_pictures, views, cases,
        )  # fmt: skip

    def _study(self, comparison: Comparison, study: Study) -> StudyView:
        pictures = self.pictures(study_panels(comparison, study))
        return StudyView(study.title, study_caption(comparison, study, drawn=bool(pictures)), pictures)

    def _voxel_set(self, comparison: Comparison, voxels: str) -> VoxelSetView:
        # Not over the image: its diagrams show little but the large and easy background.
        drawn = voxels != "image" or comparison.main == "image"
        return VoxelSetView(
            voxels,
            self.pictures(overlaid_panels(comparison, voxels)) if drawn and voxels != comparison.main else [],
            self.pictures(reliability_panels(comparison, voxels)) if drawn else [],
            self.pictures(class_panels(comparison, voxels, legend=False)) if drawn else [],
            scores_table(comparison, voxels),
            by_label=voxels not in POOLED,
            has_expected=any(one.bins(voxels, "expected_top") is not None for one in comparison.methods),
            num_classes=len(comparison.classes),
            regions_left_out=max(len(comparison.classes) - MAX_REGIONS, 0) if comparison.has_regions else 0,
        )

    def rankings(self, comparisons: Sequence[Comparison]) -> list[RankingView]:
        """The ranking by what methods are judged by, and the paper's two rankings, over one or several data sets."""
        views = []
        by_scores = rank_by_scores(comparisons)
        if by_scores is not None:
            remark = ranking_remark(comparisons[0], by_scores) if len(comparisons) == 1 else ""
            views.append(self._ranking("By", [by_scores], [score_ranks_table(comparisons)], remark))
        voxels = ranked_voxels(comparisons)
        if voxels not in POOLED:
            rankings = [rank_methods(comparisons, scheme, voxels=voxels) for scheme in SCHEMES]
            tables = [ranks_table(comparisons, scheme, voxels) for scheme in SCHEMES]
            views.append(self._ranking("The paper's: by", rankings, tables))
        return views

    def _ranking(self, prefix: str, rankings: list[Ranking], tables: list[Table], remark: str = "") -> RankingView:
        *metrics, last = rankings[0].metrics
        pictures = self.pictures(map(stability_panel, rankings))
        return RankingView(f"{prefix} {', '.join(metrics)} and {last}", tables, pictures, remark)
