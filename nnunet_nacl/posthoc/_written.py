"""A folder of predictions read, and another one written case by case."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.files import is_full
from nnunet_nacl.nnunet import CaseFiles, Labels, PredictionFolder, nnunet_labels, write_prediction
from nnunet_nacl.workers import results_of

__all__ = [
    "Labels",
    "PredictionFolder",
    "Skipped",
    "Written",
    "by_structure",
    "nnunet_labels",
    "write_cases",
    "write_mark",
    "write_prediction",
]

Result = TypeVar("Result")

_MOST_SHOWN = 6


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
