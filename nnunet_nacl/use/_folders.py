"""A new folder, made of a folder of predictions case by case."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped, each_case
from nnunet_nacl.files import check_output, only_writer, write_json
from nnunet_nacl.nnunet import CALIBRATED_NAME, DECODED_NAME, CaseFiles, PredictionFolder

Result = TypeVar("Result")

_UNFINISHED = ".nnunet_nacl_cases"  # in the output: files that are not whole yet
_ABOUT = ".about"
_MOST_SHOWN = 6


@dataclass(frozen=True)
class Written(Generic[Result]):
    """What was done with the cases of a folder."""

    output: Path
    done: str
    results: dict[str, Result]
    skipped: list[Skipped]
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """For people: how many cases were done, what more there is to say, and which were not done."""
        total = len(self.results) + len(self.skipped)
        lines = [f"{self.done.capitalize()} {len(self.results)} of {total} cases into {self.output}.", *self.notes]
        return "\n".join([*lines, *(f"Not {self.done}: {entry.case}: {entry.reason}" for entry in self.skipped)])

    def write_mark(self, file: Path, content: dict[str, Any]) -> None:
        """Write the JSON file by which a folder of ours is known, and that says how it came to be."""
        skipped = [asdict(entry) for entry in self.skipped]
        write_json(file, {**content, "skipped": skipped, "versions": {"nnunet_nacl": __version__}})


def write_cases(
    cases: Sequence[CaseFiles],
    write: Callable[[CaseFiles, Path], Result],
    output: str | Path,
    *,
    inputs: Sequence[PredictionFolder],
    describe: Callable[[Written[Result], Path], None],
    doing: str,
    done: str,
    num_processes: int,
    overwrite: bool,
    predictions: bool = True,
) -> Written[Result]:
    """Write files of each case into a folder: nothing before all cases are done, of a bad case nothing at all.

    Args:
        cases: to go through.
        write: called with a case and an empty folder for its files; returns what is to be known of it. Picklable.
        output: the folder; its files of other names stay, but for marks of predictions that are replaced.
        inputs: folders that must not be written to.
        describe: writes what the folder is known by; that is there before the cases are.
        doing: for progress, such as ``decoding``.
        done: for messages, such as ``decoded``.
        num_processes: how many cases are worked on at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
        predictions: whether the output is a folder of predictions.

    Raises:
        FileExistsError: the folder is not empty, or among the inputs.
        OSError: it cannot be written, or another process is writing it.
        ValueError: no case can be written.
    """
    output = Path(output)
    for folder in inputs:
        if output.resolve() == folder.folder.resolve():
            raise FileExistsError(f"{output} is one of the folders that are read; write to another one.")
    unfinished = output / _UNFINISHED
    with only_writer(output):
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        check_output(output, overwrite=overwrite)
        is_new = not output.exists()
        unfinished.mkdir(parents=True)
        try:
            attempt = partial(_attempt, write=write, folder=unfinished)
            results, skipped = each_case(cases, attempt, doing=doing, num_processes=num_processes)
            if not results:
                first = skipped[0]
                raise ValueError(f"None of {len(cases)} cases can be {done}; the first: {first.case}: {first.reason}")
            written = Written(output, done, results, skipped)
            (unfinished / _ABOUT).mkdir()
            describe(written, unfinished / _ABOUT)
            if predictions:
                for mark in {CALIBRATED_NAME, DECODED_NAME} - {file.name for file in (unfinished / _ABOUT).iterdir()}:
                    (output / mark).unlink(missing_ok=True)  # of the predictions that are replaced
            for part in (_ABOUT, *results):
                _move(unfinished / part, output)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
            if is_new:
                with suppress(OSError):  # it is not empty
                    output.rmdir()
    return written


def by_structure(names: Sequence[str], values: Sequence[float]) -> str:
    """A value of each structure in words; of many structures, the lowest and the highest."""
    shown = [f"{name} {value:.3f}" for name, value in zip(names, values, strict=True)]
    if len(shown) <= _MOST_SHOWN:
        return ", ".join(shown)
    order = sorted(range(len(values)), key=lambda number: values[number])
    return f"{shown[order[0]]} (lowest) to {shown[order[-1]]} (highest of {len(shown)})"


def _attempt(case: CaseFiles, write: Callable[[CaseFiles, Path], Result], folder: Path) -> Result:
    own = folder / case.name
    shutil.rmtree(own, ignore_errors=True)  # of a process that was killed
    own.mkdir()
    return write(case, own)


def _move(source: Path, target: Path) -> None:
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        place = target / file.relative_to(source)
        place.parent.mkdir(exist_ok=True)
        file.replace(place)
