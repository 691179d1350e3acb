"""Read, name and check against its files what ``nnunet_nacl evaluate`` wrote."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, read_result
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import calibration_of, dataset_in, model_in, short_name
from nnunet_nacl.paths import unresolved


def read_results(
    summaries: Sequence[str | Path], *, names: Sequence[str] | None = None
) -> dict[str, dict[str, FolderResult]]:
    """Read what ``nnunet_nacl evaluate`` wrote, and merge the folds of a method.

    Args:
        summaries: ``calibration_summary.json`` files, or folders that hold one.
        names: one for each summary; summaries of one name and data set are merged. By default the folders' names, or in
            the folder of a model its trainer, where only the validation folders of its folds are merged. What is
            calibrated is called so, and a suffix that all names share, such as ``_20epochs``, is left out.

    Returns data set (``DatasetXXX_NAME`` in the path of the ground truth, or empty) -> method -> result.

    Raises:
        ValueError: names do not fit, different methods would have one name, a method has a case twice, or predictions
            have changed since they were evaluated.
    """
    files = [path / SUMMARY_NAME if path.is_dir() else path for path in map(Path, summaries)]
    results = []
    for file in files:
        check_input(
            file, "; expected a folder that nnunet_nacl evaluate has evaluated, or its summary."
        )
        result = read_result(file)
        if stale := result.stale_cases():
            changed = f"{file}: cases have changed since they were evaluated ({len(stale)}), such as {stale[0]}"
            raise ValueError(f"{changed}. Evaluate again.")
        results.append(result)
    given = _default_names(files, results) if names is None else names
    if len(given) != len(files):
        raise ValueError(
            f"names: expected one for each of the {len(files)} summaries; got {len(given)}."
        )
    merged: dict[str, dict[str, FolderResult]] = defaultdict(dict)
    methods: dict[tuple[str, str], Path] = {}
    for file, name, result in zip(files, given, results, strict=True):
        truth = os.path.normpath(result.folders("ground_truth")[0])
        data_set = dataset_in(truth) or ""
        method = file
        model = model_in(unresolved(file))
        predicted = result.folders("prediction")[0]
        # Other cases that a model predicted, such as test cases, are no further fold
        if model and predicted.parent.name.startswith("fold_"):
            method = model / predicted.name
        other = methods.setdefault((data_set, name), method)
        if names is None and other != method:
            raise ValueError(
                f"{other}, {method} would both be called {name!r}; name them with --names."
            )
        found = merged[data_set]
        try:
            found[name] = FolderResult.merged([found[name], result]) if name in found else result
        except ValueError as error:
            raise ValueError(
                f"{name}: {error} Give methods names of their own with --names."
            ) from error
    return dict(merged)


def _default_names(files: Sequence[Path], results: Sequence[FolderResult]) -> list[str]:
    """Name methods after the trainer, without ``nnUNetTrainer``, in a model's folder; else after folder or file."""
    names = []
    marks = []
    for file, result in zip(map(unresolved, files), results, strict=True):
        name = file.parent.name if file.name == SUMMARY_NAME else file.stem.removesuffix("_summary")
        if model := model_in(file):
            name = short_name(model.name.split("__")[0])
        names.append(name.removesuffix("_calibrated"))
        # nnU-Net leaves no record of the checkpoint that predicted, so the folder's name counts, too
        is_calibrated = names[-1] != name or calibration_of(result.folders("prediction")[0])
        marks.append(" (calibrated)" if is_calibrated else "")
    while len({*names}) > 1:
        starts, suffixes = zip(*(name.rpartition("_")[::2] for name in names), strict=True)
        if "" in starts or len({*suffixes}) > 1:
            break
        names = list(starts)
    return [name + mark for name, mark in zip(names, marks, strict=True)]
