"""A prediction folder, or the validation folders of a model: every case evaluated, and summed up."""

import json
import multiprocessing
import platform
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nnunet_nacl.evaluation._case import CaseResult
from nnunet_nacl.evaluation._cases import CaseFiles, DataSet, find_cases, part_of, read_dataset_json
from nnunet_nacl.evaluation._merge import dependencies
from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.evaluation._storage import Case, load_cases, save_cases
from nnunet_nacl.evaluation._summary import SUMMARY_NAME, FolderResult, Skipped, bins_file, check_output
from nnunet_nacl.evaluation._worker import attempt, start_worker


def evaluate_folder(
    gt_folder: str | Path,
    pred_folder: str | Path,
    *,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    output: str | Path | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """Calibration and segmentation metrics of a folder of nnU-Net predictions made with ``--save_probabilities``.

    Writes the summary, and beside it ``calibration_cases.csv`` and ``calibration_bins.zip``. A case that cannot be
    evaluated is in ``skipped`` with the reason; the others are evaluated all the same. Finished cases are kept as they
    come: run again, those whose files, settings and versions are the same are not evaluated again.

    Args:
        gt_folder: reference segmentations, ``CASE<file_ending>``.
        pred_folder: predicted segmentations of the same names and the probabilities, ``CASE.npz``.
        dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``.
        plans: the ``plans.json`` whose reader is used; by default the one in ``pred_folder``, and without any the
            reader that fits the file ending.
        output: the summary; by default ``calibration_summary.json`` in ``pred_folder``.
        settings: voxel sets, bins and what else to compute.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together. The output's name says
            which part it is: ``calibration_part0of4_summary.json``.
        part_id: which part to evaluate, from 0.
        overwrite: evaluate every case anew.

    Raises:
        FileNotFoundError: a folder, ``dataset.json`` or ``plans`` is missing.
        OSError: the output cannot be written.
        ValueError: the folders hold no case at all, or an argument has a value that it cannot have.
    """
    gt_folder, pred_folder = Path(gt_folder), Path(pred_folder)
    for folder in (gt_folder, pred_folder):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    dataset_file = Path(dataset_json) if dataset_json else pred_folder / "dataset.json"
    if not dataset_file.is_file():
        raise FileNotFoundError(f"{dataset_file} does not exist; name the data set's dataset.json with -djfile.")
    plans_file = Path(plans) if plans else pred_folder / "plans.json"
    cases = find_cases(gt_folder, pred_folder, read_dataset_json(dataset_file)["file_ending"])
    return _evaluate(
        cases,
        dataset_file,
        plans_file if plans or plans_file.is_file() else None,
        {"gt_folder": str(gt_folder), "pred_folder": str(pred_folder)},
        Path(output) if output else pred_folder / SUMMARY_NAME,
        settings=settings,
        num_processes=num_processes,
        part=(part_id, num_parts),
        overwrite=overwrite,
    )


def evaluate_model(
    dataset: str | int,
    configuration: str,
    *,
    trainer: str = "nnUNetTrainer",
    plans: str = "nnUNetPlans",
    folds: Sequence[int | str] = (0, 1, 2, 3, 4),
    output: str | Path | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """As :func:`evaluate_folder`, for the validation cases of a model trained with ``nnUNetv2_train ... --npz``.

    References are those that nnU-Net keeps with the preprocessed data. Needs nnU-Net's environment variables.

    Args:
        dataset: name or number.
        configuration: ``2d``, ``3d_fullres``, ...
        trainer: name of the trainer.
        plans: name of the plans.
        folds: whose validation folders to take.
        output: the summary; by default in the validation folder, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's.
        settings: see :func:`evaluate_folder`, as for what follows.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided.
        part_id: which part to evaluate.
        overwrite: evaluate every case anew.

    Raises:
        FileNotFoundError: a folder is missing.
        OSError: the output cannot be written.
        RuntimeError: nnU-Net's environment variables are not set, or it knows no such data set.
        ValueError: no case at all, or an argument has a value that it cannot have.
    """
    from nnunetv2.paths import nnUNet_preprocessed
    from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name
    from nnunetv2.utilities.file_path_utilities import get_output_folder

    return evaluate_validation(
        get_output_folder(dataset, trainer, plans, configuration),
        Path(str(nnUNet_preprocessed)) / maybe_convert_to_dataset_name(dataset),
        folds,
        output=output,
        settings=settings,
        num_processes=num_processes,
        num_parts=num_parts,
        part_id=part_id,
        overwrite=overwrite,
    )


def evaluate_validation(
    model_folder: str | Path,
    preprocessed_folder: str | Path,
    folds: Sequence[int | str],
    *,
    output: str | Path | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """As :func:`evaluate_model`, of folders.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        preprocessed_folder: the data set's, with ``gt_segmentations``.
        folds: see :func:`evaluate_model`, as for what follows.
        output: the summary.
        settings: what to evaluate.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided.
        part_id: which part to evaluate.
        overwrite: evaluate every case anew.

    Raises:
        FileNotFoundError: a folder is missing.
        OSError: the output cannot be written.
        ValueError: no case at all, or an argument has a value that it cannot have.
    """
    model, references = Path(model_folder), Path(preprocessed_folder) / "gt_segmentations"
    validation = [model / f"fold_{fold}" / "validation" for fold in folds]
    for folder in (model, *validation):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    dataset_file = model / "dataset.json"
    ending = read_dataset_json(dataset_file)["file_ending"]
    cases = []
    for fold, folder in zip(folds, validation, strict=True):
        expected = _validation_cases(references.parent / "splits_final.json", str(fold))
        cases += [case for case in find_cases(references, folder, ending) if case.is_predicted or case.name in expected]
    if not any(case.is_predicted for case in cases):
        raise ValueError(f"No case found in {', '.join(map(str, validation))}; train or validate with --npz.")
    if output is None and len(folds) == 1:
        output = validation[0] / SUMMARY_NAME
    elif output is None:
        output = model / f"calibration_folds_{'_'.join(map(str, folds))}_summary.json"
    return _evaluate(
        sorted(cases, key=lambda case: case.name),
        dataset_file,
        model / "plans.json",
        {
            "gt_folder": str(references),
            "pred_folder": str(validation[0]) if len(folds) == 1 else list(map(str, validation)),
        },
        Path(output),
        settings=settings,
        num_processes=num_processes,
        part=(part_id, num_parts),
        overwrite=overwrite,
    )


def _validation_cases(splits_file: Path, fold: str) -> set[str]:
    """The cases that a fold validates on; none known for ``all`` or without nnU-Net's splits."""
    if not fold.isdigit() or not splits_file.is_file():
        return set()
    splits = json.loads(splits_file.read_text())
    return set(splits[int(fold)]["val"]) if int(fold) < len(splits) else set()


def _evaluate(
    cases: Sequence[CaseFiles],
    dataset_file: Path,
    plans_file: Path | None,
    places: dict[str, Any],
    output: Path,
    *,
    settings: Settings,
    num_processes: int,
    part: tuple[int, int],
    overwrite: bool,
) -> FolderResult:
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1; got {num_processes}.")
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(
                f"the case {case.name} is in {case.probabilities.parent} and in {following.probabilities.parent}: "
                "folds must not share cases."
            )
    references = [case.reference for case in cases if case.reference.is_file()]
    data_set = DataSet.read(dataset_file, plans_file, sorted(references, key=lambda file: file.stat().st_size))
    cases = part_of(cases, *part)
    if part[1] > 1:
        prefix = output.stem.removesuffix("_summary")
        output = output.with_name(f"{prefix}_part{part[0]}of{part[1]}{output.stem.removeprefix(prefix)}{output.suffix}")
    header = {
        "settings": {
            **places,
            "part": None if part[1] == 1 else list(part),
            "dataset_json": str(dataset_file),
            "plans": None if plans_file is None else str(plans_file),
            **asdict(settings),
            "voxels": list(settings.voxels),
            **data_set.to_json(),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("nnunet-nacl", "nnunetv2", "numpy", "scipy")},
        },
    }
    journal = _Journal(output, header)
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
        for files, states, found in _results(left, data_set, settings, num_processes):
            if isinstance(found, str):
                skipped.append(Skipped(files.name, found, missing=False))
            else:
                done[files.name] = Case(files, found, states)
                journal.keep(done[files.name])
            progress.update()
    result = FolderResult(
        cases=[done[case.name] for case in cases if case.name in done],
        skipped=sorted(skipped, key=lambda entry: entry.case),
        settings=header["settings"],
        versions=header["versions"],
        file=output,
    )
    result.write(output)
    journal.remove()
    return result


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
