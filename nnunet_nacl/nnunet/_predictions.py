"""Predictions that nnU-Net has saved, with their ground truth: folders, and the validation cases of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from nnunet_nacl.files import check_input, is_readable, is_there
from nnunet_nacl.nnunet._dataset import DataSet, DatasetJson
from nnunet_nacl.nnunet._marks import Thresholds, read_thresholds
from nnunet_nacl.nnunet._names import dataset_name, model_folder_name, nnunet_folder
from nnunet_nacl.nnunet._splits import SPLITS_NAME, read_splits
from nnunet_nacl.nnunet._trained import validation_folder

VALIDATION = "validation"
CALIBRATED_VALIDATION = "validation_calibrated"
"""In a fold's folder: predictions of its validation cases, as nnU-Net makes them and once calibrated."""


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
        return is_there(self.prediction) or is_there(self.probabilities)

    def missing(self, *, truth: bool = True) -> str | None:
        """Which file is missing or cannot be read, if one is.

        Args:
            truth: whether ground truth is needed.
        """
        for file, content in (
            *([(self.ground_truth, "ground truth")] if truth else []),
            (self.prediction, "predicted segmentation"),
            (self.probabilities, "probabilities (predict with --save_probabilities)"),
        ):
            try:
                check_input(file, f": no {content}.")
            except OSError as error:  # noqa: PERF203 - of three files
                return str(error)
        return None

    def states(self) -> dict[str, list[str | int] | None]:
        """Path, size and time of change of each file, by which a changed file is known; None if it is missing."""
        files = {"reference": self.ground_truth, "prediction": self.prediction, "probabilities": self.probabilities}
        return {role: file_state(file) for role, file in files.items()}


def file_state(file: Path) -> list[str | int] | None:
    """Path, size and time of change, by which a changed file is known; None if it is missing."""
    try:
        status = file.stat()
    except OSError:
        return None
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


@dataclass(frozen=True)
class Predictions:
    """Segmentations and softmax probabilities that nnU-Net has saved, and the ground truth to compare them with.

    Make one with :meth:`of_folder`, :meth:`of_model` or :meth:`of_validation`.

    Attributes:
        groups: the cases of each fold, by ``fold 0``, …; of a folder a single group with an empty name.
        gt_folder: with the ground truth.
        pred_folders: with the predictions, one for each group.
        dataset_json: the data set's ``dataset.json``.
        plans: the ``plans.json`` that names the reader, if there is one.
        model_folder: of validation cases, the model's folder.
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
            FileNotFoundError: a folder, ``dataset.json`` or ``plans`` is missing.
            ValueError: ``pred_folder`` holds no probabilities, or the mark of a decoded folder is damaged.
        """
        ground_truth, predictions = Path(gt_folder), Path(pred_folder)
        _check_folders(ground_truth, predictions)
        if not any(predictions.glob("*.npz")):
            reason = "; predict with nnUNetv2_predict --save_probabilities."
            if any(ground_truth.glob("*.npz")):
                reason = f", but {ground_truth} does. The folder of the ground truth comes first, then the predictions."
            raise ValueError(f"{predictions} holds no probabilities (.npz){reason}")
        dataset_file, plans_file = dataset_files(predictions, dataset_json, plans)
        cases = find_cases(ground_truth, predictions, DatasetJson.read(dataset_file).file_ending)
        return cls({"": cases}, ground_truth, (predictions,), dataset_file, plans_file)

    @classmethod
    def of_model(
        cls,
        dataset: str | int,
        configuration: str,
        *,
        trainer: str = "nnUNetTrainer",
        plans: str = "nnUNetPlans",
        folds: Sequence[int | str] = (0, 1, 2, 3, 4),
        validation: str = VALIDATION,
    ) -> "Predictions":
        """The validation cases of a model trained with ``nnUNetv2_train ... --npz``.

        The ground truth is what nnU-Net keeps with the preprocessed data. Needs nnU-Net's environment variables.

        Args:
            dataset: name or number.
            configuration: ``2d``, ``3d_fullres``, …
            trainer: name of the trainer.
            plans: name of the plans.
            folds: whose validation cases to take.
            validation: the folder of a fold with its predictions; ``validation_calibrated`` holds calibrated ones.

        Raises:
            FileNotFoundError: a folder is missing.
            RuntimeError: nnU-Net's environment variables are not set.
            ValueError: nnU-Net knows no such data set, or there is no case at all.
        """
        preprocessed, results = nnunet_folder("nnUNet_preprocessed"), nnunet_folder("nnUNet_results")
        name = dataset_name(dataset)
        model = results / name / model_folder_name(trainer, plans, configuration)
        return cls.of_validation(model, preprocessed / name, folds, validation=validation)

    @classmethod
    def of_validation(
        cls,
        model_folder: str | Path,
        preprocessed_folder: str | Path,
        folds: Sequence[int | str],
        *,
        validation: str = VALIDATION,
    ) -> "Predictions":
        """As :meth:`of_model`, of folders.

        Args:
            model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
            preprocessed_folder: the data set's, with ``gt_segmentations``.
            folds: whose validation cases to take.
            validation: as there.

        Raises:
            FileNotFoundError: a folder is missing.
            ValueError: no fold, no case at all, or a case that is in two folds.
        """
        if not folds:
            raise ValueError("folds must name at least one fold; got none.")
        model, ground_truth = Path(model_folder), Path(preprocessed_folder) / "gt_segmentations"
        found = {f"fold {fold}": validation_folder(model, fold).with_name(validation) for fold in folds}
        _check_folders(model, ground_truth, *found.values())
        ending = DatasetJson.read(model / "dataset.json").file_ending
        groups = {}
        for fold, (group, folder) in zip(folds, found.items(), strict=True):
            expected = _expected_cases(ground_truth.parent / SPLITS_NAME, str(fold))
            cases = find_cases(ground_truth, folder, ending)
            groups[group] = [case for case in cases if case.is_predicted or case.name in expected]
        predictions = cls(
            groups, ground_truth, tuple(found.values()), model / "dataset.json", model / "plans.json", model
        )
        predictions.check_shared_cases()
        if not any(case.is_predicted for case in predictions.cases):
            raise ValueError(f"No case found in {', '.join(map(str, found.values()))}; train or validate with --npz.")
        return predictions

    def check_shared_cases(self) -> None:
        """Raise a ValueError if a case is in two groups."""
        for case, following in pairwise(self.cases):
            if case.name == following.name:
                raise ValueError(
                    f"the case {case.name} is in {case.probabilities.parent} and in "
                    f"{following.probabilities.parent}: folds must not share cases."
                )

    def to_fit_to(self) -> "Predictions":
        """Only the cases that have a prediction and ground truth; if none has both, those with a prediction."""
        predicted = {name: [case for case in group if case.is_predicted] for name, group in self.groups.items()}
        both = {name: [case for case in group if is_there(case.ground_truth)] for name, group in predicted.items()}
        return replace(self, groups=both if any(both.values()) else predicted)

    def read_data_set(self) -> DataSet:
        """How to read the files and what their labels mean.

        Raises:
            FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
            ValueError: one of them is not what it should be.
        """
        label_maps = [case.ground_truth for case in self.cases if is_readable(case.ground_truth)]
        return DataSet.read(self.dataset_json, self.plans, sorted(label_maps, key=lambda file: file.stat().st_size))


