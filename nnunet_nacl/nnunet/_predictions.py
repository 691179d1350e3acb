"""Predictions that nnU-Net has saved, with their ground truth: folders, and the validation cases of a model."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input, file_state, link_or_copy, read_json, whole_file
from nnunet_nacl.nnunet._data import SPLITS_NAME, read_splits
from nnunet_nacl.nnunet._dataset import DataSet, DatasetJson, Labels
from nnunet_nacl.nnunet._images import write_labels
from nnunet_nacl.nnunet._names import ModelName, fold_folder, model_folder, nnunet_folder

CALIBRATED_NAME = "posthoc_applied.json"
"""In a calibrated folder: the fit that it was calibrated with."""
DECODED_NAME = "decoded.json"
"""In a folder whose segmentations are not the argmax of its probabilities: the thresholds of each case."""

_VALIDATION = ("validation", "validation_calibrated")  # in a fold's folder: as nnU-Net predicts, and once calibrated


@dataclass(frozen=True)
class Thresholds:
    """What the probabilities of a case's structures exceed where its segmentation has them.

    Attributes:
        values: of each class k ≥ 1, or of each region.
        inclusive: whether a probability that equals the threshold is enough.
    """

    values: tuple[float, ...]
    inclusive: bool

    def are_exceeded(self, p: NDArray[np.floating], structure: NDArray[np.integer] | int) -> NDArray[np.bool_]:
        """Whether probabilities (n,) exceed the thresholds of their structures, numbered (n,) from 0, or of one."""
        thresholds = np.array(self.values)[structure]
        exact = p.astype(np.float64)  # or the thresholds would be rounded
        exceeded: NDArray[np.bool_] = exact >= thresholds if self.inclusive else exact > thresholds
        return exceeded


@dataclass(frozen=True)
class _DecodedCase:
    thresholds: tuple[float, ...]


@dataclass(frozen=True)
class _Decoded:
    inclusive: bool
    cases: dict[str, _DecodedCase]


@dataclass(frozen=True)
class CaseFiles:
    """A case's name and files, which may be missing.

    Attributes:
        name: of the case.
        ground_truth: its label map.
        prediction: the saved segmentation.
        probabilities: ``CASE.npz``.
        thresholds: of a segmentation that ``nnunet_nacl decode`` has written; None for nnU-Net's own, the argmax.
    """

    name: str
    ground_truth: Path
    prediction: Path
    probabilities: Path
    thresholds: Thresholds | None = None

    @property
    def is_predicted(self) -> bool:
        return self.prediction.exists() or self.probabilities.exists()

    def missing(self, *, truth: bool = True) -> str | None:
        """Which file is missing or cannot be read, if one is; ``truth`` is whether ground truth is needed."""
        try:
            if truth:
                check_input(self.ground_truth, ": no ground truth.")
            check_input(self.prediction, ": no predicted segmentation.")
            check_input(self.probabilities, f": no probabilities; {_how_to_save(self.probabilities.parent)}.")
        except OSError as error:
            return str(error)
        return None

    def states(self) -> dict[str, list[str | int] | None]:
        """Path, size and time of change of each file, by which a changed file is known; None if it is missing."""
        files = {"reference": self.ground_truth, "prediction": self.prediction, "probabilities": self.probabilities}
        return {role: file_state(file) for role, file in files.items()}


def _how_to_save(folder: Path) -> str:
    """How nnU-Net saves the probabilities that a folder lacks."""
    model = ModelName.of(folder)
    if folder.name != "validation" or model is None:
        return "predict with nnUNetv2_predict --save_probabilities"
    fold = folder.resolve().parent.name.removeprefix("fold_")
    return (
        f"validate with nnUNetv2_train {model.dataset or 'DATASET'} {model.configuration} {fold} -tr {model.trainer} "
        f"-p {model.plans} --val --npz"
    )


@dataclass(frozen=True)
class Predictions:
    """Segmentations and softmax probabilities that nnU-Net has saved, and the ground truth to compare them with.

    Make one with :meth:`of_folder`, :meth:`of_model` or :meth:`of_validation`.
    """

    groups: dict[str, list[CaseFiles]]
    gt_folder: Path
    pred_folders: tuple[Path, ...]
    dataset_json: Path
    plans: Path | None
    model_folder: Path | None = None

    @property
    def cases(self) -> list[CaseFiles]:
        """The cases of all groups, in the order of their names."""
        return sorted((case for group in self.groups.values() for case in group), key=lambda case: case.name)

    @classmethod
    def of_folder(
        cls,
        gt_folder: str | Path,
        pred_folder: str | Path,
        *,
        dataset_json: str | Path | None = None,
        plans: str | Path | None = None,
    ) -> "Predictions":
        """A folder of predictions made with ``--save_probabilities``.

        Args:
            gt_folder: label maps, ``CASE<file_ending>``.
            pred_folder: predicted segmentations of the same names, and the probabilities, ``CASE.npz``.
            dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``, or in the model's
                folder if that is a validation folder.
            plans: the ``plans.json`` whose reader is used; by default the one beside ``dataset.json``. Without any, the
                reader is chosen by the file ending.

        Raises:
            ValueError: ``pred_folder`` holds no probabilities, or is given as its own ground truth.
        """
        ground_truth, predictions = _folder(gt_folder), _folder(pred_folder)
        if ground_truth.samefile(predictions):
            raise ValueError(f"{predictions} is given as predictions and as their ground truth.")
        if not any(predictions.glob("*.npz")):
            reason = f"; {_how_to_save(predictions)}."
            if any(ground_truth.glob("*.npz")):
                reason = f", but {ground_truth} does. The folder of the ground truth comes first, then the predictions."
            raise ValueError(f"{predictions} holds no probabilities (.npz){reason}")
        described, plans_file = _descriptions(predictions, dataset_json, plans)
        cases = _find_cases(ground_truth, predictions, described.file_ending)
        return cls({"": cases}, ground_truth, (predictions,), described.file, plans_file)

    @classmethod
    def of_model(
        cls,
        dataset: str | int,
        configuration: str,
        *,
        trainer: str = "nnUNetTrainer",
        plans: str = "nnUNetPlans",
        folds: Sequence[int | str] = (0, 1, 2, 3, 4),
        validation: str = "validation",
    ) -> "Predictions":
        """The validation cases of a model trained with ``nnUNetv2_train ... --npz``.

        The ground truth is what nnU-Net keeps with the preprocessed data. Needs nnU-Net's environment variables.
        """
        model = model_folder(dataset, configuration, trainer=trainer, plans=plans)
        preprocessed = nnunet_folder("nnUNet_preprocessed") / model.parent.name
        return cls.of_validation(model, preprocessed, folds, validation=validation)

    @classmethod
    def of_validation(
        cls,
        model_folder: str | Path,
        preprocessed_folder: str | Path,
        folds: Sequence[int | str],
        *,
        validation: str = "validation",
    ) -> "Predictions":
        """As :meth:`of_model`, of folders.

        Raises:
            FileNotFoundError: a folder is missing.
            ValueError: no fold, one twice, no case at all, or a case that is in two folds.
        """
        if not folds or len(set(map(str, folds))) < len(folds):
            raise ValueError(f"expected one or more folds, each once; got {', '.join(map(str, folds)) or 'none'}.")
        model, ground_truth = _folder(model_folder), _folder(Path(preprocessed_folder) / "gt_segmentations")
        ending = DatasetJson.read(model / "dataset.json").file_ending
        groups: dict[str, list[CaseFiles]] = {}
        seen: dict[str, Path] = {}
        folders = [fold_folder(model, fold) / validation for fold in folds]
        for fold, folder in zip(folds, folders, strict=True):
            if not folder.is_dir():
                present = ", ".join(sorted(path.parent.name for path in model.glob(f"fold_*/{validation}")))
                raise FileNotFoundError(f"{folder} is not a folder. Validated: {present or 'no fold'}.")
            if not any(folder.glob("*.npz")):
                raise ValueError(f"{folder} holds no probabilities (.npz); {_how_to_save(folder)}.")
            expected = _expected_cases(ground_truth.parent / SPLITS_NAME, str(fold))
            cases = _find_cases(ground_truth, folder, ending)
            groups[f"fold {fold}"] = [case for case in cases if case.is_predicted or case.name in expected]
            for case in groups[f"fold {fold}"]:
                if seen.setdefault(case.name, folder) != folder:
                    raise ValueError(
                        f"the case {case.name} is in {seen[case.name]} and in {folder}: folds must not share cases."
                    )
        return cls(groups, ground_truth, tuple(folders), model / "dataset.json", model / "plans.json", model)

    def to_fit_to(self) -> "Predictions":
        """Only the cases that have a prediction and ground truth; if none has both, those with a prediction."""
        predicted = {name: [case for case in group if case.is_predicted] for name, group in self.groups.items()}
        both = {name: [case for case in group if case.ground_truth.exists()] for name, group in predicted.items()}
        return replace(self, groups=both if any(both.values()) else predicted)

    def read_data_set(self) -> DataSet:
        """How to read the files and what their labels mean; errors as those of :meth:`DataSet.read`."""
        return DataSet.read(self.dataset_json, self.plans, _smallest_first([case.ground_truth for case in self.cases]))


@dataclass(frozen=True)
class PredictionFolder:
    """A folder of predictions made with ``--save_probabilities``."""

    folder: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    cases: list[CaseFiles]

    @classmethod
    def read(
        cls, folder: str | Path, *, dataset_json: str | Path | None = None, plans: str | Path | None = None
    ) -> "PredictionFolder":
        """Find its cases; arguments and errors as for :meth:`Predictions.of_folder`."""
        folder = _folder(folder)
        described, plans_file = _descriptions(folder, dataset_json, plans)
        cases = _find_cases(folder, folder, described.file_ending)
        examples = _smallest_first([case.prediction for case in cases])
        return cls(folder, described.file, plans_file, DataSet.read(described.file, plans_file, examples), cases)

    @property
    def is_calibrated(self) -> bool:
        """Whether ``nnunet_nacl apply`` has written its probabilities."""
        return (self.folder / CALIBRATED_NAME).is_file()

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of its predictions beside the cases: data set, plans, arguments."""
        arguments = "predict_from_raw_data_args.json"
        described = {"dataset.json": self.dataset_json, "plans.json": self.plans, arguments: self.folder / arguments}
        for name, source in described.items():
            if source is not None and source.is_file():
                _copy(source, folder / name)


