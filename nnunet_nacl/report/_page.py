"""The page: one self-contained HTML file."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from nnunet_nacl import __version__
from nnunet_nacl.evaluation import VOXEL_SETS
from nnunet_nacl.files import Kind, check_file, check_input, whole_file
from nnunet_nacl.json_files import read_json
from nnunet_nacl.report._comparison import Comparison, Results, compare_all
from nnunet_nacl.report._confidences import confidences_table, judged_methods
from nnunet_nacl.report._formats import Table
from nnunet_nacl.report._metrics import POOLED, judging_metrics, paper_metrics, place
from nnunet_nacl.report._panels import (
    MAX_REGIONS,
    class_panels,
    confidence_panels,
    draw_case,
    paper_rank_panels,
    radar_panels,
    reliability_panels,
    score_rank_panels,
    study_panels,
    tradeoff_panels,
)
from nnunet_nacl.report._published import published_method, published_table
from nnunet_nacl.report._results import evaluate_command
from nnunet_nacl.report._slices import check_images, chosen_cases
from nnunet_nacl.report._statistics import SCHEMES, ranked_voxels
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
from nnunet_nacl.report._verdict import missing_notes, undefined_notes, verdict
from nnunet_nacl.report.plots._style import Panel, draw_panels, to_svg

_PAGE = Kind("a report", re.compile(rb'<meta name="generator" content="nnunet_nacl '))
_LOGIT_PLOTS = {
    "logits_by_class": (
        "mean_logits",
        (
            "Mean absolute logits by true class: what each method's logits are in the voxels of a class, on the same "
            "scale. High bars of another class are most often strongly negative logits."
        ),
    ),
    "max_logits": (
        "max_logits",
        (
            "The largest logit of a voxel over the epochs of the training: in nnU-Net's validation patches; the "
            "darker, the more voxels. The line is the median."
        ),
    ),
}
"""File, its entry of a method in logits.json (null: the method is not in it), caption."""


@dataclass(frozen=True)
class CaseView:
    """A case shown in pictures."""

    name: str
    role: str
    picture: Markup | None
    problems: list[str]


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
    comparisons = compare_all(results, baseline=baseline)
    methods = [method for comparison in comparisons for method in comparison.methods]
    voxel_sets = {voxels for comparison in comparisons for voxels in comparison.voxels}
    page = _Page(images, ignore_geometry=ignore_geometry)
    sections = [page.section(comparison, study) for comparison in comparisons]
    known = [one for one in comparisons if any(map(published_method, one.names))]
    together = page.rankings(comparisons) if len(comparisons) > 1 and _same_methods(comparisons) else None
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["setting"] = _setting_text
    environment.filters["place"] = place
    html = environment.get_template("report.html.j2").render(
        sections=sections,
        together=together,
        published=[published_table(one) for one in known or comparisons] if paper else [],
        datasets=[comparison.dataset for comparison in comparisons],
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
    )
    with whole_file(file, _PAGE, overwrite=overwrite) as partial:
        partial.write_text(html, encoding="utf-8")


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


def _ranking(prefix: str, pictures: list[Markup], tables: list[Table]) -> dict[str, Any]:
    *metrics, last = tables[0].columns[1:-3]  # after these come overall, place and first in resamples
    return {"title": f"{prefix} {', '.join(metrics)} and {last}", "pictures": pictures, "tables": tables}


class _Page:
    """Makes the parts of a page; numbers its plots, so that no two share an id."""

    def __init__(self, images: str | Path | None, *, ignore_geometry: bool) -> None:
        self._number = 0
        self._images, self._ignore_geometry = images, ignore_geometry

    def picture(self, figure: Figure, description: str) -> Markup:
        self._number += 1
        svg = to_svg(figure, description=description, prefix=f"f{self._number}-")
        return Markup(svg)  # noqa: S704 - Matplotlib and to_svg escape texts

    def pictures(self, panels: Sequence[Panel]) -> list[Markup]:
        return [self.picture(draw_panels([panel]), panel.description) for panel in panels]

    def section(self, comparison: Comparison, study: Study | None) -> dict[str, Any]:
        """Everything that is shown of a data set."""
        main = comparison.main
        several = len(comparison.methods) > 1
        # Not over the image: its diagram shows little but the large and easy background.
        drawn = [main, *(one for one in comparison.voxels if one not in {main, "image"})]
        judged, paper = judging_metrics(comparison), paper_metrics(comparison)
        return {
            "dataset": comparison.dataset,
            "verdict": verdict(comparison),
            "notes": [*comparison.notes, *missing_notes(comparison), *undefined_notes(comparison)],
            "study": None if study is None else self._study(comparison, study),
            "methods": methods_table(comparison),
            "paper": paper_table(comparison) if judged and paper else None,
            "differences": differences_table(comparison) if several else None,
            "scores": [scores_table(comparison, voxels) for voxels in comparison.voxels],
            "structures": structures_table(comparison, main),
            "reliability": [self._reliability(comparison, voxels) for voxels in drawn],
            "tradeoff": self.pictures(tradeoff_panels(comparison)) if several else [],
            "radar": self.pictures(radar_panels(comparison, main)) if len(comparison.methods) > 2 else [],
            "rankings": self.rankings([comparison]) if several else None,
            "confidences": self._confidences(comparison),
            "case_views": self._case_views(comparison),
            "cases": cases_table(comparison, main),
            "main": main,
            "has_scores": comparison.has_scores,
            "baseline": comparison.baseline,
            "num_cases": len(comparison.cases),
            "settings": {method.name: method.result.origin.settings_json() for method in comparison.methods},
            "versions": {method.name: method.result.versions for method in comparison.methods},
            "commands": [evaluate_command(method.result) for method in comparison.methods],
            "has_regions": comparison.has_regions,
            "num_bins": comparison.methods[0].result.settings.num_bins,
        }

    def _study(self, comparison: Comparison, study: Study) -> dict[str, Any]:
        pictures = self.pictures(study_panels(comparison, study))
        caption = study_caption(comparison, study, drawn=bool(pictures))
        return {"title": study.title, "caption": caption, "pictures": pictures}

    def _reliability(self, comparison: Comparison, voxels: str) -> dict[str, Any]:
        classes = self.pictures(class_panels(comparison, voxels))
        return {
            "voxels": voxels,
            "top": self.pictures(reliability_panels(comparison, voxels)),
            "by_label": voxels not in POOLED,
            "has_expected": any(one.bins(voxels, "expected_top") is not None for one in comparison.methods),
            "classes": classes,
            "num_classes": len(comparison.classes),
            "regions_left_out": max(len(comparison.classes) - MAX_REGIONS, 0) if comparison.has_regions else 0,
        }

    def _confidences(self, comparison: Comparison) -> dict[str, Any]:
        judged = judged_methods(comparison)
        shown = bool(judged.methods)
        return {
            "table": confidences_table(judged) if shown else None,
            "pictures": self.pictures(confidence_panels(judged)) if shown else [],
            "num_cases": len(judged.cases),
            "missing": judged.missing,
            "problems": judged.problems,
            "commands": judged.commands,
        }

    def rankings(self, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
        """The ranking by what methods are judged by, and the paper's two rankings, over one or several data sets."""
        rankings = []
        by_scores = self.pictures(score_rank_panels(comparisons))
        if by_scores:
            rankings.append(_ranking("By", by_scores, [score_ranks_table(comparisons)]))
        voxels = ranked_voxels(comparisons)
        if voxels not in POOLED:
            pictures = self.pictures(paper_rank_panels(comparisons, voxels))
            tables = [ranks_table(comparisons, scheme, voxels) for scheme in SCHEMES]
            rankings.append(_ranking("The paper's: by", pictures, tables))
        return rankings

    def _case_views(self, comparison: Comparison) -> list[CaseView]:
        views = []
        for role, name in chosen_cases(comparison, comparison.main).items():
            try:
                figure, description, missing = draw_case(
                    comparison, name, comparison.main, images=self._images, ignore_geometry=self._ignore_geometry
                )
            except Exception as error:  # noqa: BLE001 - damaged files of a case must not prevent the page
                views.append(CaseView(name, role, None, [str(error)]))
                continue
            views.append(CaseView(name, role, self.picture(figure, description), missing))
        return views