def dataset_files(
    pred_folder: Path, dataset_json: str | Path | None, plans: str | Path | None
) -> tuple[Path, Path | None]:
    """``dataset.json`` and, if there is one, ``plans.json`` of a folder of predictions.

    Args:
        pred_folder: predictions; of a validation folder, the files are in the model's folder.
        dataset_json: the user's choice.
        plans: the user's choice.

    Raises:
        FileNotFoundError: there is no ``dataset.json``.
    """
    beside = pred_folder
    if pred_folder.name in {VALIDATION, CALIBRATED_VALIDATION} and not (pred_folder / "dataset.json").is_file():
        beside = pred_folder.resolve().parent.parent
    dataset_file = Path(dataset_json) if dataset_json else beside / "dataset.json"
    check_input(dataset_file, "; name the data set's dataset.json with -djfile.")
    plans_file = Path(plans) if plans else beside / "plans.json"
    return dataset_file, plans_file if plans or plans_file.is_file() else None


def find_cases(gt_folder: Path, pred_folder: Path, ending: str) -> list[CaseFiles]:
    """Every case that has ground truth, a prediction or probabilities, in the order of their names.

    Raises:
        ValueError: the folders hold no case at all, or the mark of a decoded folder is damaged.
    """
    thresholds = read_thresholds(pred_folder)
    names = {
        file.name.removesuffix(ending) for folder in (gt_folder, pred_folder) for file in folder.glob(f"*{ending}")
    }
    names |= {file.stem for file in pred_folder.glob("*.npz")}
    cases = [
        CaseFiles(
            name,
            gt_folder / f"{name}{ending}",
            pred_folder / f"{name}{ending}",
            pred_folder / f"{name}.npz",
            thresholds.get(name),
        )
        for name in sorted(names)
        if not name.startswith(".")
    ]
    if not cases:
        raise ValueError(f"No case found: no *{ending} in {gt_folder}, no *{ending} or *.npz in {pred_folder}.")
    return cases


def _check_folders(*folders: Path) -> None:
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")


def _expected_cases(splits_file: Path, fold: str) -> set[str]:
    """The cases that a fold validates on; none are known for ``all`` or without nnU-Net's splits."""
    if not fold.isdigit() or not splits_file.is_file():
        return set()
    splits = read_splits(splits_file)
    return set(splits[int(fold)]["val"]) if int(fold) < len(splits) else set()