def write_prediction(
    case: CaseFiles,
    folder: Path,
    reader: Any,
    *,
    labels: Labels | None = None,
    probabilities: NDArray[np.floating] | None = None,
) -> None:
    """Write a case as nnU-Net does: segmentation, probabilities, properties; each file whole or not at all.

    Args:
        case: that it is made of. What is not given is the same as there: probabilities are a hard link then, or a copy
            where the file system has none.
        folder: to write into.
        reader: an object of one of nnU-Net's reader classes.
        labels: (Z, Y, X).
        probabilities: (C, Z, Y, X).
    """
    copied = [case.probabilities.with_suffix(".pkl")]
    if labels is not None:
        write_labels(labels, case.prediction, reader, folder / case.prediction.name)
    else:
        copied.append(case.prediction)
        if case.prediction.suffix.lower() in {".tif", ".tiff"}:
            copied.append(case.prediction.with_suffix(".json"))  # where nnU-Net keeps the spacing
    target = folder / case.probabilities.name
    if probabilities is None:
        link_or_copy(case.probabilities, target)
    else:
        with whole_file(target) as partial, partial.open("wb") as stream:
            np.savez_compressed(stream, probabilities=probabilities)
    for file in copied:
        if file.is_file():
            _copy(file, folder / file.name)


