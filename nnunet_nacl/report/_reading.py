"""Read, name and check against its files what ``nnunet_nacl evaluate`` wrote."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, read_parts
from nnunet_nacl.files import printable
from nnunet_nacl.nnunet import dataset_in


def read_results(
    summaries: str | Path | Sequence[str | Path], *, names: Sequence[str] | None = None
) -> dict[str, dict[str, FolderResult]]:
    """Read what ``nnunet_nacl evaluate`` wrote. Summaries with the same name and data set (folds, say) are merged.

    Args:
        summaries: ``calibration_summary.json`` files, or folders that hold one; or a single one.
        names: one for each summary; by default the trainer's or the folder's name, and for a calibrated folder the
            source folder's name and the method: ``DiceCE + vector``.

    Returns data set (``DatasetXXX_NAME`` in the path of the ground truth, or empty) -> method -> result.

    Raises:
        ValueError: names do not fit, different methods would have one name, a method has a case twice, or predictions
            have changed since they were evaluated.
    """
    if isinstance(summaries, (str, Path)):
        summaries = [summaries]
    files = [path / SUMMARY_NAME if path.is_dir() else path for path in map(Path, summaries)]
    if names is not None and len(names) != len(files):
        raise ValueError(
            f"names: expected one for each of the {len(files)} summaries; got {len(names)}."
        )
    results: dict[str, dict[str, list[FolderResult]]] = {}
    models: dict[tuple[str, str], set[Path]] = {}
    for number, file in enumerate(files):
        read = _read(file)
        name = default_name(file)
        if calibrated := read[0].origin.calibration:
            name = f"{default_name(calibrated.source / SUMMARY_NAME)} + {calibrated.method}"
        name = printable(name if names is None else names[number])
        truth = os.path.normpath(read[0].origin.folders[0].gt_folder)
        dataset = printable(dataset_in(truth) or "")
        results.setdefault(dataset, {}).setdefault(name, []).extend(read)
        models.setdefault((dataset, name), set()).add(_method_folder(file) or file)
    for (dataset, name), folders in models.items():
        if names is None and len(folders) > 1:
            shown = ", ".join(str(result.file) for result in results[dataset][name])
            raise ValueError(
                f"{shown} would all be called {name!r}; name them with --names, or rename a folder."
            )
    return {
        dataset: {name: _merged(name, parts) for name, parts in methods.items()}
        for dataset, methods in results.items()
    }


def _read(file: Path) -> list[FolderResult]:
    """The result of a summary, or those of the parts of that name."""
    try:
        results = read_parts(file)
    except FileNotFoundError as error:
        if file.is_file():
            raise FileNotFoundError(
                f"{error} nnunet_nacl evaluate wrote it beside {file}."
            ) from None
        expected = "expected a folder of predictions that nnunet_nacl evaluate has evaluated, or its summary"
        raise FileNotFoundError(f"{file} does not exist; {expected}.") from None
    for result in results:
        if stale := result.stale_cases():
            changed = f"{file}: cases have changed since they were evaluated ({len(stale)}), such as {stale[0]}"
            raise ValueError(f"{changed}. Evaluate again: {result.evaluate_command}")
    return results


def _merged(name: str, results: list[FolderResult]) -> FolderResult:
    if len(results) == 1 and results[0].origin.part is None:
        return results[0]
    try:
        return FolderResult.merged(results)
    except ValueError as error:
        if len(results) == 1:
            raise ValueError(f"{results[0].file}: {error}") from error
        if all(
            one.origin.part and one.origin.folders == results[0].origin.folders for one in results
        ):
            raise ValueError(
                f"{name}: {error} Evaluate the missing parts, too, or delete those of an earlier run."
            ) from error
        called = f"{', '.join(str(result.file) for result in results)} are all called {name!r}"
        raise ValueError(
            f"{called}, but are not folds of one method: {error} Name them with --names."
        ) from error


def default_name(file: Path) -> str:
    """The trainer, without ``nnUNetTrainer``, in a model's folder or a study's; else the summary's folder or file."""
    path = file.resolve()
    folder = _method_folder(file)
    if folder is not None:
        trainer = folder.name.split("__")[0]
        return trainer.removeprefix("nnUNetTrainer") or trainer
    return path.parent.name if path.name == SUMMARY_NAME else path.stem.removesuffix("_summary")


def _method_folder(file: Path) -> Path | None:
    """The folder that all folds of a method share: a model's, or ``TRAINER`` of ``TRAINER/fold_0`` in a study."""
    folder, *above = file.resolve().parents
    models = (
        path for path in (folder, *above) if re.fullmatch(r"(?!Dataset\d)[^_].*__.+__.+", path.name)
    )
    in_study = folder.name.startswith("fold_") and above[0].name.startswith("nnUNetTrainer")
    return next(models, above[0] if in_study else None)
