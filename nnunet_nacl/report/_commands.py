"""The commands that evaluated a result, from its settings."""

import shlex
from pathlib import Path
from typing import Any

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.nnunet import ModelName


def evaluate_command(result: FolderResult) -> str:
    """The ``nnunet_nacl evaluate`` command that gives this result, or one for each folder of merged ones."""
    settings = result.settings
    predicted, references, datasets, plans = (
        _listed(settings[place]) for place in ("pred_folder", "gt_folder", "dataset_json", "plans")
    )
    model = _model_options(predicted)
    if model:
        return _command(model, settings)
    lines = []
    for number, folder in enumerate(predicted):
        words = [references[number % len(references)], folder]
        for option, files, usual in (("-djfile", datasets, "dataset.json"), ("-pfile", plans, "plans.json")):
            file = files[number % len(files)]
            words += [option, file] if file is not None and Path(file) != Path(folder) / usual else []
        lines.append(_command(words, settings))
    return "\n".join(lines)


def _listed(place: Any) -> list[Any]:
    return list(place) if isinstance(place, list) else [place]


def _model_options(folders: list[str]) -> list[str]:
    """``-d -c -tr -p -f`` if the folders are the validation folders of one model."""
    validation = [Path(folder) for folder in folders]
    folder = validation[0].parent.parent
    model = ModelName.of(folder)
    if model is None or any(one.parent.parent != folder or one.name != "validation" for one in validation):
        return []
    folds = [one.parent.name.removeprefix("fold_") for one in validation]
    return ["-d", folder.parent.name, "-c", model.configuration, "-tr", model.trainer, "-p", model.plans, "-f", *folds]


def _command(what: list[str], settings: dict[str, Any]) -> str:
    usual = Settings()
    words = ["nnunet_nacl", "evaluate", *what]
    if tuple(settings["voxels"]) != usual.voxels:
        words += ["--voxels", *settings["voxels"]]
    options = {
        "--bins": "num_bins", "--margin_mm": "margin_mm", "--boundary_mm": "boundary_mm", "--protocol": "protocol",
    }  # fmt: skip
    for option, name in options.items():
        value = settings.get(name, getattr(usual, name))
        if value != getattr(usual, name):
            words += [option, str(value)]
    if settings["surface"]:
        words.append("--surface")
        if settings["tolerance_mm"] != usual.tolerance_mm:
            words += ["--tolerance_mm", str(settings["tolerance_mm"])]
    if settings["part"] is not None:
        part, count = settings["part"]
        words += ["--num_parts", str(count), "--part_id", str(part)]
    return shlex.join(words)