def _folder(path: str | Path) -> Path:
    if not Path(path).is_dir():
        raise FileNotFoundError(f"{path} is not a folder.")
    return Path(path)


def _descriptions(
    folder: Path, dataset_json: str | Path | None, plans: str | Path | None
) -> tuple[DatasetJson, Path | None]:
    """``dataset.json`` and, if there is one, ``plans.json`` of a folder of predictions."""
    beside = folder
    if folder.name in _VALIDATION and not (folder / "dataset.json").is_file():
        beside = folder.resolve().parent.parent
    dataset_file = Path(dataset_json or beside / "dataset.json")
    check_input(dataset_file, "; name the data set's dataset.json with -djfile.")
    plans_file = Path(plans or beside / "plans.json")
    return DatasetJson.read(dataset_file), plans_file if plans or plans_file.is_file() else None


def _find_cases(gt_folder: Path, pred_folder: Path, ending: str) -> list[CaseFiles]:
    """Every case that has ground truth, a prediction or probabilities, in the order of their names."""
    thresholds, decoded = {}, pred_folder / DECODED_NAME
    if decoded.exists():
        read = read_json(decoded, _Decoded)
        thresholds = {name: Thresholds(case.thresholds, read.inclusive) for name, case in read.cases.items()}
    found = (file for folder in (gt_folder, pred_folder) for file in folder.glob(f"*{ending}"))
    names = {file.name.removesuffix(ending) for file in found} | {file.stem for file in pred_folder.glob("*.npz")}
    cases = []
    for name in sorted(name for name in names if not name.startswith(".")):
        file = f"{name}{ending}"
        probabilities = pred_folder / f"{name}.npz"
        cases.append(CaseFiles(name, gt_folder / file, pred_folder / file, probabilities, thresholds.get(name)))
    if not cases:
        raise ValueError(f"No case found: no *{ending} in {gt_folder}, no *{ending} or *.npz in {pred_folder}.")
    return cases


def _copy(source: Path, target: Path) -> None:
    with whole_file(target) as partial:
        shutil.copy2(source, partial)


def _smallest_first(files: Sequence[Path]) -> list[Path]:
    return sorted((file for file in files if file.is_file()), key=lambda file: file.stat().st_size)


def _expected_cases(splits_file: Path, fold: str) -> set[str]:
    """The cases that a fold validates on; none are known for ``all`` or without nnU-Net's splits."""
    if not fold.isdigit() or not splits_file.is_file():
        return set()
    return {case for split in read_splits(splits_file)[int(fold) : int(fold) + 1] for case in split["val"]}
