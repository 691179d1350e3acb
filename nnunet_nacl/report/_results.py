"""What ``nnunet_nacl evaluate`` has written: read, named, and traced back to the command that wrote it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from nnunet_nacl.evaluation import (
    SUMMARY_NAME,
    Case,
    FolderResult,
    Settings,
    Voxels,
    bins_file,
    merge_results,
)
from nnunet_nacl.nnunet import ModelName, Region, dataset_in

Label = int | Region

# Summaries from before there was the voxel set near lack margin_mm.
_SETTINGS = (
    "gt_folder", "pred_folder", "part", "voxels", "num_bins", "boundary_mm", "surface", "tolerance_mm", "protocol",
    "labels", "reader",
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """What a result was computed from, and how. Nothing else in this package reads ``FolderResult.settings``.

    Attributes:
        options: of the evaluation.
        knows_near: whether the evaluation knew the voxel set near, and so ``margin_mm``.
        labels: name -> label, or labels of a region, as in ``dataset.json``; with the ignore label.
        reader: name of nnU-Net's class that reads the images.
        ground_truth: folders; several if results of different folders were merged.
        predictions: folders, the same.
        dataset_json: files, the same.
        plans: files, the same; None where there was none.
        part: its number and how many parts there are, if only a part of the cases was evaluated.
    """

    options: Settings
    knows_near: bool
    labels: dict[str, Label]
    reader: str
    ground_truth: list[str]
    predictions: list[str]
    dataset_json: list[str | None]
    plans: list[str | None]
    part: tuple[int, int] | None

    @classmethod
    def of(cls, result: FolderResult) -> "Origin":
        settings = result.settings

        def places(key: str) -> list[Any]:
            value = settings.get(key)
            return list(value) if isinstance(value, list) else [value]

        return cls(
            options=Settings(**{one.name: settings[one.name] for one in fields(Settings) if one.name in settings}),
            knows_near="margin_mm" in settings,
            labels={
                name: value if isinstance(value, int) else tuple(value) for name, value in settings["labels"].items()
            },
            reader=settings["reader"],
            ground_truth=places("gt_folder"),
            predictions=places("pred_folder"),
            dataset_json=places("dataset_json"),
            plans=places("plans"),
            part=None if settings["part"] is None else tuple(settings["part"]),
        )

    @property
    def counts_all_voxels(self) -> bool:
        """Whether every voxel is in the tables. The paper's protocol drops those with a probability of 0."""
        return self.options.protocol == "standard"

    @property
    def dataset(self) -> str:
        """``DatasetXXX_NAME``, if it is part of the ground truth's path; else empty."""
        return dataset_in(str(self.ground_truth)) or ""

    def name_of(self, structure: Label) -> str:
        """What ``dataset.json`` calls a label or region."""
        return next(
            (name for name, value in self.labels.items() if _as_tuple(value) == _as_tuple(structure)), str(structure)
        )

    @property
    def highest_label(self) -> int:
        """Of all but the ignore label."""
        return max(max(_as_tuple(value)) for name, value in self.labels.items() if name != "ignore")


def has_regions(result: FolderResult) -> bool:
    """Whether the channels are regions. If not, they are classes, and channel 0 is the background."""
    return isinstance(result.names[0], tuple)


def all_settings(result: FolderResult) -> dict[str, Any]:
    """All settings of an evaluation, to be shown."""
    return result.settings


def with_cases(result: FolderResult, cases: list[Case], *, voxels: Sequence[Voxels], num_bins: int) -> FolderResult:
    """The same result with other cases, whose tables are over these voxel sets and have so many bins."""
    return replace(result, cases=cases, settings={**result.settings, "voxels": list(voxels), "num_bins": num_bins})


def _as_tuple(label: Label) -> Region:
    return (label,) if isinstance(label, int) else label


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
        dataset = Origin.of(result).dataset if datasets is None else datasets[number]
        grouped.setdefault(dataset, {}).setdefault(name, []).append(result)
        models.setdefault((dataset, name), set()).add(model.folder if (model := ModelName.of(file.parent)) else file)
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
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; nnunet_nacl evaluate writes it.")
    bins = bins_file(file)
    if not bins.is_file():
        raise FileNotFoundError(f"{file} is not a summary of nnunet_nacl evaluate, or {bins} is no longer beside it.")
    result = FolderResult.read(file)
    missing = [setting for setting in _SETTINGS if setting not in result.settings]
    if missing:
        raise ValueError(f"{bins} lacks the setting {missing[0]!r}: another version wrote it; evaluate again.")
    return result


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
    """The trainer (less ``nnUNetTrainer``) if the summary lies in a model's folder, else its own folder or file."""
    path, model = file.resolve(), ModelName.of(file.parent)
    if model is not None:
        return model.trainer.removeprefix("nnUNetTrainer") or model.trainer
    return path.parent.name if path.name == SUMMARY_NAME else path.stem.removesuffix("_summary")


def evaluate_command(result: FolderResult) -> str:
    """The ``nnunet_nacl evaluate`` command that gives this result; of merged folders one line for each."""
    origin = Origin.of(result)
    options = _options(origin)
    model = _model_options(origin.predictions)
    if model:
        return shlex.join(["nnunet_nacl", "evaluate", *model, *options])
    lines = []
    for number, folder in enumerate(origin.predictions):
        words = [origin.ground_truth[number % len(origin.ground_truth)], folder]
        for option, files, usual in (
            ("-djfile", origin.dataset_json, "dataset.json"),
            ("-pfile", origin.plans, "plans.json"),
        ):
            file = files[number % len(files)]
            words += [option, file] if file is not None and Path(file) != Path(folder) / usual else []
        lines.append(shlex.join(["nnunet_nacl", "evaluate", *words, *options]))
    return "\n".join(lines)


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
    asked, usual = origin.options, Settings()
    words: list[str] = []
    if asked.voxels != usual.voxels:
        words += ["--voxels", *asked.voxels]
    for option, name in (
        ("--bins", "num_bins"),
        ("--margin_mm", "margin_mm"),
        ("--boundary_mm", "boundary_mm"),
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
