"""What ``nnunet_nacl evaluate`` has written: read, named, and traced back to the command that wrote it."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnunet_nacl.evaluation import (
    SUMMARY_NAME,
    FolderResult,
    Origin,
    Place,
    Settings,
    bins_file,
    merge_results,
)
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import ModelName, dataset_in


def dataset_of(result: FolderResult) -> str:
    """``DatasetXXX_NAME``, if it is part of the ground truth's path; else empty."""
    return dataset_in(result.origin.places[0].gt_folder) or ""


def read_results(
    summaries: Sequence[str | Path], *, names: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> dict[str, dict[str, FolderResult]]:
    """Read what ``nnunet_nacl evaluate`` has written. Summaries of one name and data set, as of folds, are merged.

    Args:
        summaries: ``calibration_summary.json`` files, or folders that hold one.
        names: of the methods, one for each summary; by default the trainer's name or that of the summary's folder.
        datasets: of the data sets, one for each summary; by default ``DatasetXXX_NAME`` in the path of the ground
            truth, if it is there.

    Returns:
        Data set -> method -> result, in the order of the summaries.

    Raises:
        FileNotFoundError: a summary, or the bin tables beside it, does not exist.
        ValueError: a file is something else, names do not fit, different methods would have one name, or a method has a
            case twice.
    """
    files = [path / SUMMARY_NAME if path.is_dir() else path for path in map(Path, summaries)]
    if not files:
        raise ValueError("expected at least one summary.")
    for option, given in (("names", names), ("datasets", datasets)):
        if given is not None and len(given) != len(files):
            raise ValueError(f"{option}: expected one for each of the {len(files)} summaries; got {len(given)}.")
    grouped: dict[str, dict[str, list[FolderResult]]] = {}
    models: dict[tuple[str, str], set[Path]] = {}
    for number, file in enumerate(files):
        result = _read(file)
        name = default_name(file) if names is None else names[number]
        dataset = dataset_of(result) if datasets is None else datasets[number]
        grouped.setdefault(dataset, {}).setdefault(name, []).append(result)
        models.setdefault((dataset, name), set()).add(_method_folder(file) or file)
    for (dataset, name), folders in models.items():
        if names is None and len(folders) > 1:
            shown = ", ".join(str(result.file) for result in grouped[dataset][name])
            raise ValueError(
                f"{shown} would all be called {name!r}; name them with --names (folds of one method get one name)."
            )
    return {
        dataset: {name: _merged(name, results) for name, results in methods.items()}
        for dataset, methods in grouped.items()
    }


def _read(file: Path) -> FolderResult:
    check_input(file, "; nnunet_nacl evaluate writes it.")
    bins = bins_file(file)
    if not bins.is_file():
        raise FileNotFoundError(f"{file} is not a summary of nnunet_nacl evaluate, or {bins} is no longer beside it.")
    return FolderResult.read(file)


def _merged(name: str, results: list[FolderResult]) -> FolderResult:
    if len(results) == 1:
        return results[0]
    try:
        return merge_results(results)
    except ValueError as error:
        files = ", ".join(str(result.file) for result in results)
        raise ValueError(
            f"{files} are all called {name!r}, but are not folds of one method: {error} Give each its own name with "
            "--names."
        ) from error


def default_name(file: Path) -> str:
    """The trainer (less ``nnUNetTrainer``) in a model's folder or a study's, else the summary's own folder or file."""
    path, folder = file.resolve(), _method_folder(file)
    if folder is not None:
        trainer = folder.name.split("__")[0]
        return trainer.removeprefix("nnUNetTrainer") or trainer
    return path.parent.name if path.name == SUMMARY_NAME else path.stem.removesuffix("_summary")


def _method_folder(file: Path) -> Path | None:
    """The folder that all folds of a method share: a model's, or ``TRAINER`` of ``TRAINER/fold_0`` in a study."""
    model, folder = ModelName.of(file.parent), file.resolve().parent
    if model is not None:
        return model.folder
    return folder.parent if folder.name.startswith("fold_") and folder.parent.name.startswith("nnUNetTrainer") else None


def evaluate_command(result: FolderResult) -> str:
    """The ``nnunet_nacl evaluate`` command that gives this result; of merged folders one line for each."""
    origin = result.origin
    options = _options(origin)
    model = _model_options([place.pred_folder for place in origin.places])
    if model:
        return shlex.join(["nnunet_nacl", "evaluate", *model, *options])
    lines = []
    for place in origin.places:
        words = [place.gt_folder, place.pred_folder, *_descriptions(place)]
        lines.append(shlex.join(["nnunet_nacl", "evaluate", *words, *options]))
    return "\n".join(lines)


def evaluate_again_command(result: FolderResult, origin: Origin) -> str:
    """The ``nnunet_nacl evaluate`` command that repeats an evaluation over the default voxel sets, in one line."""
    settings = replace(origin.settings, voxels=Settings().voxels)
    command = evaluate_command(replace(result, origin=replace(origin, settings=settings)))
    return "; ".join(f"{line} --overwrite" for line in command.splitlines())


def review_command(place: Place) -> str:
    """The ``nnunet_nacl review`` command that judges these predictions by the ground truth."""
    words = [place.pred_folder, "--gt", place.gt_folder, *_descriptions(place)]
    return shlex.join(["nnunet_nacl", "review", *words])


def _descriptions(place: Place) -> list[str]:
    """Options that name ``dataset.json`` and ``plans.json`` where they are not with the predictions."""
    words: list[str] = []
    for option, file, usual in (
        ("-djfile", place.dataset_json, "dataset.json"),
        ("-pfile", place.plans, "plans.json"),
    ):
        words += [option, file] if file is not None and Path(file) != Path(place.pred_folder) / usual else []
    return words


def _model_options(folders: list[str]) -> list[str]:
    """``-d -c -tr -p -f`` if the folders are the validation folders of one model."""
    validation = [Path(folder) for folder in folders]
    folder = validation[0].parent.parent
    model = ModelName.of(folder)
    if model is None or any(one.parent.parent != folder or one.name != "validation" for one in validation):
        return []
    folds = [one.parent.name.removeprefix("fold_") for one in validation]
    return ["-d", folder.parent.name, "-c", model.configuration, "-tr", model.trainer, "-p", model.plans, "-f", *folds]


def _options(origin: Origin) -> list[str]:
    asked, usual = origin.settings, Settings()
    words: list[str] = []
    if asked.voxels != usual.voxels:
        words += ["--voxels", *asked.voxels]
    for option, name in (
        ("--bins", "num_bins"),
        ("--margin_mm", "margin_mm"),
        ("--protocol", "protocol"),
    ):
        if getattr(asked, name) != getattr(usual, name):
            words += [option, str(getattr(asked, name))]
    if asked.surface:
        words.append("--surface")
        if asked.tolerance_mm != usual.tolerance_mm:
            words += ["--tolerance_mm", str(asked.tolerance_mm)]
    if origin.part is not None:
        part, count = origin.part
        words += ["--num_parts", str(count), "--part_id", str(part)]
    return words
