"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl.evaluation import Folders
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import METRICS, Voxels
from nnunet_nacl.pages import write_page
from nnunet_nacl.report import _panels as panels
from nnunet_nacl.report import _tables as tables
from nnunet_nacl.report._comparison import POOLED, Comparison, Method, Results, compare_all
from nnunet_nacl.report._metrics import (
    judging_metrics,
    number_text,
    paper_metrics,
    titles_text,
    voxels_text,
)
from nnunet_nacl.report._pictures import case_views, confidence_colors, legend
from nnunet_nacl.report._published import published_data_set, published_method
from nnunet_nacl.report._reliability import Judgement, Verdict, judge
from nnunet_nacl.report._results import calibrated_by, evaluate_command
from nnunet_nacl.report._review import read_reviews
from nnunet_nacl.report._statistics import (
    AgainstBaseline,
    Order,
    against_baseline,
    all_rankings,
    order_by,
)
from nnunet_nacl.report._study import Study
from nnunet_nacl.report.plots._methods import dice_scatter, rank_heatmap
from nnunet_nacl.report.plots._style import Panel, draw_panels, to_svg
from nnunet_nacl.typing import Record

_SWITCHED: tuple[Voxels, ...] = ("near", "foreground", "union", "image")
"""Voxel sets in the order of the page's switch."""
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'
_CALIBRATED = r"_?(calibrated|trained)"
"""Folder names before and after the calibration of a checkpoint differ by these words: nnU-Net does not record which
checkpoint predicted."""
# So many methods are all named in the answer; of more, the baseline, the best and every calibrated one
_ALL_NAMED = 4


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and _GENERATOR in file.read_bytes()


