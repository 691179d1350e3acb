"""A prediction folder, or the validation folders of a model: every case evaluated, and summed up."""

import multiprocessing
import platform
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nnunet_nacl.evaluation._case import CaseResult
from nnunet_nacl.evaluation._merge import dependencies
from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.evaluation._storage import Case, load_cases, save_cases
from nnunet_nacl.evaluation._summary import SUMMARY_NAME, FolderResult, Skipped, bins_file, check_output
from nnunet_nacl.evaluation._worker import attempt, start_worker
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions


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
    finished. Run again, cases whose files, settings and versions are the same are not evaluated again.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together. The output's name says
            which part it is: ``calibration_part0of4_summary.json``.
        part_id: which part to evaluate, from 0.
        overwrite: evaluate every case anew.

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written.
        ValueError: an argument has a value that it cannot have.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1; got {num_processes}.")
    data_set = predictions.read_data_set()
    cases = _part_of(predictions.cases, part_id, num_parts)
    summary = Path(output) if output else _default_output(predictions)
    if num_parts > 1:
        prefix = summary.stem.removesuffix("_summary")
        name = f"{prefix}_part{part_id}of{num_parts}{summary.stem.removeprefix(prefix)}{summary.suffix}"
        summary = summary.with_name(name)
    folders = list(map(str, predictions.pred_folders))
    header = {
        "settings": {
            "gt_folder": str(predictions.gt_folder),
            "pred_folder": folders[0] if len(folders) == 1 else folders,
            "part": None if num_parts == 1 else [part_id, num_parts],
            "dataset_json": str(predictions.dataset_json),
            "plans": None if predictions.plans is None else str(predictions.plans),
            **asdict(settings),
            "voxels": list(settings.voxels),
            **data_set.to_json(),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("nnunet-nacl", "nnunetv2", "numpy", "scipy")},
        },
    }
    journal = _Journal(summary, header)
    if overwrite:
        journal.forget()
    done = journal.finished(cases)
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
        for files, states, outcome in _results(left, data_set, settings, num_processes):
            if isinstance(outcome, str):
                skipped.append(Skipped(files.name, outcome, missing=False))
            else:
                done[files.name] = Case(files, outcome, states)
                journal.keep(done[files.name])
            progress.update()
    result = FolderResult(
        cases=[done[case.name] for case in cases if case.name in done],
        skipped=sorted(skipped, key=lambda entry: entry.case),
        settings=header["settings"],
        versions=header["versions"],
        file=summary,
    )
    result.write(summary)
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


def _results(
    cases: Sequence[CaseFiles], data_set: DataSet, settings: Settings, num_processes: int
) -> Iterator[tuple[CaseFiles, dict[str, Any], CaseResult | str]]:
    """Each case, the state of its files before they were read, and its result or the reason why there is none."""
    num_processes = min(num_processes, len(cases))
    if num_processes <= 1:
        for case in cases:
            states = case.states()
            yield case, states, attempt(case, data_set, settings)
        return
    states_of = {case.name: case.states() for case in cases}
    left = {case.name: case for case in cases}
    try:
        with _pool(num_processes) as pool:
            pending = {pool.submit(attempt, case, data_set, settings): case for case in cases}
            try:
                for future in as_completed(pending):
                    result = future.result()
                    case = left.pop(pending[future].name)
                    yield case, states_of[case.name], result
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        # A process died, and took with it what the others were at. Alone, the case that it died of shows.
        for case in left.values():
            with _pool(1) as pool:
                try:
                    alone: CaseResult | str = pool.submit(attempt, case, data_set, settings).result()
                except BrokenProcessPool:
                    alone = f"{case.probabilities}: the process evaluating it was killed, perhaps for lack of memory."
            yield case, states_of[case.name], alone


def _pool(num_processes: int) -> ProcessPoolExecutor:
    # Not forked: that is not safe in a process with threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_processes, mp_context=context, initializer=start_worker)


class _Journal:
    """Finished cases, kept one by one in a hidden folder beside the output until that is written."""

    def __init__(self, output: Path, header: dict[str, Any]) -> None:
        self._bins = bins_file(check_output(output))
        self._folder = output.with_name(f".{self._bins.stem}.partial")
        self._header = header
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OSError(f"{output.parent} cannot be written: {error}") from error

    def finished(self, cases: Sequence[CaseFiles]) -> dict[str, Case]:
        """Cases evaluated before with the same settings and versions, from files that have not changed since."""
        found: dict[str, Case] = {}
        for file in (self._bins, *self._folder.glob("*.zip")):
            with suppress(FileNotFoundError, ValueError):  # what cannot be read is evaluated again
                kept, header = load_cases(file)
                if dependencies(header["settings"], header["versions"]) == dependencies(**self._header):
                    found |= {case.name: case for case in kept}
        by_name = {case.name: case for case in cases}
        return {
            name: Case(by_name[name], case.result, case.states)
            for name, case in found.items()
            if name in by_name and case.states == by_name[name].states()
        }

    def keep(self, case: Case) -> None:
        save_cases(self._folder / f"{case.name}.zip", [case], self._header)

    def forget(self) -> None:
        """Forget what was evaluated before."""
        self._bins.unlink(missing_ok=True)
        for file in self._folder.iterdir():
            file.unlink()

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
