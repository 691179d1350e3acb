"""A prediction folder: every case read with nnU-Net's own readers, evaluated and summed up."""

import json
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json
from nnunetv2.utilities.label_handling.label_handling import LabelManager
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.evaluation._case import CaseResult, Region, evaluate_case
from nnunet_nacl.evaluation._summary import Case, FolderResult

SUMMARY_NAME = "calibration_summary.json"


@dataclass(frozen=True)
class _DataSet:
    """How to read a data set's files and what their labels mean."""

    reader: Any
    file_ending: str
    regions: list[Region] | None
    ignore_label: int | None


def evaluate_folder(
    gt_folder: str | Path,
    pred_folder: str | Path,
    *,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    num_bins: int = 15,
) -> FolderResult:
    """Calibration and Dice of every case in a folder of nnU-Net predictions made with ``--save_probabilities``.

    A case that cannot be evaluated is named in ``skipped`` with the reason; the others are evaluated all the same.

    Args:
        gt_folder: reference segmentations, ``CASE<file_ending>``.
        pred_folder: predicted segmentations of the same names and the probabilities, ``CASE.npz``.
        dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``.
        plans: the ``plans.json`` whose reader is used; by default the one in ``pred_folder``, and without any the
            reader that fits the file ending.
        num_bins: M.

    Raises:
        FileNotFoundError: a folder or ``dataset.json`` is missing.
        ValueError: the folders hold no case at all.
    """
    gt_folder, pred_folder = Path(gt_folder), Path(pred_folder)
    for folder in (gt_folder, pred_folder):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    dataset_file = Path(dataset_json) if dataset_json else pred_folder / "dataset.json"
    plans_file = Path(plans) if plans else pred_folder / "plans.json"
    if not dataset_file.is_file():
        raise FileNotFoundError(f"{dataset_file} does not exist; name the data set's dataset.json with -djfile.")
    if plans is not None and not plans_file.is_file():
        raise FileNotFoundError(f"{plans_file} does not exist (-pfile).")

    settings = _read_dataset_json(dataset_file)
    ending = settings["file_ending"]
    names = {path.name.removesuffix(ending) for path in gt_folder.glob(f"*{ending}")}
    names |= {path.stem for path in pred_folder.glob("*.npz")}
    if not names:
        raise ValueError(f"No case found: neither *{ending} in {gt_folder} nor *.npz in {pred_folder}.")
    data_set = _read_data_set(settings, plans_file, next(iter(sorted(gt_folder.glob(f"*{ending}"))), None))

    cases: list[Case] = []
    skipped: dict[str, str] = {}
    progress: Iterable[str] = tqdm(sorted(names), desc="evaluating", unit="case")
    for name in progress:
        case = Case(name, gt_folder / (name + ending), pred_folder / (name + ending), pred_folder / f"{name}.npz")
        try:
            case.result = _evaluate_files(case, data_set, num_bins)
            cases.append(case)
        except Exception as error:  # noqa: BLE001 - a bad case must not take the others' results with it
            skipped[name] = f"{type(error).__name__}: {error}"
    return FolderResult(
        cases=cases,
        skipped=skipped,
        settings={
            "gt_folder": str(gt_folder),
            "pred_folder": str(pred_folder),
            "dataset_json": str(dataset_file),
            "plans": str(plans_file) if plans_file.is_file() else None,
            "bins": num_bins,
        },
        channel_labels=settings["labels"],
    )


def _read_dataset_json(file: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    for key in ("labels", "file_ending"):
        if key not in settings:
            raise ValueError(f"{file} is no dataset.json of nnU-Net: it has no {key!r}.")
    return settings


def _read_data_set(settings: dict[str, Any], plans_file: Path, example: Path | None) -> _DataSet:
    labels = LabelManager(settings["labels"], regions_class_order=settings.get("regions_class_order"))
    if plans_file.is_file():
        reader = PlansManager(str(plans_file)).image_reader_writer_class()
    else:
        reader = determine_reader_writer_from_dataset_json(
            settings, None if example is None else str(example), verbose=False
        )()
    regions = None
    if labels.has_regions:
        regions = [region if isinstance(region, tuple) else (region,) for region in labels.foreground_regions]
    return _DataSet(reader, settings["file_ending"], regions, labels.ignore_label)


def _evaluate_files(case: Case, data_set: _DataSet, num_bins: int) -> CaseResult:
    for file, meaning in (
        (case.reference_file, "reference"),
        (case.prediction_file, "predicted segmentation"),
        (case.probabilities_file, "probabilities (predict with --save_probabilities)"),
    ):
        if not file.is_file():
            raise FileNotFoundError(f"{file} does not exist: no {meaning}.")
    return evaluate_case(
        _read_probabilities(case.probabilities_file),
        _read_labels(case.reference_file, data_set.reader),
        _read_labels(case.prediction_file, data_set.reader),
        regions=data_set.regions,
        ignore_label=data_set.ignore_label,
        num_bins=num_bins,
    )


def _read_labels(file: Path, reader: Any) -> NDArray[np.integer]:
    labels, _ = reader.read_seg(str(file))
    whole: NDArray[np.integer] = labels[0].astype(np.int64)
    if not np.array_equal(whole, labels[0]):
        raise ValueError(f"{file} holds labels that are not whole numbers.")
    return whole


def _read_probabilities(file: Path) -> NDArray[np.floating]:
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is damaged or no .npz file: not a zip archive.")
    try:
        with np.load(file, allow_pickle=False) as archive:
            if "probabilities" in archive:
                probabilities: NDArray[np.floating] = archive["probabilities"]
                return probabilities
            keys = ", ".join(archive) or "nothing"
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    raise ValueError(f"{file} holds {keys}; expected the key 'probabilities'.")
