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
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nnunet_nacl.evaluation._case import CaseResult
from nnunet_nacl.evaluation._cases import CaseFiles, DataSet, find_cases, part_of, read_dataset_json
from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.evaluation._storage import Case, load_cases, save_cases
from nnunet_nacl.evaluation._summary import PLACES, SUMMARY_NAME, FolderResult, Skipped, bins_file
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
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together.
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
    if output is None:
        output = pred_folder / (
            SUMMARY_NAME if num_parts == 1 else f"calibration_part{part_id}of{num_parts}_summary.json"
        )
    return _evaluate(
        part_of(cases, num_parts, part_id),
        dataset_file,
        plans_file if plans or plans_file.is_file() else None,
        {"gt_folder": str(gt_folder), "pred_folder": str(pred_folder), "part": _part(num_parts, part_id)},
        Path(output),
        settings=settings,
        num_processes=num_processes,
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

    model = Path(get_output_folder(dataset, trainer, plans, configuration))
    references = Path(str(nnUNet_preprocessed)) / maybe_convert_to_dataset_name(dataset) / "gt_segmentations"
    validation = [model / f"fold_{fold}" / "validation" for fold in folds]
    for folder in (model, *validation):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    dataset_file = model / "dataset.json"
    ending = read_dataset_json(dataset_file)["file_ending"]
    cases = [case for folder in validation for case in find_cases(references, folder, ending) if case.is_predicted]
    if not cases:
        raise ValueError(f"No case found: no *.npz in {', '.join(map(str, validation))}; train or validate with --npz.")
    if output is None:
        name = f"calibration_folds_{'_'.join(map(str, folds))}"
        output = validation[0] / SUMMARY_NAME if len(folds) == 1 else model / f"{name}_summary.json"
        if num_parts > 1:
            output = output.with_name(output.name.replace("_summary", f"_part{part_id}of{num_parts}_summary"))
    return _evaluate(
        part_of(sorted(cases, key=lambda case: case.name), num_parts, part_id),
        dataset_file,
        model / "plans.json",
        {
            "gt_folder": str(references),
            "pred_folder": str(validation[0]) if len(folds) == 1 else list(map(str, validation)),
            "part": _part(num_parts, part_id),
        },
        Path(output),
        settings=settings,
        num_processes=num_processes,
        overwrite=overwrite,
    )


def _part(num_parts: int, part_id: int) -> list[int] | None:
    return None if num_parts == 1 else [part_id, num_parts]


def _evaluate(
    cases: Sequence[CaseFiles],
    dataset_file: Path,
    plans_file: Path | None,
    places: dict[str, Any],
    output: Path,
    *,
    settings: Settings,
    num_processes: int,
    overwrite: bool,
) -> FolderResult:
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1; got {num_processes}.")
    references = [case.reference for case in cases if case.reference.is_file()]
    smallest = min(references, key=lambda file: file.stat().st_size, default=None)
    data_set = DataSet.read(dataset_file, plans_file, smallest)
    header = {
        "settings": {
            **places,
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
    done = {} if overwrite else journal.finished(cases)
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
    context = multiprocessing.get_context("spawn")  # forking a process with threads is not safe
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=start_worker)
    try:
        states_of = {case.name: case.states() for case in cases}
        pending = {pool.submit(attempt, case, data_set, settings): case for case in cases}
        for future in as_completed(pending):
            case = pending[future]
            yield case, states_of[case.name], future.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process died, perhaps out of memory: use fewer processes (-np). Finished cases are kept; run the "
            "same command again to go on."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


class _Journal:
    """Finished cases, kept one by one in a hidden folder beside the output until that is written."""

    def __init__(self, output: Path, header: dict[str, Any]) -> None:
        self._bins = bins_file(output)
        self._folder = output.with_name(f".{self._bins.stem}.partial")
        self._header = header
        if output.is_dir():
            raise IsADirectoryError(f"{output} is a folder; expected the summary's path.")
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
                if _dependencies(header) == _dependencies(self._header):
                    found |= {case.name: case for case in kept}
        by_name = {case.name: case for case in cases}
        return {
            name: Case(by_name[name], case.result, case.states)
            for name, case in found.items()
            if name in by_name and case.states == by_name[name].states()
        }

    def keep(self, case: Case) -> None:
        save_cases(self._folder / f"{case.name}.zip", [case], self._header)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _dependencies(header: dict[str, Any]) -> dict[str, Any]:
    """What a finished case's figures depend on beside its files; not where those lie."""
    settings = {key: value for key, value in header["settings"].items() if key not in PLACES}
    return json.loads(json.dumps({"settings": settings, "versions": header["versions"]}))  # type: ignore[no-any-return]
