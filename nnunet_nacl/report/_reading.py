"""Read, name and check against its files what ``nnunet_nacl evaluate`` wrote."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, Origin, evaluate_command, read_result
from nnunet_nacl.files import printable, unresolved
from nnunet_nacl.nnunet import CalibratedMark, dataset_in, model_in


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
    read = _summaries(files)
    called = _names(read) if names is None else names
    results: dict[str, dict[str, list[FolderResult]]] = {}
    for summary, name in zip(read, map(printable, called), strict=True):
        results.setdefault(summary.dataset, {}).setdefault(name, []).extend(summary.results)
    return {
        dataset: {name: _merged(name, parts) for name, parts in methods.items()}
        for dataset, methods in results.items()
    }


@dataclass(frozen=True)
class _Summary:
    """What ``evaluate`` wrote to a file, and its data set, empty if not known."""

    file: Path
    results: list[FolderResult]
    dataset: str

    @cached_property
    def name(self) -> str:
        """The name of the method, unless another one has it, too."""
        calibrated = calibrated_mark(self.results[0].origin)
        if calibrated is None:
            return default_name(self.file)
        return f"{default_name(calibrated.source / SUMMARY_NAME)} + {calibrated.method}"

    @cached_property
    def folder(self) -> Path:
        """The same for all folds of a method, and for no other method."""
        return _method_folder(self.file) or self.file


def _summaries(files: Sequence[Path]) -> list[_Summary]:
    """The summaries in these files; if a path names no data set, that of the others with the same cases."""
    read = []
    for file in files:
        results = _read(file)
        path = os.path.normpath(results[0].origin.folders[0].gt_folder)
        read.append(_Summary(file, results, printable(dataset_in(path) or "")))
    return [replace(one, dataset=one.dataset or _dataset_like(one, read)) for one in read]


def _dataset_like(summary: _Summary, others: Sequence[_Summary]) -> str:
    """The only data set of which others have the same cases, perhaps elsewhere a copy; empty if there are more."""
    alike = {
        other.dataset
        for other in others
        if other.dataset and _has_same_cases(summary.results[0], other.results[0])
    }
    return alike.pop() if len(alike) == 1 else ""


def _has_same_cases(one: FolderResult, other: FolderResult) -> bool:
    """Whether two results share cases, in all of which the structures are equally large in the ground truth."""
    shared = sorted({*one.cases} & {*other.cases})
    if not shared or one.structures != other.structures:
        return False
    mine = _sizes(one, shared)
    return np.array_equal(mine, _sizes(other, shared))


def _sizes(result: FolderResult, cases: Sequence[str]) -> NDArray[np.int64]:
    """(cases, structures) voxels in the ground truth."""
    truth = result.counts.truth
    assert truth is not None
    return truth.voxels[[result.cases.index(case) for case in cases]]


def _names(summaries: Sequence[_Summary]) -> list[str]:
    """A name for each summary; models of one trainer are told apart by plans and configuration."""
    names = []
    for summary in summaries:
        key = (summary.dataset, summary.name)
        alike = [other for other in summaries if (other.dataset, other.name) == key]
        folders = {other.folder for other in alike}
        settings = {_settings_of(folder) for folder in folders}
        if len(folders) == 1:
            names.append(summary.name)
        elif len(settings) == len(folders) and "" not in settings:
            names.append(f"{summary.name}, {_settings_of(summary.folder)}")
        else:
            shown = ", ".join(str(other.file) for other in alike)
            raise ValueError(
                f"{shown} would all be called {summary.name!r}; name them with --names, or rename a folder."
            )
    return names


def _settings_of(folder: Path) -> str:
    """Plans and configuration of a model, ``PLANS__CONFIGURATION``; empty for other folders."""
    return folder.name.partition("__")[2]


def _read(file: Path) -> list[FolderResult]:
    """The result of a summary."""
    try:
        results = [read_result(file)]
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
            raise ValueError(
                f"{changed}. Evaluate again: {evaluate_command(result.origin, result.file)}"
            )
    return results


def _merged(name: str, results: list[FolderResult]) -> FolderResult:
    if len(results) == 1:
        return results[0]
    try:
        return FolderResult.merged(results)
    except ValueError as error:
        called = f"{', '.join(str(result.file) for result in results)} are all called {name!r}"
        raise ValueError(
            f"{called}, but are not folds of one method: {error} Name them with --names."
        ) from error


def calibrated_mark(origin: Origin) -> CalibratedMark | None:
    """How a method's first folder of predictions is calibrated, if it is: read from that folder as it is now.

    Raises a ValueError if its ``calibration_applied.json`` is not as expected.
    """
    return CalibratedMark.read(origin.pred_folders[0])


def default_name(file: Path) -> str:
    """The trainer, without ``nnUNetTrainer``, in a model's folder or a study's; else the summary's folder or file."""
    path = unresolved(file)
    folder = _method_folder(file)
    if folder is not None:
        trainer = folder.name.split("__")[0]
        return trainer.removeprefix("nnUNetTrainer") or trainer
    return path.parent.name if path.name == SUMMARY_NAME else path.stem.removesuffix("_summary")


def _method_folder(file: Path) -> Path | None:
    """The folder that all folds of a method share: a model's, or ``TRAINER`` of ``TRAINER/fold_0`` in a study."""
    named = unresolved(file)
    for path in [named] if named.parent.is_symlink() else [named, named.resolve()]:
        model = model_in(path)
        if model is not None:
            return model
        folder, *above = path.parents
        if folder.name.startswith("fold_") and above[0].name.startswith("nnUNetTrainer"):
            return above[0]
    return None
