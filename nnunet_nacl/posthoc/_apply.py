"""Writes a calibrated copy of a folder of predictions."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.evaluation import canonical_labels, check_shape
from nnunet_nacl.files import check_input, is_full, is_readable, whole_folder
from nnunet_nacl.metrics import top_label
from nnunet_nacl.nnunet import (
    ArrayChannels,
    CaseFiles,
    DataSet,
    DatasetJson,
    LabelMeaning,
    Model,
    check_written,
    dataset_files,
    find_cases,
    read_labels,
)
from nnunet_nacl.posthoc._result import APPLIED_NAME, Fit, Skipped
from nnunet_nacl.posthoc._surroundings import Images
from nnunet_nacl.posthoc._voxels import checked_blocks, open_channels

_ARGUMENTS = "predict_from_raw_data_args.json"


@dataclass(frozen=True)
class Applied:
    """What :func:`apply_folder` did.

    Attributes:
        output: the new folder.
        cases: those that were calibrated.
        skipped: those that could not be, and why.
        fitted_to_same_cases: those of ``cases`` that the method was fitted to, which takes ``force``.
        not_compared: of data set, trainer, plans and configuration, what is not known of both fit and folder.
    """

    output: Path
    cases: list[str]
    skipped: list[Skipped]
    fitted_to_same_cases: list[str]
    not_compared: list[str]

    def summary(self) -> str:
        """A few lines for people."""
        lines = [f"Calibrated {len(self.cases)} of {len(self.cases) + len(self.skipped)} cases into {self.output}."]
        if self.not_compared:
            lines.append(f"Not known of both the fit and the folder, so not compared: {', '.join(self.not_compared)}.")
        if self.fitted_to_same_cases:
            lines.append(
                f"{len(self.fitted_to_same_cases)} of them are cases that it was fitted to: they do not test it."
            )
        lines += [f"Not calibrated: {entry.case}: {entry.reason}" for entry in self.skipped]
        return "\n".join(lines)


def apply_folder(
    fit_file: str | Path,
    pred_folder: str | Path,
    output: str | Path,
    *,
    images: str | Path | None = None,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    force: bool = False,
    overwrite: bool = False,
) -> Applied:
    """Write a calibrated copy of a folder of nnU-Net predictions made with ``--save_probabilities``.

    It holds what nnU-Net's own folders hold, so that everything that reads those reads it: ``CASE.npz``, segmentations
    (made anew where the method can change them), ``CASE.pkl``, ``dataset.json``, ``plans.json``; and
    ``posthoc_applied.json``, which says how it came to be. It appears whole or not at all. A case that cannot be
    calibrated is not in it, but in ``skipped`` with the reason.

    Args:
        fit_file: what :func:`fit` wrote.
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to make, by one process at a time.
        images: folder with the images, if the fit looks at them.
        dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``.
        plans: the ``plans.json`` whose reader is used; by default the one in ``pred_folder``.
        force: apply it to cases that it was fitted to as well, and say so in ``posthoc_applied.json``.
        overwrite: replace a calibrated copy that is there, once the new one is whole.

    Raises:
        FileNotFoundError: a file or folder is missing.
        FileExistsError: ``output`` exists, or is to be replaced and is no calibrated copy.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: the fit is of another model or label set or of the same cases, the folder is calibrated already,
            or no case can be calibrated.
    """
    fit_file, predictions, output = Path(fit_file), Path(pred_folder), Path(output)
    fit = Fit.read(fit_file)
    if not predictions.is_dir():
        raise FileNotFoundError(f"{predictions} is not a folder.")
    if _is_calibrated(predictions):
        raise ValueError(f"{predictions} is calibrated already ({APPLIED_NAME}).")
    dataset_file, plans_file = dataset_files(predictions, dataset_json, plans)
    cases = find_cases(predictions, predictions, DatasetJson.read(dataset_file).file_ending)
    examples = [case.prediction for case in cases if is_readable(case.prediction)]
    data_set = DataSet.read(dataset_file, plans_file, sorted(examples, key=lambda file: file.stat().st_size))
    model = Model.of_folder(predictions, plans_file, data_set)
    image_folder = _images(fit, fit_file, images, data_set, dataset_file)
    seen = _check_fit(fit, fit_file, predictions, model, [case.name for case in cases], force=force)

    done: list[str] = []
    skipped: list[Skipped] = []
    with whole_folder(output, _is_calibrated, overwrite=overwrite) as partial:
        for case in tqdm(cases, desc="calibrating", unit="case"):
            reason = _attempt(case, fit, data_set, image_folder, partial)
            if reason is None:
                done.append(case.name)
            else:
                skipped.append(Skipped(case.name, reason))
        if not done:
            first = skipped[0]
            raise ValueError(f"None of {len(cases)} cases can be calibrated; the first: {first.case}: {first.reason}")
        result = Applied(output, done, skipped, [name for name in seen if name in done], fit.model.unknown(model))
        _write_description(result, fit, {"fit_file": str(fit_file), "pred_folder": str(predictions)}, partial)
        if (predictions / _ARGUMENTS).is_file():
            shutil.copyfile(predictions / _ARGUMENTS, partial / _ARGUMENTS)
        shutil.copyfile(dataset_file, partial / "dataset.json")
        if plans_file is not None:
            shutil.copyfile(plans_file, partial / "plans.json")
    return result


def calibration_of(folder: Path) -> str | None:
    """How a folder of predictions was calibrated by :func:`apply_folder`: method and parameters; None if it was not.

    Raises:
        ValueError: ``posthoc_applied.json`` is damaged.
    """
    if not _is_calibrated(folder):
        return None
    calibrator = Fit.read(folder / APPLIED_NAME).calibrator
    parameters = json.dumps(calibrator.parameters(), sort_keys=True)
    return f"{calibrator.method} {hashlib.sha256(parameters.encode()).hexdigest()[:12]}"


def _is_calibrated(folder: Path) -> bool:
    return (folder / APPLIED_NAME).is_file()


def _images(
    fit: Fit, fit_file: Path, images: str | Path | None, data_set: DataSet, dataset_file: Path
) -> Images | None:
    wanted = fit.calibrator.num_image_channels
    if not wanted:
        if images is not None:
            raise ValueError(f"{fit_file} was fitted without images, so give none; got {images}.")
        return None
    if images is None:
        raise ValueError(f"{fit_file} was fitted with the images of the cases, so it needs their folder, too (-i).")
    image_folder = Images.find(Path(images), data_set, dataset_file)
    if image_folder.channels != wanted:
        raise ValueError(
            f"{fit_file} was fitted to images of {wanted} channels; {dataset_file} has {image_folder.channels}."
        )
    return image_folder


def _check_fit(
    fit: Fit, fit_file: Path, predictions: Path, model: Model, cases: Sequence[str], *, force: bool
) -> list[str]:
    """The cases that it was fitted to, if that is forced; raises a ValueError if it must not be applied."""
    difference = fit.model.difference(model)
    if difference is not None:
        raise ValueError(f"{fit_file} cannot be applied to {predictions}: it was fitted to {difference}.")
    seen = sorted(set(cases) & set(fit.cases))
    if seen and not force:
        shown = ", ".join(seen[:5]) + (", …" if len(seen) > 5 else "")
        raise ValueError(
            f"{fit_file} was fitted to {len(seen)} of the {len(cases)} cases in {predictions}: {shown}. Metrics "
            "of these would be too good; --force applies it nevertheless and marks the new folder."
        )
    return seen


def _write_description(result: Applied, fit: Fit, places: dict[str, str], folder: Path) -> None:
    applied = {
        **places,
        "cases": result.cases,
        "skipped": [asdict(entry) for entry in result.skipped],
        "fitted_to_same_cases": result.fitted_to_same_cases,
        "not_compared": result.not_compared,
        "versions": {"nnunet_nacl": __version__},
    }
    (folder / APPLIED_NAME).write_text(json.dumps({**fit.to_json(), "applied": applied}, indent=2) + "\n")


def _attempt(case: CaseFiles, fit: Fit, data_set: DataSet, images: Images | None, folder: Path) -> str | None:
    """Calibrate a case, or return the reason why it cannot be: a bad case must not take the others with it."""
    try:
        _apply_case(case, fit, data_set, images, folder)
    except OSError as error:
        if is_full(error):  # that is not the case's fault
            raise
        return str(error)
    except ValueError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001
        return f"{case.probabilities}: {type(error).__name__}: {error}"
    return None


def _apply_case(case: CaseFiles, fit: Fit, data_set: DataSet, images: Images | None, folder: Path) -> None:
    for file in (case.probabilities, case.prediction):
        check_input(file)
    meaning = data_set.meaning
    calibrator = fit.calibrator
    channels = open_channels(case.probabilities, meaning)
    probabilities = np.empty(channels.shape, np.float32)
    flat = probabilities.reshape(channels.shape[0], -1)
    for channel, part, block in checked_blocks(channels, calibrator.link):
        flat[channel, part] = block
    saved, spacing = read_labels(case.prediction, data_set.reader)
    check_shape(probabilities.shape, saved.shape, str(case.probabilities))
    canonical_labels(saved, meaning, None, str(case.prediction))
    del saved
    image = None if images is None else images.read(case.name, probabilities.shape)
    calibrator.apply_to_case(probabilities, image=image, spacing_mm=spacing)
    calibrated = ArrayChannels(probabilities, f"{case.probabilities}, once calibrated")
    for _ in checked_blocks(calibrated, calibrator.link):
        pass

    # Either all files of a case or none: those of a case that fails are removed.
    written = [folder / file.name for file in (case.probabilities, case.prediction)]
    pickle = case.probabilities.with_suffix(".pkl")
    try:
        if calibrator.keeps_labels:
            shutil.copy2(case.prediction, written[1])
        else:
            _write_labels(_labels(probabilities, meaning), case.prediction, data_set.reader, written[1])
        with written[0].open("wb") as stream:
            np.savez_compressed(stream, probabilities=probabilities)
        if pickle.is_file():
            shutil.copy2(pickle, folder / pickle.name)
    except BaseException:
        for file in (*written, folder / pickle.name):
            file.unlink(missing_ok=True)
        raise


def _labels(probabilities: NDArray[np.float32], meaning: LabelMeaning) -> NDArray[np.unsignedinteger]:
    """The segmentation as nnU-Net makes it: the most probable class, or each region's label over those before it."""
    if meaning.regions is None:
        return top_label(probabilities)[1]
    labels = np.zeros(probabilities.shape[1:], np.min_scalar_type(max(meaning.known)))
    for p, label in zip(probabilities, meaning.written, strict=True):
        labels[p > 0.5] = label
    return labels


def _write_labels(labels: NDArray[np.unsignedinteger], like: Path, reader: Any, file: Path) -> None:
    """Write a segmentation with the geometry of another."""
    try:
        stored, properties = reader.read_seg(str(like))
    except Exception as error:
        raise ValueError(f"{like} cannot be read: {error}") from error
    check_shape((1, *labels.shape), stored.shape[1:], f"the probabilities of {like.name}")
    reader.write_seg(labels, str(file), properties)
    check_written(labels, file, reader)
