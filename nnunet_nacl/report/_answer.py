"""What the first screen says: verdicts, which differences are significant, and what to do next."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnunet_nacl.evaluation import Origin, evaluate_command, model_options
from nnunet_nacl.metrics import LABEL_FREE, Voxels
from nnunet_nacl.report._comparison import Comparison, View
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.report._reading import calibrated_mark
from nnunet_nacl.report._reliability import Reliability, Verdict
from nnunet_nacl.report._statistics import Difference, MetricOfMethods

# So many methods are all named in the answer; of more, the baseline, the best and every calibrated one
_ALL_NAMED = 4
_MADE_BY = re.compile(r"_(calibrated|trained)$")
_OFF = {Verdict.TOO_SURE, Verdict.NOT_SURE_ENOUGH, Verdict.MIXED}


@dataclass(frozen=True)
class AgainstBaseline:
    """A method compared with the baseline.

    ``dice`` is the difference in Dice, None if there is none; ``better`` and ``worse`` are the calibration metrics that
    differ significantly.
    """

    name: str
    dice: Difference | None
    better: list[Metric]
    worse: list[Metric]


@dataclass(frozen=True)
class Answer:
    """What the first screen says.

    Attributes:
        assessments: of the methods that are named; of many, the baseline, the best and the calibrated ones.
        error_set: the voxel set of their ECE.
        before: calibrated method -> the method before calibration.
        judged: the metric that orders the methods, if it was evaluated, and which differences in it are significant.
        against_baseline: the named methods, compared with the baseline.
        lacking: method -> command that evaluates it over near and image.
        to_calibrate: badly calibrated methods, neither calibrated nor with a calibrated twin here.
        still_off: badly calibrated methods that are calibrated.
        to_do: commands that calibrate each of ``to_calibrate`` by a fit of its own, and evaluate the result.
    """

    assessments: list[Reliability]
    error_set: Voxels
    before: dict[str, str]
    judged: MetricOfMethods | None
    against_baseline: list[AgainstBaseline]
    lacking: dict[str, str]
    to_calibrate: list[str]
    still_off: list[str]
    to_do: list[str]


def answer(comparison: Comparison) -> Answer:
    """Assessments, which differences are significant, and what to do next."""
    view = View(comparison)
    names = comparison.names
    origins = comparison.origins
    judged = None
    error_set = view.judging_set or view.main
    assessments = []
    if judging := view.judging_metrics:  # Without near and image, nothing is judged
        judged = comparison.by_metric[judging[0]]
        names = judged.order.names or names
        assessments = [comparison.reliability[error_set][name] for name in names]
    before = _made_from(origins)
    calibrated = calibrated_methods(origins)
    off = [one.name for one in assessments if one.verdict in _OFF]
    has_calibrated = {*calibrated, *before.values(), *_twins(origins)}
    to_calibrate = [name for name in off if name not in has_calibrated]
    named = names
    if len(names) > _ALL_NAMED:
        named = [name for name in names if name in {comparison.baseline, names[0], *calibrated}]
    return Answer(
        assessments=[one for one in assessments if one.name in named and not np.isnan(one.error)],
        error_set=error_set,
        before=before,
        judged=judged,
        against_baseline=[one for one in _against_baseline(view) if one.name in named],
        lacking={
            name: evaluate_command(result.origin, result.file)
            for name, result in comparison.results.items()
            if not set(LABEL_FREE) <= set(result.voxels)
        },
        to_calibrate=to_calibrate,
        still_off=[name for name in off if name in calibrated],
        to_do=[line for name in to_calibrate for line in _calibrating(name, origins[name])],
    )


def _calibrating(name: str, origin: Origin) -> list[str]:
    """The commands that fit a method's calibration, apply it, and evaluate the result.

    Of validation cases, those of the model, which holds them out; fold all has none.
    """
    model = model_options(origin)
    if model and "all" not in model:
        return [
            shlex.join(["nnunet_nacl", "calibrate", *model, "--npz"]),
            shlex.join(["nnunet_nacl", "evaluate", *model, "--calibrated"]),
        ]
    fit = f"fit_{name}.json"
    fitted_to = ["VALIDATION_LABELS", f"VALIDATION_PREDICTIONS_OF_{name}"]
    lines = [shlex.join(["nnunet_nacl", "calibrate", *fitted_to, "-o", fit])]
    for pair in origin.folders:
        calibrated = f"{pair.pred_folder}_calibrated"
        lines += [
            shlex.join(["nnunet_nacl", "apply", fit, pair.pred_folder, "-o", calibrated]),
            shlex.join(["nnunet_nacl", "evaluate", pair.gt_folder, calibrated]),
        ]
    return lines


def _made_from(origins: Mapping[str, Origin]) -> dict[str, str]:
    """Calibrated method -> the method before calibration, if that is here, by the record in the folder."""
    method_of = {origin.pred_folders[0].resolve(): name for name, origin in origins.items()}
    before = {}
    for name, origin in origins.items():
        mark = calibrated_mark(origin)
        if mark is not None and mark.source.resolve() in method_of:
            before[name] = method_of[mark.source.resolve()]
    return before


def calibrated_methods(origins: Mapping[str, Origin]) -> set[str]:
    """Methods that are known to be calibrated: by the record in their folder, or by the folders' names.

    Of what a calibrated checkpoint predicted the names are the only source: nnU-Net does not record which checkpoint
    predicted. ``X_calibrated`` tells below the folder that all methods share; above it, where it may be the name of a
    user's study, ``predictions_calibrated`` alone does.
    """
    parts = _own_parts(origins)
    return {
        name
        for name, origin in origins.items()
        if calibrated_mark(origin) is not None
        or "predictions_calibrated" in origin.pred_folders[0].parts
        or any(part.endswith("_calibrated") for part in parts[name])
    }


def _twins(origins: Mapping[str, Origin]) -> set[str]:
    """Methods whose folder differs from another one in ``_calibrated`` or ``_trained`` alone: one is calibrated."""
    parts = _own_parts(origins)
    stem_of = {own: tuple(_MADE_BY.sub("", part) for part in own) for own in parts.values()}
    num_folders = Counter(stem_of.values())
    return {name for name, own in parts.items() if num_folders[stem_of[own]] > 1}


def _own_parts(origins: Mapping[str, Origin]) -> dict[str, tuple[str, ...]]:
    """Method -> its folder's path below the folder that all methods share."""
    folders = {name: origin.pred_folders[0].resolve() for name, origin in origins.items()}
    shared = os.path.commonpath([folder.parent for folder in folders.values()])
    return {name: folder.relative_to(shared).parts for name, folder in folders.items()}


def _against_baseline(view: View) -> list[AgainstBaseline]:
    """The other methods by the metrics that judge calibration, and by the paper's."""
    metrics = dict.fromkeys(view.judging_metrics + view.paper_metrics)
    by_metric = view.comparison.by_metric
    found = []
    for name, dice in by_metric[DICE].differences.items():
        gaps = {metric: by_metric[metric].differences[name] for metric in metrics}
        told = [metric for metric in metrics if gaps[metric].is_told_apart()]
        better = [metric for metric in told if (gaps[metric].value > 0) == metric.higher_is_better]
        worse = [metric for metric in told if metric not in better]
        found.append(AgainstBaseline(name, None if np.isnan(dice.value) else dice, better, worse))
    return found