def write_report(
    results: Mapping[str, Results],
    file: str | Path,
    *,
    images: str | Path | None = None,
    command: str = "",
    study: Study | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods, with the paper's published values where the paper has the data and methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        command: the command line that makes this page and is shown on it.
        study: variants along a setting; its plots begin each data set's section.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    if images is not None:
        images = Path(images)
        if not images.is_dir():
            raise FileNotFoundError(f"images: {images} is not a folder.")
    comparisons = compare_all(results)
    sections = [
        _section(comparison, images, study)
        for comparison in tqdm(comparisons, desc="drawing", unit="data set")
    ]
    content = {
        "sections": sections,
        "together": _together(comparisons),
        "published": [
            tables.published_table(comparison)
            for comparison in comparisons
            if published_data_set(comparison.dataset)
            and any(map(published_method, comparison.names))
        ],
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
    write_page(file, "nnunet_nacl.report", "report.html.j2", content, filters)


def _of_shared_methods(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of the methods that all data sets have; none if there are fewer than two."""
    names = set.intersection(*(set(comparison.names) for comparison in comparisons))
    if len(names) < 2:
        return []
    found = []
    for comparison in comparisons:
        methods = [method for method in comparison.methods if method.name in names]
        found.append(replace(comparison, methods=methods, baseline=methods[0].name))
    return found


def _pictures(drawings: Iterable[Panel]) -> list[Markup]:
    # Matplotlib and to_svg escape texts.
    return [Markup(to_svg(draw_panels([drawing]))) for drawing in drawings]  # noqa: S704


def _section(comparison: Comparison, images: Path | None, study: Study | None) -> Record:
    """Everything that is shown of a data set."""
    reviews = read_reviews(comparison)
    section: Record = {
        "comparison": comparison,
        "answer": answer(comparison),
        "curves": _pictures(panels.reliability_panels(comparison, overlaid=True)),
        "study": study,
        "study_pictures": _pictures(panels.study_panels(comparison, study) if study else []),
        "methods": tables.methods_table(comparison),
        "paper": None,
        "folded": [tables.structures_table(comparison)],
        "sets": [
            _voxel_set(comparison, voxels) for voxels in _SWITCHED if voxels in comparison.voxels
        ],
        "tradeoff": [],
        "radar": [],
        "rankings": [],
        "reviews": reviews,
        "review_table": tables.review_table(reviews) if reviews.judgements else None,
        "review_pictures": _pictures(
            partial(dice_scatter, reviews, judgement) for judgement in reviews.judgements
        ),
        "case_views": [
            {**view, "curves": _case_curves(comparison, view)}
            for view in case_views(comparison, images)
        ],
        "cases": tables.cases_table(comparison),
        "label_legend": legend(comparison.methods[0].result.meaning),
        "settings": {method.name: _settings(method) for method in comparison.methods},
        "commands": [evaluate_command(method.result) for method in comparison.methods],
    }
    if len(comparison.names) > 1:
        section["folded"].append(tables.differences_table(comparison))
        section["tradeoff"] = _pictures(panels.tradeoff_panels(comparison))
    if len(comparison.names) > 2:
        section["radar"] = _pictures(panels.radar_panels(comparison))
        section["rankings"] = _rankings([comparison])
    if judging_metrics(comparison) and paper_metrics(comparison):
        section["paper"] = tables.paper_table(comparison, expected=True)
    return section


def _case_curves(comparison: Comparison, view: Record) -> list[Markup]:
    """The reliability of a case whose pictures are shown."""
    if not view["slices"]:
        return []
    return _pictures(panels.case_reliability_panels(comparison, view["name"]))


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
        "overlaid": _pictures(overlaid),
        "single": _pictures(single),
        "scores": tables.scores_table(comparison, voxels),
        "by_label": voxels not in POOLED,
    }


def _together(comparisons: Sequence[Comparison]) -> Record | None:
    """Ranks and radar plots over several data sets; None if they share no two methods, or no voxel set."""
    alike = _of_shared_methods(comparisons)
    shared = set.intersection(*(set(comparison.voxels) for comparison in comparisons))
    if len(comparisons) < 2 or not alike or not shared:
        return None
    radar: list[Panel] = []
    if len(alike[0].names) > 2:
        radar = [panel for comparison in alike for panel in panels.radar_panels(comparison)]
    return {"rankings": _rankings(alike), "radar": _pictures(radar)}


def _rankings(comparisons: Sequence[Comparison]) -> list[Record]:
    """Ranks by the judging metrics and by the paper's metrics, over one or several data sets."""
    return [
        {
            "table": tables.rank_table(ranking, comparisons),
            "pictures": _pictures([partial(rank_heatmap, ranking)]),
        }
        for ranking in all_rankings(comparisons)
    ]


@dataclass(frozen=True)
class Answer:
    """What the first screen says.

    Attributes:
        judgements: of the methods that are named; of many, the baseline, the best and the calibrated ones.
        error_set: the voxel set of their ECE.
        before: calibrated method -> the method before calibration.
        wide: methods whose near is nearly the whole image.
        order: the methods by the judging metric, and which differences are significant.
        against_baseline: the named methods, compared with the baseline.
        lacking: method -> command that evaluates it over near and image.
        to_calibrate: badly calibrated methods, neither calibrated nor with a calibrated twin here.
        still_off: badly calibrated methods that are calibrated.
        following: folders for the next commands.
    """

    judgements: list[Judgement]
    error_set: Voxels
    before: dict[str, str]
    wide: list[str]
    order: Order | None
    against_baseline: list[AgainstBaseline]
    lacking: dict[str, str]
    to_calibrate: list[str]
    still_off: list[str]
    following: Sequence[Folders]


def answer(comparison: Comparison) -> Answer:
    """Judgements, which differences are significant, and what to do next."""
    order = None
    names = comparison.names
    if judging := judging_metrics(comparison):
        order = order_by(comparison, judging[0])
        names = order.names or names
    folders = {method.name: method.result.origin.folders[0] for method in comparison.methods}
    # Without near and image, nothing is judged
    error_set = next((voxels for voxels in POOLED if voxels in comparison.voxels), comparison.main)
    name_of = {Path(pair.pred_folder).resolve(): name for name, pair in folders.items()}
    calibrated = {
        method.name: mark[1].resolve()
        for method in comparison.methods
        if (mark := calibrated_by(method.result.origin))
    }
    before = {name: name_of[folder] for name, folder in calibrated.items() if folder in name_of}
    named = names
    if len(names) > _ALL_NAMED:
        named = [name for name in names if name in {comparison.baseline, names[0], *calibrated}]
    judgements = [judge(comparison, name, error_set) for name in names] if judging else []
    stems = {name: re.sub(_CALIBRATED, "", pair.pred_folder) for name, pair in folders.items()}
    twins = {name for name, stem in stems.items() if list(stems.values()).count(stem) > 1}
    ours = calibrated.keys() | {
        name for name, pair in folders.items() if "_calibrated" in pair.pred_folder
    }
    off = [
        judgement.name
        for judgement in judgements
        if judgement.verdict in {Verdict.TOO_SURE, Verdict.NOT_SURE_ENOUGH, Verdict.MIXED}
    ]
    to_calibrate = [name for name in off if name not in {*ours, *before.values(), *twins}]
    wide = [name for name in names if comparison[name].result.near_is_wide]
    return Answer(
        judgements=[
            judgement
            for judgement in judgements
            if judgement.name in named and not np.isnan(judgement.error)
        ],
        error_set=error_set,
        before=before,
        wide=wide,
        order=order,
        against_baseline=[
            against_baseline(comparison, name)
            for name in comparison.names
            if name in named and name != comparison.baseline
        ],
        lacking={
            method.name: evaluate_command(method.result)
            for method in comparison.methods
            if not set(POOLED) <= set(method.result.voxels)
        },
        to_calibrate=to_calibrate,
        still_off=[name for name in off if name in ours],
        following=comparison[[*to_calibrate, *names][0]].result.origin.folders,
    )


def _settings(method: Method) -> dict[str, str]:
    origin = method.result.origin
    settings = {**origin.settings_json(), "versions": origin.versions}
    return {
        key: json.dumps(value, ensure_ascii=False).strip('"{}') for key, value in settings.items()
    }
