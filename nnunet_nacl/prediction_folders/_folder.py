"""A folder of predictions read, and another one written case by case."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.files import is_full, is_readable
from nnunet_nacl.metrics import top_label
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    CaseFiles,
    DataSet,
    DatasetJson,
    LabelMeaning,
    dataset_files,
    find_cases,
    place,
    segmentation_files,
    write_labels,
)
from nnunet_nacl.workers import results_of

Labels = NDArray[np.unsignedinteger]
Result = TypeVar("Result")

_MOST_SHOWN = 6
_ARGUMENTS = "predict_from_raw_data_args.json"


@dataclass(frozen=True)
class PredictionFolder:
    """A folder of predictions made with ``--save_probabilities``.

    Attributes:
        folder: its path.
        dataset_json: the data set's ``dataset.json``.
        plans: the ``plans.json`` that names the reader, if there is one.
        data_set: how to read its files.
        cases: that have a segmentation or probabilities, in the order of their names.
    """

    folder: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    cases: list[CaseFiles]

    @classmethod
    def read(
        cls, folder: str | Path, *, dataset_json: str | Path | None = None, plans: str | Path | None = None
    ) -> "PredictionFolder":
        """Find its cases.

        Args:
            folder: ``CASE.npz`` and segmentations.
            dataset_json: the data set's ``dataset.json``; by default the one in the folder.
            plans: the ``plans.json`` whose reader is used; by default the one in the folder.

        Raises:
            FileNotFoundError: a file or the folder is missing.
            ValueError: a file is not what it should be, or there is no case.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
        dataset_file, plans_file = dataset_files(folder, dataset_json, plans)
        cases = find_cases(folder, folder, DatasetJson.read(dataset_file).file_ending)
        examples = [case.prediction for case in cases if is_readable(case.prediction)]
        data_set = DataSet.read(dataset_file, plans_file, sorted(examples, key=lambda file: file.stat().st_size))
        return cls(folder, dataset_file, plans_file, data_set, cases)

    @property
    def is_calibrated(self) -> bool:
        """Whether ``nnunet_nacl calibrate apply`` has written its probabilities."""
        return (self.folder / CALIBRATED_NAME).is_file()

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of its predictions beside the cases: data set, plans, arguments."""
        if (self.folder / _ARGUMENTS).is_file():
            shutil.copyfile(self.folder / _ARGUMENTS, folder / _ARGUMENTS)
        shutil.copyfile(self.dataset_json, folder / "dataset.json")
        if self.plans is not None:
            shutil.copyfile(self.plans, folder / "plans.json")


@dataclass(frozen=True)
class Skipped:
    """A case that could not be used, and why."""

    case: str
    reason: str


@dataclass(frozen=True)
class Written(Generic[Result]):
    """What :func:`write_cases` did.

    Attributes:
        done: what was done with the cases, such as ``decoded``.
        results: of the cases that were written, by name, in the order of their names.
        skipped: those that could not be, and why.
    """

    done: str
    results: dict[str, Result]
    skipped: list[Skipped]

    def summary(self, output: Path, *more: str) -> str:
        """For people: how many cases were done, what more there is to say, and which were not done."""
        total = len(self.results) + len(self.skipped)
        lines = [f"{self.done.capitalize()} {len(self.results)} of {total} cases into {output}.", *more]
        return "\n".join([*lines, *(f"Not {self.done}: {entry.case}: {entry.reason}" for entry in self.skipped)])


def write_cases(
    cases: Sequence[CaseFiles],
    write: Callable[[CaseFiles, Path], Result],
    folder: Path,
    *,
    doing: str,
    done: str,
    num_processes: int = 1,
) -> Written[Result]:
    """Write files of each case into a folder: all files of a case or none. A bad case does not stop the others.

    Args:
        cases: to go through.
        write: called with a case and an empty folder for its files; returns what is to be known of it. Picklable.
        folder: that the files come to lie in, with their paths in the case's folder.
        doing: for progress, such as ``decoding``.
        done: for messages, such as ``decoded``.
        num_processes: how many cases are written at a time.

    Raises:
        OSError: the folder cannot be written.
        ValueError: no case can be written, or ``num_processes`` is below 1.
    """
    results: dict[str, Result] = {}
    skipped: list[Skipped] = []
    attempt = partial(_attempt, write=write, folder=folder)
    outcomes = results_of(attempt, cases, num_processes=num_processes, died=partial(_died, folder=folder, doing=doing))
    for case, outcome in tqdm(outcomes, total=len(cases), desc=doing, unit="case"):
        if isinstance(outcome, Skipped):
            skipped.append(outcome)
            continue
        own = _own_folder(case, folder)
        for file in sorted(path for path in own.rglob("*") if path.is_file()):
            target = folder / file.relative_to(own)
            target.parent.mkdir(exist_ok=True)
            file.replace(target)
        shutil.rmtree(own)
        results[case.name] = outcome
    skipped.sort(key=lambda entry: entry.case)
    if not results:
        first = skipped[0]
        raise ValueError(f"None of {len(cases)} cases can be {done}; the first: {first.case}: {first.reason}")
    return Written(done, dict(sorted(results.items())), skipped)


def write_prediction(
    case: CaseFiles,
    folder: Path,
    reader: Any,
    *,
    labels: Labels | None = None,
    probabilities: NDArray[np.floating] | None = None,
) -> None:
    """Write a case as nnU-Net does: segmentation, probabilities, properties.

    Args:
        case: that it is made of. What is not given is the same as there: probabilities are a hard link then, or a copy
            where the file system has none.
        folder: to write into.
        reader: an object of one of nnU-Net's reader classes.
        labels: (Z, Y, X).
        probabilities: (C, Z, Y, X).
    """
    if labels is None:
        for file in segmentation_files(case.prediction):
            shutil.copy2(file, folder / file.name)
    else:
        write_labels(labels, case.prediction, reader, folder / case.prediction.name)
    if probabilities is None:
        place(case.probabilities, folder / case.probabilities.name)
    else:
        with (folder / case.probabilities.name).open("wb") as stream:
            np.savez_compressed(stream, probabilities=probabilities)
    properties = case.probabilities.with_suffix(".pkl")
    if properties.is_file():
        shutil.copy2(properties, folder / properties.name)


def nnunet_labels(probabilities: NDArray[np.floating], meaning: LabelMeaning) -> Labels:
    """The segmentation as nnU-Net makes it: the most probable class, or each region's label over those before it."""
    if meaning.regions is None:
        return top_label(probabilities)[1]
    labels = np.zeros(probabilities.shape[1:], np.min_scalar_type(max(meaning.known)))
    for p, label in zip(probabilities, meaning.written, strict=True):
        labels[p > 0.5] = label
    return labels


