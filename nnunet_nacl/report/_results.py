"""What ``nnunet_nacl evaluate`` has written: read, named, checked against its files, and the commands that wrote it."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnunet_nacl.evaluation import (
    SUMMARY_NAME,
    FolderResult,
    Origin,
    Settings,
    bins_file,
    merge_results,
    read_summary_or_parts,
)
from nnunet_nacl.files import check_input, file_state, read_json
from nnunet_nacl.nnunet import CALIBRATED_NAME, ModelName, dataset_in

_SEPARATORS = "_ -"


def read_results(
    summaries: Sequence[str | Path], *, names: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> dict[str, dict[str, FolderResult]]:
    """Read what ``nnunet_nacl evaluate`` has written. Summaries of one name and data set, as of folds, are merged.

    Args:
        summaries: ``calibration_summary.json`` files, or folders that hold one.
        names: of the methods, one for each summary; by default the trainer's name or that of the folder, and of a
            calibrated folder that of the folder before and the method: ``DiceCE + vector``.
        datasets: of the data sets, one for each summary; by default ``DatasetXXX_NAME`` in the path of the ground
            truth, if it is there.

    Returns:
        Data set -> method -> result, in the order of the summaries.

    Raises:
        FileNotFoundError: a summary, or the bin tables beside it, does not exist.
        ValueError: a file is something else, names do not fit, different methods would have one name, a method has a
            case twice, or files have changed since they were evaluated.
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
        read = _read(file)
        name = printable(default_name(file, posthoc_of(read[0].origin)) if names is None else names[number])
        dataset = printable(dataset_of(read[0]) if datasets is None else datasets[number])
        grouped.setdefault(dataset, {}).setdefault(name, []).extend(read)
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


def _read(file: Path) -> list[FolderResult]:
    """The result of a summary, or those of the parts of that name."""
    try:
        results = read_summary_or_parts(file)
    except FileNotFoundError:
        check_input(file, "; nnunet_nacl evaluate writes it.")
        bins = bins_file(file)
        raise FileNotFoundError(
            f"{file} is not a summary of nnunet_nacl evaluate, or {bins} is no longer beside it."
        ) from None
    for result in results:
        if changed := changed_files(result):
            raise ValueError(
                f"{changed[0]} has changed since it was evaluated ({len(changed)} files have). Evaluate again: "
                f"{evaluate_command(result)}"
            )
    return results


def changed_files(result: FolderResult) -> list[Path]:
    """Files that are where they were evaluated, but differ from then in size or time; not those that are gone."""
    states = [state for case in result.cases for state in case.states.values() if state is not None]
    return [
        Path(state[0]) for state in states if (now := file_state(Path(state[0]))) is not None and now != list(state)
    ]


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


def printable(text: str) -> str:
    """A text that can be written as UTF-8: file names may hold bytes that cannot, and they become �."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def dataset_of(result: FolderResult) -> str:
    """``DatasetXXX_NAME``, if it is part of the ground truth's path; else empty."""
    return dataset_in(result.origin.places[0].gt_folder) or ""


@dataclass(frozen=True)
class Posthoc:
    """How a folder of predictions was calibrated: the method, such as ``vector``, and the folder before."""

    method: str
    before: Path


@dataclass(frozen=True)
class _Folder:
    pred_folder: str


@dataclass(frozen=True)
class _PosthocFile:
    """What we use of ``posthoc_applied.json``."""

    method: str
    applied: _Folder


def posthoc_of(origin: Origin) -> Posthoc | None:
    """How the predictions were calibrated after training, as ``posthoc_applied.json`` beside them says, if it does."""
    file = Path(origin.places[0].pred_folder) / CALIBRATED_NAME
    if not file.is_file():
        return None
    content = read_json(file, _PosthocFile)
    return Posthoc(content.method, Path(content.applied.pred_folder))


def default_name(file: Path, posthoc: Posthoc | None = None) -> str:
    """The trainer (less ``nnUNetTrainer``) in a model's folder or a study's, else the summary's own folder or file."""
    if posthoc is not None:
        return f"{default_name(posthoc.before / SUMMARY_NAME)} + {posthoc.method}"
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


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Full name -> name without the words that all names begin or end with.

    None is cut if a name would be left with a single character, which reads as a word, or without a letter.

    >>> short_names(["DiceCE_paper_12epochs", "CE_paper_12epochs"])
    {'DiceCE_paper_12epochs': 'DiceCE', 'CE_paper_12epochs': 'CE'}
    """
    full = list(dict.fromkeys(names))
    words = [re.findall(f"[{_SEPARATORS}]|[^{_SEPARATORS}]+", name) for name in full]
    start = _shared_words(words)
    end = _shared_words([one[start:][::-1] for one in words])
    short = ["".join(one[start : len(one) - end]) for one in words]
    if not all(len(one) > 1 and any(map(str.isalpha, one)) for one in short):
        return {name: name for name in full}
    return dict(zip(full, short, strict=True))


def _shared_words(words: Sequence[Sequence[str]]) -> int:
    """How many first words all share, the last of them a separator; each is left with one word at least."""
    shared = 0
    if len(words) > 1:
        for number, together in enumerate(zip(*(one[:-1] for one in words), strict=False), start=1):
            if len(set(together)) > 1:
                break
            shared = number if together[0] in _SEPARATORS else shared
    return shared


def evaluate_command(result: FolderResult) -> str:
    """The ``nnunet_nacl evaluate`` command that gives this result; of merged folders one line for each."""
    origin = result.origin
    options, model = _options(origin), _model_options([place.pred_folder for place in origin.places])
    if model:
        return shlex.join(["nnunet_nacl", "evaluate", *model, *options])
    return "\n".join(
        shlex.join(["nnunet_nacl", "evaluate", place.gt_folder, place.pred_folder, *options]) for place in origin.places
    )


def evaluate_again_command(result: FolderResult) -> str:
    """The ``nnunet_nacl evaluate`` command that repeats an evaluation over the default voxel sets."""
    settings = replace(result.origin.settings, voxels=Settings().voxels)
    return evaluate_command(replace(result, origin=replace(result.origin, settings=settings)))


def review_command(result: FolderResult) -> str:
    """The ``nnunet_nacl review`` command that judges these predictions by the ground truth; a line for each folder."""
    return "\n".join(
        shlex.join(["nnunet_nacl", "review", place.pred_folder, "-gt", place.gt_folder])
        for place in result.origin.places
    )


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
    words = ["--surface"] if asked.surface else []
    for option, name in (("--bins", "num_bins"), ("--protocol", "protocol")):
        if getattr(asked, name) != getattr(usual, name):
            words += [option, str(getattr(asked, name))]
    if origin.part is not None:
        words += ["--num_parts", str(origin.part[1]), "--part_id", str(origin.part[0])]
    return words
