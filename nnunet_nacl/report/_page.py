"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.report import _panels as panels
from nnunet_nacl.report import _tables as tables
from nnunet_nacl.report._comparison import POOLED, Comparison, Method, Results, compare_all
from nnunet_nacl.report._metrics import DICE, judging_metrics, number_text, paper_metrics, place
from nnunet_nacl.report._pictures import case_views, check_images, confidence_colors, legend
from nnunet_nacl.report._published import published_method
from nnunet_nacl.report._reliability import judge
from nnunet_nacl.report._results import evaluate_again_command, evaluate_command, printable, short_names
from nnunet_nacl.report._review import judged_methods
from nnunet_nacl.report._statistics import (
    SCHEMES,
    Ranking,
    differences,
    order_by,
    rank_by_scores,
    rank_methods,
    ranked_voxels,
)
from nnunet_nacl.report._study import Study, drawn_study
from nnunet_nacl.report.plots._style import Panel, color_of, draw_panels, glyph_of, to_svg

_SWITCHED = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_ALL_NAMED = 4
"""So many methods are all named in the answer; of more, the baseline, the best and every calibrated one."""


def write_report(
    results: Mapping[str, Results],
    file: str | Path,
    *,
    baseline: str | None = None,
    images: str | Path | None = None,
    command: str = "",
    study: Study | None = None,
    paper: bool = False,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> None:
    """Write the page that compares methods. Words that all names begin or end with are left out, which it says.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        file: the page.
        baseline: the method that the others are compared with; by default each data set's first.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        command: the command line that makes this page, to be shown on it.
        study: variants along a setting; its plots begin each data set's section.
        paper: show the paper's published values beside ours.
        overwrite: replace a file that exists.
        ignore_geometry: show cases though the spacing, origin or direction of their files differ.

    Raises:
        FileNotFoundError: ``images`` is no such folder.
        OSError: the page cannot be written, or exists.
        ValueError: nothing to compare, with the reason.
    """
    file = check_output(file, overwrite=overwrite)
    check_images(images)
    full = [name for methods in results.values() for name in methods]
    short = dict(zip(full, full, strict=True)) if study is not None else short_names(full)
    renamed: dict[str, dict[str, FolderResult]] = {
        dataset: {short[name]: result for name, result in methods.items()} for dataset, methods in results.items()
    }
    comparisons = compare_all(renamed, baseline=short.get(baseline or "", baseline))
    page = _Page(images, study, ignore_geometry=ignore_geometry)
    with tqdm(comparisons, desc="drawing", unit="data set") as progress:
        sections = [page.section(comparison) for comparison in progress]
    voxel_sets = [one for one in _SWITCHED if any(one in comparison.voxels for comparison in comparisons)]
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        place=place, csv=tables.to_csv, latex=tables.to_latex, number=number_text, p=tables.p_text
    )
    html = environment.get_template("report.html.j2").render(
        sections=sections,
        together=page.rankings(comparisons) if len(comparisons) > 1 and _same_methods(comparisons) else [],
        published=_published(comparisons, {name: one for one, name in short.items()}) if paper else [],
        datasets=[comparison.dataset for comparison in comparisons],
        full_names={name: one for one, name in short.items() if name != one},
        command=command,
        version=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        voxel_sets=voxel_sets,
        confidence_colors=[f"rgb{color[:3]}" for color in confidence_colors()],
    )
    with whole_file(file) as partial:
        partial.write_text(printable(html), encoding="utf-8", errors="replace")


def _published(comparisons: Sequence[Comparison], full: Mapping[str, str]) -> list[tables.Table]:
    """The paper's values beside ours, of data sets with methods that it has; it knows them by their full names."""
    named = [
        replace(
            one, methods=[replace(m, name=full[m.name]) for m in one.methods], baseline=full[one.baseline], cache={}
        )
        for one in comparisons
    ]
    known = [tables.published_table(one) for one in named if any(map(published_method, one.names))]
    return known or [tables.published_table(one) for one in named]


def _same_methods(comparisons: Sequence[Comparison]) -> bool:
    alike = {tuple(sorted(one.names)) for one in comparisons}
    return len(alike) == 1 and bool(set.intersection(*(set(one.voxels) for one in comparisons)))