def by_structure(names: Sequence[str], values: Sequence[float]) -> str:
    """A value of each structure in words; of many structures, the lowest and the highest."""
    shown = [f"{name} {value:.3f}" for name, value in zip(names, values, strict=True)]
    if len(shown) <= _MOST_SHOWN:
        return ", ".join(shown)
    order = sorted(range(len(values)), key=lambda number: values[number])
    return f"{shown[order[0]]} (lowest) to {shown[order[-1]]} (highest of {len(shown)})"


def write_mark(file: Path, content: dict[str, Any], skipped: Sequence[Skipped]) -> None:
    """Write the JSON file by which a folder of ours is known, and that says how it came to be."""
    left_out = [{"case": entry.case, "reason": entry.reason} for entry in skipped]
    whole = {**content, "skipped": left_out, "versions": {"nnunet_nacl": __version__}}
    file.write_text(json.dumps(whole, indent=2) + "\n")


def _own_folder(case: CaseFiles, folder: Path) -> Path:
    return folder / f".{case.name}"


def _attempt(case: CaseFiles, write: Callable[[CaseFiles, Path], Result], folder: Path) -> Result | Skipped:
    own = _own_folder(case, folder)
    shutil.rmtree(own, ignore_errors=True)  # of a process that was killed
    own.mkdir()
    try:
        return write(case, own)
    except OSError as error:
        if is_full(error):  # that is not the case's fault
            raise
        reason = str(error)
    except ValueError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001
        reason = f"{case.probabilities}: {type(error).__name__}: {error}"
    shutil.rmtree(own)
    return Skipped(case.name, reason)


def _died(case: CaseFiles, folder: Path, doing: str) -> Skipped:
    shutil.rmtree(_own_folder(case, folder), ignore_errors=True)
    return Skipped(case.name, f"{case.probabilities}: the process {doing} it was killed, perhaps for lack of memory.")
