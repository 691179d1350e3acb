"""From the summaries that a user names to methods and data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, bins_file, merge_results
from nnunet_nacl.nnunet import ModelName, dataset_in

# Without margin_mm, which what was evaluated before there was the voxel set near does not have.
_SETTINGS = (
    "gt_folder", "pred_folder", "part", "voxels", "num_bins", "boundary_mm", "surface", "tolerance_mm", "protocol",
    "labels", "reader",
)  # fmt: skip


def read_results(
    summaries: Sequence[str | Path], *, names: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> dict[str, dict[str, FolderResult]]:
    """Read what ``nnunet_nacl evaluate`` has written; those of one name and data set, as folds are, are merged.

    Args:
        summaries: ``calibration_summary.json`` files, or folders that hold one.
        names: of the methods, one a summary; by default the trainer's name or that of the summary's folder.
        datasets: of the data sets, one a summary; by default ``DatasetXXX_NAME`` in the references' path, if it is
            there.

    Returns:
        Data set -> method -> result, in the order of the summaries.

    Raises:
        FileNotFoundError: a summary, or the bin tables beside it, does not exist.
        ValueError: something else is there, names do not fit, different methods would have one name, or a method has a
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
        name = _default_name(file) if names is None else names[number]
        dataset = _default_data_set(result.settings) if datasets is None else datasets[number]
        grouped.setdefault(dataset, {}).setdefault(name, []).append(result)
        models.setdefault((dataset, name), set()).add(model.folder if (model := ModelName.of(file.parent)) else file)
    for (dataset, name), folders in models.items():
        if names is None and len(folders) > 1:
            shown = ", ".join(str(result.file) for result in grouped[dataset][name])
            raise ValueError(
                f"{shown} would all be called {name!r}; give them names with --names (folds, the same one)."
            )
    return {
        dataset: {name: _merged(name, results) for name, results in methods.items()}
        for dataset, methods in grouped.items()
    }


def _read(file: Path) -> FolderResult:
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; nnunet_nacl evaluate writes it.")
    bins = bins_file(file)
    if not bins.is_file():
        raise FileNotFoundError(f"{file} is no summary of nnunet_nacl evaluate, or {bins} is not beside it any more.")
    result = FolderResult.read(file)
    lacking = [setting for setting in _SETTINGS if setting not in result.settings]
    if lacking:
        raise ValueError(f"{bins} lacks the setting {lacking[0]!r}: it is of another version; evaluate again.")
    return result


def _merged(name: str, results: list[FolderResult]) -> FolderResult:
    if len(results) == 1:
        return results[0]
    try:
        return merge_results(results)
    except ValueError as error:
        files = ", ".join(str(result.file) for result in results)
        raise ValueError(
            f"{files} are all called {name!r}, but are no folds of one method: {error} Give each its own name with "
            "--names."
        ) from error


def _default_name(file: Path) -> str:
    """The trainer (less ``nnUNetTrainer``) if a folder is a model's, else the folder, or what ``-o`` said."""
    path, model = file.resolve(), ModelName.of(file.parent)
    if model is not None:
        return model.trainer.removeprefix("nnUNetTrainer") or model.trainer
    return path.parent.name if path.name == SUMMARY_NAME else path.stem.removesuffix("_summary")


def _default_data_set(settings: dict[str, Any]) -> str:
    return dataset_in(str(settings["gt_folder"])) or ""
