"""The commands that make a result again, or go on from it, for errors and reports."""

import shlex
from dataclasses import replace
from pathlib import Path

from nnunet_nacl.evaluation._origin import USUAL_SETTINGS, Origin
from nnunet_nacl.evaluation._paths import default_summary
from nnunet_nacl.nnunet import dataset_number, names_in, nnunet_folder, options_of_folds


def evaluate_command(
    origin: Origin, summary: Path | None = None, *, overwrite: bool = False
) -> str:
    """The ``nnunet_nacl evaluate`` command that gives a result of this origin, into its summary.

    Folds of a model in ``nnUNet_results`` are evaluated together into their summary. Of other folders that were merged,
    and of all without a summary, each has a line, into its default summary. The command has no options for ``voxels``
    and ``tolerance_mm``, which Python alone sets: of a result with others than the defaults, it counts all voxel sets,
    and NSD within 1 mm.

    Args:
        origin: what the result was computed from.
        summary: the file that the result was written to or read from, if any.
        overwrite: replace a summary that cannot be read, wherever it lies.
    """
    # nnU-Net's gt_segmentations also has the cases of folds that were not evaluated
    truths = {Path(pair.gt_folder).name for pair in origin.folders}
    model = model_options(origin) if truths == {"gt_segmentations"} else []
    if len(origin.folders) > 1 and (summary is None or not model):
        each = [replace(origin, folders=(pair,)) for pair in origin.folders]
        return "\n".join(evaluate_command(one, overwrite=overwrite) for one in each)
    pair = origin.folders[0]
    chosen = model or [pair.gt_folder, pair.pred_folder]
    command = ["nnunet_nacl", "evaluate", *chosen, *_evaluate_options(origin)]
    if overwrite:
        command.append("--overwrite")
    if summary is not None and summary.absolute() != default_summary(origin.pred_folders):
        command += ["-o", str(summary.absolute())]
    return shlex.join(command)


def review_command(origin: Origin) -> str:
    """The ``nnunet_nacl review`` command that judges these predictions; a line for each folder."""
    commands = []
    for pair in origin.folders:
        truth = ["-gt", pair.gt_folder] if pair.gt_folder else []
        commands.append(shlex.join(["nnunet_nacl", "review", pair.pred_folder, *truth]))
    return "\n".join(commands)


def _evaluate_options(origin: Origin) -> list[str]:
    """The options of ``nnunet_nacl evaluate`` that differ from its defaults."""
    settings = origin.settings
    usual = USUAL_SETTINGS
    options = [] if settings.surface else ["--no_surface"]
    if settings.num_bins != usual.num_bins:
        options += ["--bins", str(settings.num_bins)]
    if settings.margin_mm != usual.margin_mm:
        options += ["--margin", str(settings.margin_mm).removesuffix(".0")]
    if settings.protocol != usual.protocol:
        options += ["--protocol", settings.protocol]
    if settings.ignore_geometry:
        options.append("--ignore_geometry")
    return options


def model_options(origin: Origin) -> list[str]:
    """``-d -c -tr -p -f`` of the model in ``nnUNet_results`` whose folds were validated in these folders, if any.

    For what ``calibrate --npz`` has written, with ``--calibrated``.
    """
    folders = origin.pred_folders
    kinds = {folder.name for folder in folders}
    models = {folder.parent.parent for folder in folders}
    names = names_in(folders[0].parent.parent)
    is_of_folds = kinds in ({"validation"}, {"validation_calibrated"})
    if not is_of_folds or len(models) > 1 or "dataset" not in names:
        return []
    try:
        results = nnunet_folder("nnUNet_results").resolve()
    except RuntimeError:  # it is not set
        return []
    if models.pop().resolve().parent.parent != results:
        return []
    options = options_of_folds(
        dataset_number(names["dataset"]),
        names["configuration"],
        trainer=names["trainer"],
        plans=names["plans"],
        folds=[folder.parent.name.removeprefix("fold_") for folder in folders],
    )
    return [*options, "--calibrated"] if kinds == {"validation_calibrated"} else options