class _Page:
    """Makes the parts of a page; numbers its plots, so that no two share an id."""

    def __init__(self, images: str | Path | None, study: Study | None, *, ignore_geometry: bool) -> None:
        self._number, self._images, self._study, self._ignore_geometry = 0, images, study, ignore_geometry

    def pictures(self, drawings: Iterable[Panel]) -> list[Markup]:
        drawn = []
        for panel in drawings:
            self._number += 1
            svg = to_svg(draw_panels([panel]), description=panel.description, prefix=f"f{self._number}-")
            drawn.append(Markup(svg))  # noqa: S704 - Matplotlib and to_svg escape texts
        return drawn

    def section(self, comparison: Comparison) -> dict[str, Any]:
        """Everything that is shown of a data set."""
        main, names, judging = comparison.main, comparison.names, judging_metrics(comparison)
        several, many = len(names) > 1, len(names) > 2
        judged = judged_methods(comparison)
        folded = [tables.differences_table(comparison)] if several else []
        folded += (
            [tables.paper_table(comparison), tables.expected_table(comparison)] if paper_metrics(comparison) else []
        )
        shared, own = _settings(comparison.methods)
        return {
            "comparison": comparison,
            "main": main,
            "num_cases": len(comparison.cases),
            **answer(comparison),
            "curves": self.pictures(panels.overlaid_panels(comparison, main)),
            "study": None if self._study is None else self._of_study(comparison, self._study),
            "methods": tables.methods_table(comparison),
            "folded": folded if judging else folded[:1],
            "structures": tables.structures_table(comparison),
            "sets": [self._voxel_set(comparison, voxels) for voxels in _SWITCHED if voxels in comparison.voxels],
            "tradeoff": self.pictures(panels.tradeoff_panels(comparison, legend=False)) if several else [],
            "radar": self.pictures([panels.radar_panel(comparison, main)]) if many else [],
            "rankings": self.rankings([comparison]) if many else [],
            "judged": judged,
            "judged_table": tables.judged_table(judged) if judged.methods else None,
            "judged_pictures": self.pictures(panels.judged_panels(judged)) if judged.methods else [],
            "case_views": case_views(comparison, main, images=self._images, ignore_geometry=self._ignore_geometry),
            "cases": tables.cases_table(comparison),
            "label_legend": legend(comparison.methods[0].result.labels),
            "method_legend": [(glyph_of(names, name), color_of(names, name), name) for name in names],
            "settings": shared,
            "own_settings": own,
            "commands": [evaluate_command(method.result) for method in comparison.methods],
        }

    def _of_study(self, comparison: Comparison, study: Study) -> dict[str, Any]:
        drawn = drawn_study(study, comparison)
        pictures = self.pictures(panels.study_panels(comparison, study))
        return {"title": study.title, "drawn": drawn, "missing": study.missing(comparison), "pictures": pictures}

    def _voxel_set(self, comparison: Comparison, voxels: str) -> dict[str, Any]:
        # Not over the image: its diagrams show little but the large and easy background.
        drawn = voxels != "image" or comparison.main == "image"
        overlaid = drawn and voxels != comparison.main
        return {
            "voxels": voxels,
            "overlaid": self.pictures(panels.overlaid_panels(comparison, voxels)) if overlaid else [],
            "single": self.pictures(panels.reliability_panels(comparison, voxels)) if drawn else [],
            "classes": self.pictures(panels.class_panels(comparison, voxels, legend=False)) if drawn else [],
            "scores": tables.scores_table(comparison, voxels),
            "by_label": voxels not in POOLED,
            "num_classes": len(comparison.classes),
            "regions_left_out": max(len(comparison.classes) - panels.MAX_REGIONS, 0) if comparison.has_regions else 0,
        }

    def rankings(self, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
        """The ranking by what methods are judged by, and the paper's two rankings, over one or several data sets."""
        views, by_scores, voxels = [], rank_by_scores(comparisons), ranked_voxels(comparisons)
        if by_scores is not None:
            views.append(self._ranking([by_scores], [tables.score_ranks_table(comparisons)], by_paper=False))
        if voxels not in POOLED:
            rankings = [rank_methods(comparisons, scheme, voxels=voxels) for scheme in SCHEMES]
            shown = [tables.ranks_table(comparisons, scheme, voxels) for scheme in SCHEMES]
            views.append(self._ranking(rankings, shown, by_paper=True))
        return views

    def _ranking(self, rankings: list[Ranking], shown: list[tables.Table], *, by_paper: bool) -> dict[str, Any]:
        pictures = self.pictures(map(panels.stability_panel, rankings))
        return {"metrics": rankings[0].metrics, "by_paper": by_paper, "tables": shown, "pictures": pictures}


def answer(comparison: Comparison) -> dict[str, Any]:
    """What the first screen says: judgements, who is told apart from whom, and what to do next."""
    judging = judging_metrics(comparison)
    order = order_by(comparison, judging[0]) if judging else None
    names = order.names if order is not None and order.names else comparison.names
    calibrated = [method.name for method in comparison.methods if method.posthoc is not None]
    named = names
    if len(names) > _ALL_NAMED:
        named = [name for name in names if name in {comparison.baseline, names[0], *calibrated}]
    judgements = {name: judge(comparison, name, judging[-1].voxels) for name in named} if judging else {}
    lacking = [m for m in comparison.methods if not set(POOLED) <= set(m.origin.settings.voxels)]
    off = [name for name, one in judgements.items() if one.says in {"too sure", "not sure enough"}]
    before = {name: comparison.before(comparison[name]) for name in calibrated}
    first = comparison[next((name for name in off if name not in calibrated), names[0])]
    return {
        "judgements": [one for one in judgements.values() if not np.isnan(one.error)],
        "before": {name: one for name, one in before.items() if one is not None},
        "order": order,
        "judge": judging[0] if judging else None,
        "error_set": judging[-1].voxels if judging else comparison.main,
        "dice_gap": _dice_gap(comparison, names),
        "lacking": {method.name: evaluate_again_command(method.result) for method in lacking},
        "to_calibrate": [name for name in off if name not in calibrated and name not in before.values()],
        "next_folder": first.origin.places[0].pred_folder,
        "next_truth": first.origin.places[0].gt_folder,
    }


def _dice_gap(comparison: Comparison, names: Sequence[str]) -> Any:
    """The best method's difference in Dice to the baseline; None if it is the baseline."""
    others = [name for name in names if name != comparison.baseline]
    return differences(comparison, DICE)[names[0]] if others and names[0] != comparison.baseline else None


def _settings(methods: Sequence[Method]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Settings and versions that all methods share, and for each method its own."""
    of_methods = {}
    for method in methods:
        found = {key: _text(value) for key, value in method.origin.settings_json().items()}
        found["versions"] = _text(method.result.versions)
        of_methods[method.name] = found
    first = next(iter(of_methods.values()))
    shared = {key: text for key, text in first.items() if all(one.get(key) == text for one in of_methods.values())}
    own = {name: {k: text for k, text in found.items() if k not in shared} for name, found in of_methods.items()}
    return shared, own


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(f"({_text(one)})" if isinstance(one, list | tuple) else str(one) for one in value)
    return "–" if value is None else str(value)
