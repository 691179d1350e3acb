"""Several models side by side: plots and numbers in a folder."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.files import check_input, check_output, write_json
from nnunet_nacl.logits._measures import max_logit_history, mean_logits
from nnunet_nacl.logits._plots import draw_max_logits, draw_mean_logits
from nnunet_nacl.nnunet import CHECKPOINTS, Checkpoint, ModelName, fold_folder, furthest_checkpoint
from nnunet_nacl.report.plots import save_plot


def compare_logits(
    model_folders: Sequence[str | Path],
    output: str | Path,
    *,
    fold: int | str = 0,
    names: Sequence[str] | None = None,
    images: str | Path | None = None,
    labels: str | Path | None = None,
    device: str = "cpu",
    checkpoint: Checkpoint = "final",
    overwrite: bool = False,
) -> dict[str, str]:
    """Write ``logits_by_class`` and ``max_logits``, each as SVG and PNG, and ``logits.json`` with all numbers.

    Of each model the same fold; by default its validation cases, else labelled ``images``. Methods are named by their
    trainers, less ``nnUNetTrainer``, or by ``names``. ``checkpoint`` is that of the mean logits; the history is that of
    the whole training. ``overwrite`` replaces files of these names.

    Returns:
        Method -> why it has no history of the maximum logit. Such methods are left out of ``max_logits``, which is not
        drawn if there is no other.

    Raises:
        FileExistsError: ``output`` exists.
        ValueError: names do not fit, or two methods would have the same one; further errors as :func:`mean_logits`.
    """
    models = _named(model_folders, names)
    output = check_output(output, overwrite=overwrite)  # before hours of work
    for folder in models.values():
        check_input(fold_folder(folder, fold) / CHECKPOINTS[checkpoint])
    means, histories, without = {}, {}, {}
    for name, folder in models.items():
        file, content = furthest_checkpoint(folder, fold)
        try:
            histories[name] = max_logit_history(file, content)
        except ValueError as error:
            without[name] = str(error)
        means[name] = mean_logits(
            folder,
            fold,
            images=images,
            labels=labels,
            device=device,
            checkpoint=checkpoint,
            content=content if file.name == CHECKPOINTS[checkpoint] else None,
        )
    plots = {"logits_by_class": draw_mean_logits(means)}
    if histories:
        plots["max_logits"] = draw_max_logits(histories)
    numbers = {
        "fold": fold,
        "checkpoint": checkpoint,
        "images": images,
        "labels": labels,
        "methods": {
            name: {
                "model_folder": folder,
                "mean_logits": asdict(means[name]),
                "max_logits": asdict(histories[name]) if name in histories else None,
            }
            for name, folder in models.items()
        },
    }
    output.mkdir(exist_ok=True)
    for stem, figure in plots.items():
        for ending in ("svg", "png"):
            save_plot(figure, output / f"{stem}.{ending}")
    write_json(output / "logits.json", _plain(numbers))
    return without


def _named(model_folders: Sequence[str | Path], names: Sequence[str] | None) -> dict[str, Path]:
    if names is not None and len(names) != len(model_folders):
        raise ValueError(f"names: expected one for each of the {len(model_folders)} models; got {len(names)}.")
    models: dict[str, Path] = {}
    for number, folder in enumerate(map(Path, model_folders)):
        model = ModelName.of(folder)
        trainer = folder.resolve().name if model is None else model.trainer
        name = (trainer.removeprefix("nnUNetTrainer") or trainer) if names is None else names[number]
        if name in models:
            raise ValueError(f"{models[name]} and {folder} would both be called {name!r}; name them with --names.")
        models[name] = folder
    return models


def _plain(value: Any) -> Any:
    """As JSON holds it, with null for NaN."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(entry) for entry in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value
