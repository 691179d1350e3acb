"""Several models side by side: plots and numbers in a folder."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.files import check_folder, whole_folder
from nnunet_nacl.logits._history import MaxLogitHistory, max_logit_history
from nnunet_nacl.logits._means import LogitMeans, mean_logits
from nnunet_nacl.logits._plots import draw_max_logits, draw_mean_logits
from nnunet_nacl.nnunet import Checkpoint, ModelName, check_no_cascade
from nnunet_nacl.report.plots import save_plot

_NUMBERS_NAME = "logits.json"


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

    Args:
        model_folders: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG`` each.
        output: the folder; it appears whole or not at all.
        fold: of each model.
        names: of the methods, one a model; by default the trainer's, less ``nnUNetTrainer``.
        images: see :func:`mean_logits`.
        labels: see :func:`mean_logits`.
        device: see :func:`mean_logits`.
        checkpoint: of the mean logits, see :func:`mean_logits`; the history is that of the whole training.
        overwrite: replace an earlier such folder, once the new one is whole.

    Returns:
        Method -> why it has no history of the maximum logit. Such methods are left out of ``max_logits``, which is not
        drawn if there is no other.

    Raises:
        FileExistsError: ``output`` exists, or is to be replaced and is no such folder.
        FileNotFoundError: see :func:`mean_logits`.
        RuntimeError: see :func:`mean_logits`.
        ValueError: names do not fit, two methods would have the same one, or what :func:`mean_logits` and
            :func:`draw_mean_logits` raise it for.
    """
    models = _named(model_folders, names)
    output = Path(output)
    check_folder(output, _is_ours, overwrite=overwrite)  # before hours of work
    for folder in models.values():
        check_no_cascade(folder, fold, checkpoint)
    histories, without = {}, {}
    for name, folder in models.items():
        try:
            histories[name] = max_logit_history(folder, fold)
        except ValueError as error:  # noqa: PERF203 - of a few models
            without[name] = str(error)
    means = {
        name: mean_logits(folder, fold, images=images, labels=labels, device=device, checkpoint=checkpoint)
        for name, folder in models.items()
    }
    plots = {"logits_by_class": draw_mean_logits(means)}
    if histories:
        plots["max_logits"] = draw_max_logits(histories)
    with whole_folder(output, _is_ours, overwrite=overwrite) as partial:
        for stem, figure in plots.items():
            for ending in ("svg", "png"):
                save_plot(figure, partial / f"{stem}.{ending}")
        numbers = {
            "fold": fold,
            "checkpoint": checkpoint,
            "images": None if images is None else str(images),
            "labels": None if labels is None else str(labels),
            "methods": {
                name: {
                    "model_folder": str(folder),
                    "mean_logits": _plain(means[name]),
                    "max_logits": _plain(histories[name]) if name in histories else None,
                }
                for name, folder in models.items()
            },
        }
        (partial / _NUMBERS_NAME).write_text(json.dumps(numbers, allow_nan=False), encoding="utf-8")
    return without


def _is_ours(folder: Path) -> bool:
    return (folder / _NUMBERS_NAME).is_file()


def _named(model_folders: Sequence[str | Path], names: Sequence[str] | None) -> Mapping[str, Path]:
    if not model_folders:
        raise ValueError("model_folders: expected at least one; got none.")
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


def _plain(values: LogitMeans | MaxLogitHistory) -> dict[str, Any]:
    """A dataclass of arrays as JSON holds it, with null for NaN."""
    return {field.name: _listed(getattr(values, field.name)) for field in fields(values)}


def _listed(value: Any) -> Any:
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_listed(entry) for entry in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value