@dataclass(frozen=True)
class LogitPlot:
    """A plot of ``nnunet_nacl logits``, as the page shows it.

    Attributes:
        source: a ``data:`` address.
        caption: what it shows.
        description: for readers who cannot see it.
    """

    source: str
    caption: str
    description: str


@dataclass(frozen=True)
class _LogitNumbersOfMethod:
    mean_logits: Any
    max_logits: Any


@dataclass(frozen=True)
class _LogitNumbers:
    """What we use of ``logits.json``."""

    fold: str | int
    methods: dict[str, _LogitNumbersOfMethod]


def read_logit_plots(folder: str | Path) -> list[LogitPlot]:
    """The plots in a folder that ``nnunet_nacl logits`` has written.

    Raises:
        FileNotFoundError: the folder is something else.
        ValueError: ``logits.json`` is damaged.
    """
    folder = Path(folder)
    numbers, first = folder / "logits.json", folder / "logits_by_class.svg"
    for file in (numbers, first):
        check_input(file, ": expected a folder that nnunet_nacl logits has written.")
    content = read_json(numbers, _LogitNumbers, "file that nnunet_nacl logits has written")
    shown = {
        stem: ", ".join(name for name, method in content.methods.items() if getattr(method, key) is not None)
        for stem, (key, _) in _LOGIT_PLOTS.items()
    }
    files = {stem: folder / f"{stem}.svg" for stem in _LOGIT_PLOTS}
    return [
        LogitPlot(
            f"data:image/svg+xml;base64,{base64.b64encode(files[stem].read_bytes()).decode()}",
            caption,
            f"{caption.partition(':')[0]}: {shown[stem]}, fold {content.fold}",
        )
        for stem, (_, caption) in _LOGIT_PLOTS.items()
        if files[stem].is_file()
    ]
