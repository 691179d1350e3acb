"""A prediction folder, or the validation folders of a model: every case evaluated, and summed up."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped, evaluate_files
from nnunet_nacl.evaluation._origin import Origin, joined_versions
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult, bins_file, check_output, part_file
from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.evaluation._storage import load_cases, save_cases
from nnunet_nacl.files import Journal, hidden, only_writer, whole_file
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions
from nnunet_nacl.workers import results_of


def evaluate(
    predictions: Predictions,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    *,
    output: str | Path | None = None,
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """Calibration and segmentation metrics of predictions that nnU-Net saved with their probabilities.

    Writes the summary, and beside it ``calibration_cases.csv`` and ``calibration_bins.zip``. A case that cannot be
    evaluated is in ``skipped`` with the reason; the others are evaluated all the same. Each case is kept once it is
    finished. Run again, cases whose files and settings are the same are not evaluated again, unless the way of counting
    has changed with this package's version.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together. The output's name says
            which part it is: ``calibration_part0of4_summary.json``.
        part_id: which part to evaluate, from 0.
        overwrite: evaluate every case anew, and replace files at the output's path that are not ours, too.

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: an argument has a value that it cannot have.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1; got {num_processes}.")
    data_set = predictions.read_data_set()
    cases = _part_of(predictions.cases, part_id, num_parts)
    summary = Path(output) if output else _default_output(predictions)
    if num_parts > 1:
        summary = part_file(summary, part_id, num_parts)
    origin = Origin.of(predictions, data_set, settings, None if num_parts == 1 else (part_id, num_parts))
    check_output(summary, overwrite=overwrite)
    with only_writer(summary):
        return _evaluate(cases, data_set, origin, summary, num_processes, overwrite=overwrite)


def _evaluate(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    origin: Origin,
    summary: Path,
    num_processes: int,
    *,
    overwrite: bool,
) -> FolderResult:
    journal = _Journal(summary, origin)
    if overwrite:
        journal.start_anew()
    done, versions = journal.finished(cases)
    skipped: list[Skipped] = []
    left: list[CaseFiles] = []
    for case in cases:
        reason = case.missing()
        if reason is not None:
            skipped.append(Skipped(case.name, reason, not case.is_predicted))
        elif case.name not in done:
            left.append(case)

    progress = tqdm(total=len(cases), initial=len(cases) - len(left), desc="evaluating", unit="case")
    with progress:
        attempt = partial(_attempt, data_set=data_set, settings=origin.settings)
        for files, (states, outcome) in results_of(attempt, left, num_processes=num_processes, died=_died):
            if isinstance(outcome, str):
                skipped.append(Skipped(files.name, outcome, missing=False))
            else:
                done[files.name] = Case(files, outcome, states)
                journal.keep(done[files.name])
            progress.update()
    result = FolderResult(
        cases=[done[case.name] for case in cases if case.name in done],
        skipped=sorted(skipped, key=lambda entry: entry.case),
        origin=replace(origin, versions=joined_versions([*versions, origin.versions])),
        file=summary,
    )
    result.write(summary, overwrite=overwrite)
    journal.remove()
    return result


def _default_output(predictions: Predictions) -> Path:
    if len(predictions.pred_folders) == 1:
        return predictions.pred_folders[0] / SUMMARY_NAME
    assert predictions.model_folder is not None
    folds = [group.removeprefix("fold ") for group in predictions.groups]
    return predictions.model_folder / f"calibration_folds_{'_'.join(folds)}_summary.json"


def _part_of(cases: Sequence[CaseFiles], part_id: int, num_parts: int) -> list[CaseFiles]:
    """Every ``num_parts``-th case, from number ``part_id`` on, as nnU-Net's predict divides its work.

    Raises:
        ValueError: there is no such part.
    """
    if not 0 <= part_id < num_parts:
        raise ValueError(f"part_id must be from 0 to num_parts - 1 = {num_parts - 1}; got {part_id}.")
    return list(cases[part_id::num_parts])


def _attempt(files: CaseFiles, data_set: DataSet, settings: Settings) -> tuple[dict[str, Any], CaseResult | str]:
    """State of a case's files before they are read, and its result or the reason why there is none.

    A bad case must not take the others' results with it.
    """
    states = files.states()
    try:
        return states, evaluate_files(files, data_set, settings)
    except (ValueError, FileNotFoundError) as error:
        return states, str(error)
    except Exception as error:  # noqa: BLE001
        return states, f"{files.probabilities}: {type(error).__name__}: {error}"


def _died(files: CaseFiles) -> tuple[dict[str, Any], CaseResult | str]:
    return files.states(), f"{files.probabilities}: the process evaluating it was killed, perhaps for lack of memory."


class _Journal(Journal):
    """Evaluated cases, kept until the output is written."""

    def __init__(self, output: Path, origin: Origin) -> None:
        self._bins = bins_file(output)
        super().__init__(hidden(self._bins.with_suffix(""), ".partial"), ".zip")
        self._anew = self.folder / "anew"  # is there: what the output holds is not taken up
        self._origin = origin

    def finished(self, cases: Sequence[CaseFiles]) -> tuple[dict[str, Case], list[dict[str, str]]]:
        """Cases that were counted alike before, from files that have not changed since, and by which versions."""
        by_name = {case.name: case for case in cases}
        done: dict[str, Case] = {}
        versions: list[dict[str, str]] = []
        for file in (*([] if self._anew.exists() else [self._bins]), *self.files()):
            with suppress(FileNotFoundError, ValueError):  # what cannot be read is evaluated again
                kept, origin, _ = load_cases(file)
                if origin.difference(self._origin) is not None:
                    continue
                unchanged = {
                    case.name: replace(case, files=by_name[case.name])
                    for case in kept
                    if case.name in by_name and case.states == by_name[case.name].states()
                }
                done |= unchanged
                versions += [origin.versions] if unchanged else []
        return done, versions

    def keep(self, case: Case) -> None:
        with whole_file(self.file_of(case.name)) as file:
            save_cases(file, [case], self._origin)

    def start_anew(self) -> None:
        """Forget what was evaluated before; the output stays until the new one replaces it."""
        self.clear()
        self._anew.touch()

    def clear(self) -> None:
        super().clear()
        self._anew.unlink(missing_ok=True)
