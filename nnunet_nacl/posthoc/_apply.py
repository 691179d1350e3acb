"""Writes a calibrated copy of a folder of predictions."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.evaluation import SavedCase, checked_blocks
from nnunet_nacl.files import whole_folder
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    ArrayChannels,
    CaseFiles,
    DataSet,
    Model,
    PredictionFolder,
    nnunet_labels,
    write_prediction,
)
from nnunet_nacl.posthoc._result import Fit
from nnunet_nacl.posthoc._surroundings import Images
from nnunet_nacl.posthoc._written import Skipped, Written, write_cases


@dataclass(frozen=True)
class Applied:
    """What :func:`apply_folder` did.

    Attributes:
        output: the new folder.
        written: which cases were calibrated, and which were not.
        fitted_to_same_cases: those of ``cases`` that the method was fitted to, which takes ``force``.
        not_compared: of data set, trainer, plans and configuration, what is not known of both fit and folder.
    """

    output: Path
    written: Written[None]
    fitted_to_same_cases: list[str]
    not_compared: list[str]

    @property
    def cases(self) -> list[str]:
        """Those that were calibrated."""
        return list(self.written.results)

    @property
    def skipped(self) -> list[Skipped]:
        """Those that could not be, and why."""
        return self.written.skipped

    def summary(self) -> str:
        """A few lines for people."""
        more = []
        if self.not_compared:
            more.append(f"Not known of both the fit and the folder, so not compared: {', '.join(self.not_compared)}.")
        if self.fitted_to_same_cases:
            more.append(
                f"{len(self.fitted_to_same_cases)} of them are cases that it was fitted to: they do not test it."
            )
        return self.written.summary(self.output, *more)


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
    ignore_geometry: bool = False,
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
        ignore_geometry: take segmentations and images as they are, though their spacing, origin or direction differ.

    Raises:
        FileNotFoundError: a file or folder is missing.
        FileExistsError: ``output`` exists, or is to be replaced and is no calibrated copy.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: the fit is of another model or label set or of the same cases, the folder is calibrated already,
            or no case can be calibrated.
    """
    fit_file = Path(fit_file)
    fit = Fit.read(fit_file)
    if _is_calibrated(Path(pred_folder)):
        raise ValueError(f"{pred_folder} is calibrated already ({CALIBRATED_NAME}).")
    predictions = PredictionFolder.read(pred_folder, dataset_json=dataset_json, plans=plans)
    data_set = predictions.data_set
    model = Model.of_folder(predictions.folder, predictions.plans, data_set)
    image_folder = _images(fit, fit_file, images, data_set, predictions.dataset_json)
    names = [case.name for case in predictions.cases]
    seen = _check_fit(fit, fit_file, predictions.folder, model, names, force=force)
    apply = partial(_apply_case, fit=fit, data_set=data_set, images=image_folder, ignore_geometry=ignore_geometry)
    with whole_folder(Path(output), _is_calibrated, overwrite=overwrite) as folder:
        written = write_cases(predictions.cases, apply, folder, doing="calibrating", done="calibrated")
        fitted_to = [name for name in seen if name in written.results]
        result = Applied(Path(output), written, fitted_to, fit.model.unknown(model))
        _write_description(result, fit, {"fit_file": str(fit_file), "pred_folder": str(pred_folder)}, folder)
        predictions.copy_descriptions(folder)
    return result


def calibration_of(folder: Path) -> str | None:
    """How a folder of predictions was calibrated by :func:`apply_folder`: method and parameters; None if it was not.

    Raises:
        ValueError: ``posthoc_applied.json`` is damaged.
    """
    if not _is_calibrated(folder):
        return None
    calibrator = Fit.read(folder / CALIBRATED_NAME).calibrator
    parameters = json.dumps(calibrator.parameters(), sort_keys=True)
    return f"{calibrator.method} {hashlib.sha256(parameters.encode()).hexdigest()[:12]}"


def _is_calibrated(folder: Path) -> bool:
    return (folder / CALIBRATED_NAME).is_file()


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
    (folder / CALIBRATED_NAME).write_text(json.dumps({**fit.to_json(), "applied": applied}, indent=2) + "\n")


def _apply_case(
    files: CaseFiles, folder: Path, *, fit: Fit, data_set: DataSet, images: Images | None, ignore_geometry: bool
) -> None:
    meaning, calibrator = data_set.meaning, fit.calibrator
    case = SavedCase(files, data_set)
    probabilities = case.probabilities(np.float32)
    like = None if ignore_geometry else (files.prediction, case.geometry)
    image = None if images is None else images.read(files.name, probabilities.shape, like)
    calibrator.apply_to_case(probabilities, image=image, spacing_mm=case.geometry.spacing)
    calibrated = ArrayChannels(probabilities, f"{files.probabilities}, once calibrated")
    for _ in checked_blocks(calibrated, regions=meaning.regions is not None):
        pass
    keeps = calibrator.keeps_labels and files.thresholds is None  # decoded ones follow from other probabilities
    labels = None if keeps else nnunet_labels(probabilities, meaning)
    write_prediction(files, folder, data_set.reader, labels=labels, probabilities=probabilities)
