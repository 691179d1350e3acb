"""A new folder, made of a folder of predictions case by case."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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


@contextmanager
def whole_folder(output: str | Path, *, inputs: Sequence[PredictionFolder], overwrite: bool) -> Iterator[Path]:
    """Yield a hidden folder; in the end its files, then those of its folders, are moved to the output.

    There, other files stay, but for marks of predictions that are replaced.
    """
    output = Path(output)
    if output.resolve() in {folder.folder.resolve() for folder in inputs}:
        raise FileExistsError(f"{output} is one of the folders that are read; write to another one.")
    unfinished, is_new = output / _UNFINISHED, not output.exists()
    with only_writer(output):
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        check_output(output, overwrite=overwrite)
        unfinished.mkdir(parents=True)
        try:
            yield unfinished
            if (unfinished / "dataset.json").exists():  # predictions
                for mark in (CALIBRATED_NAME, DECODED_NAME):
                    (output / mark).unlink(missing_ok=True)
            for file in [*unfinished.glob("*.*"), *sorted(unfinished.glob("*/*"))]:
                if file.is_file():
                    file.replace(output / file.name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
            if is_new:
                with suppress(OSError):  # it is not empty
                    output.rmdir()


def write_cases(
    cases: Sequence[CaseFiles],
    write: Callable[[CaseFiles, Path], Result],
    folder: Path,
    *,
    done: str,
    num_processes: int,
) -> Written[Result]:
    """Write each case into a folder of its own within the folder of :func:`whole_folder`; a bad one into none.

    ``write`` is called with a case and its folder, and returns what is to be known of it; picklable.
    """
    attempt = partial(_attempt, write=write, folder=folder)
    results, skipped = each_case(cases, attempt, doing=done, num_processes=num_processes)
    if not results:
        first = skipped[0]
        raise ValueError(f"None of {len(cases)} cases can be {done}; the first: {first.case}: {first.reason}")
    for entry in skipped:
        shutil.rmtree(folder / entry.case, ignore_errors=True)
    return Written(folder.parent, done, results, skipped)


def _attempt(case: CaseFiles, write: Callable[[CaseFiles, Path], Result], folder: Path) -> Result:
    own = folder / case.name
    shutil.rmtree(own, ignore_errors=True)  # of a process that was killed
    own.mkdir()
    return write(case, own)
