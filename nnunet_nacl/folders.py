"""Make a new folder from a folder of predictions, case by case."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped, check_any_used, each_case
from nnunet_nacl.files import check_output, only_writer, write_json
from nnunet_nacl.nnunet import CALIBRATED_NAME, CUT_SHORT_NAME, DECODED_NAME, CaseFiles, Predictions
from nnunet_nacl.typing import ByName

Result = TypeVar("Result")

_UNFINISHED = ".nnunet_nacl_cases"  # in the output: files that are not whole yet


@dataclass(frozen=True)
class NewFolder(Generic[Result]):
    """The results for the cases of a folder; until all are done, its files are in the hidden ``unfinished``.

    ``replaced`` are files in the output that are removed before the new ones move there.
    """

    output: Path
    unfinished: Path
    done: str
    results: dict[str, Result]
    skipped: list[Skipped]
    notes: list[str] = field(default_factory=list)
    replaced: list[Path] = field(default_factory=list)

    def summary(self) -> str:
        """A text for users: how many cases were done, and notes."""
        total = len(self.results) + len(self.skipped)
        done = f"{self.done.capitalize()} {len(self.results)} of {total} cases into {self.output}."
        return "\n".join([done, *self.notes])

    def write_mark(self, name: str, content: ByName) -> None:
        """Write the JSON file that marks a folder as ours and says how it was made."""
        skipped = [asdict(entry) for entry in self.skipped]
        write_json(
            self.unfinished / name,
            {**content, "skipped": skipped, "versions": {"nnunet_nacl": __version__}},
        )

    def describe_like(self, predictions: Predictions) -> None:
        """Mark it as a folder of predictions, and as calibrated if these are, so that nobody calibrates twice."""
        predictions.copy_descriptions(self.unfinished)
        if predictions.is_calibrated:
            calibrated = predictions.pred_folders[0] / CALIBRATED_NAME
            shutil.copyfile(calibrated, self.unfinished / CALIBRATED_NAME)


@contextmanager
def write_folder(
    inputs: Sequence[Predictions],
    output: str | Path,
    done: str,
    write: Callable[[CaseFiles, Path], Result],
    *,
    of_predictions: bool,
    num_processes: int,
    overwrite: bool,
) -> Iterator[NewFolder[Result]]:
    """Write each case of the inputs into its own hidden folder; on leaving, the files move to the output.

    There, other files stay; but if the new folder is ``of_predictions``, earlier marks and skipped cases are removed.
    If that is cut short, a hidden folder remains: ``Predictions`` refuses the output, and the next call replaces it.
    ``write`` is called with a case, of the first input that has it, and its folder; what it returns is in ``results``.
    It must be picklable.
    """
    output = Path(output)
    read = {folder.resolve() for predictions in inputs for folder in predictions.pred_folders}
    if output.resolve() in read:
        raise FileExistsError(
            f"{output} is one of the folders that are read; write to another one."
        )
    known = {case.name: case for folder in reversed(inputs) for case in folder.cases}
    cases = dict(sorted(known.items()))
    unfinished = output / _UNFINISHED
    cut_short = output / CUT_SHORT_NAME
    is_new = not output.exists()
    check_output(output, overwrite=True, is_folder=True)  # before the lock makes its parents
    with only_writer(output):
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        check_output(output, overwrite=overwrite or cut_short.is_dir(), is_folder=True)
        unfinished.mkdir(parents=True)
        try:
            attempt = partial(_attempt, write=write, folder=unfinished)
            results, skipped = each_case(cases, attempt, doing=done, num_processes=num_processes)
            check_any_used(results, skipped)
            for entry in skipped:
                shutil.rmtree(unfinished / entry.case, ignore_errors=True)
            new = NewFolder(output, unfinished, done, results, skipped)
            yield new
            if of_predictions:
                new.replaced.extend([output / CALIBRATED_NAME, output / DECODED_NAME])
                for entry in skipped:
                    files = known[entry.case]
                    new.replaced.extend(
                        [output / files.prediction.name, output / files.probabilities.name]
                    )
            shutil.rmtree(cut_short, ignore_errors=True)
            unfinished.rename(cut_short)
            for file in new.replaced:
                file.unlink(missing_ok=True)
            for file in [*cut_short.glob("*.*"), *cut_short.glob("*/*")]:  # marks first
                if file.is_file():
                    file.replace(output / file.name)
            shutil.rmtree(cut_short)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
            if is_new:
                with suppress(OSError):  # it is not empty
                    output.rmdir()


def _attempt(case: CaseFiles, write: Callable[[CaseFiles, Path], Result], folder: Path) -> Result:
    own = folder / case.name
    shutil.rmtree(own, ignore_errors=True)  # of a process that was killed
    own.mkdir()
    return write(case, own)
