"""Make a new folder from a folder of predictions, case by case."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped, check_any_used, each_case
from nnunet_nacl.files import check_output, copy_file, write_json
from nnunet_nacl.nnunet import CALIBRATED_NAME, DECODED_NAME, CaseFiles, Predictions, cases_in
from nnunet_nacl.typing import ByName

Result = TypeVar("Result")


@dataclass(frozen=True)
class WrittenCases(Generic[Result]):
    """The results for the cases of a folder, those that were skipped, and notes for users.

    Attributes:
        output: the new folder.
        verb: what was done to the cases, for users, such as ``decoded``.
        results: by case.
        skipped: cases that were not written, with the reasons.
        notes: for users.
    """

    output: Path
    verb: str
    results: dict[str, Result]
    skipped: list[Skipped]
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return a text for users: how many cases were done, and notes."""
        total = len(self.results) + len(self.skipped)
        done = f"{self.verb.capitalize()} {len(self.results)} of {total} cases into {self.output}."
        return "\n".join([done, *self.notes])

    def write_mark(self, name: str, content: ByName) -> None:
        """Write the JSON file that marks a folder as ours and says how it was made."""
        skipped = [asdict(entry) for entry in self.skipped]
        write_json(
            self.output / name,
            {**content, "skipped": skipped, "versions": {"nnunet_nacl": __version__}},
        )


def new_folder(predictions: Predictions, output: str | Path, *, overwrite: bool) -> Path:
    """Make the folder of an output, or take an earlier one with ``overwrite``, whose other files stay."""
    folder = Path(output)
    if folder.resolve() in {read.resolve() for read in predictions.pred_folders}:
        raise FileExistsError(f"{output} is the folder that is read; write to another one.")
    check_output(folder, overwrite=overwrite, is_folder=True)
    folder.mkdir(exist_ok=True)
    return folder


def new_predictions(predictions: Predictions, output: str | Path, *, overwrite: bool) -> Path:
    """Make the folder as ``new_folder`` for other predictions of the same cases; removes their earlier files and marks.

    The folder says that they are calibrated if those that are read are. Raises a FileExistsError if it has other cases,
    of which its marks would not be true.
    """
    folder = new_folder(predictions, output, overwrite=overwrite)
    if others := cases_in(folder, ".npz") - {files.name for files in predictions.cases}:
        raise FileExistsError(
            f"{folder} holds predictions of other cases, such as {min(others)}; choose another folder."
        )
    for case in predictions.cases:
        for file in (case.prediction, case.probabilities, case.probabilities.with_suffix(".pkl")):
            (folder / file.name).unlink(missing_ok=True)
    arguments = "predict_from_raw_data_args.json"
    for name in ("plans.json", arguments, CALIBRATED_NAME, DECODED_NAME):
        (folder / name).unlink(missing_ok=True)
    for source in (
        predictions.data_set.dataset_json,
        predictions.data_set.plans,
        predictions.home / arguments,
        predictions.home / CALIBRATED_NAME,
    ):
        if source is not None and source.is_file():
            copy_file(source, folder / source.name)
    predictions.provenance.write(folder)
    return folder


def write_cases(
    predictions: Predictions,
    folder: Path,
    verb: str,
    write: Callable[[CaseFiles], Result],
    *,
    num_processes: int,
) -> WrittenCases[Result]:
    """Write each case into the folder by ``write``, which must be picklable; what it returns is in ``results``."""
    results, skipped = each_case(
        predictions.by_name, write, doing=verb, num_processes=num_processes
    )
    check_any_used(results, skipped)
    return WrittenCases(folder, verb, results, skipped)
