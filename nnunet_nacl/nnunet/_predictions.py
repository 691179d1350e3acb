"""Cases as nnU-Net predicted them, in a folder or in the validation folders of a model's folds."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nnunet_nacl.files import check_input, read_json
from nnunet_nacl.nnunet._case_files import CaseFiles, find_cases
from nnunet_nacl.nnunet._checkpoint import checkpoint_checksum
from nnunet_nacl.nnunet._data_set import DataSet
from nnunet_nacl.nnunet._names import cases_in, nnunet_folder, validates_training_cases
from nnunet_nacl.nnunet._provenance import CALIBRATED_NAME, FOLD_VALIDATION, Provenance
from nnunet_nacl.nnunet._splits import SPLITS_NAME, Split, fold_split
from nnunet_nacl.paths import FileState, unresolved
from nnunet_nacl.typing import ByName


def _validation_cases(folder: Path, fold: str, preprocessed: Path, ending: str) -> list[CaseFiles]:
    """Return the cases in a fold's validation folder, and those that it lacks by the splits, if these are known.

    Raises a ValueError if there are predictions of training cases: nnU-Net never empties a validation folder.
    """
    gt_folder = preprocessed / "gt_segmentations"
    split = Split(train=[], val=[])
    if fold == "all" or (preprocessed / SPLITS_NAME).is_file():
        split = fold_split(preprocessed, cases_in(gt_folder, ending), fold)
    cases = find_cases(folder, gt_folder, ending)
    training = {*split["train"]} - {*split["val"]}
    if seen := [case.name for case in cases if case.is_predicted and case.name in training]:
        raise ValueError(
            f"{folder} has training cases of fold {fold}, by the splits in {preprocessed}: {', '.join(seen)}. If "
            "the fold was trained with these splits, they are left over from an earlier training: remove them. "
            "Otherwise, restore its splits, or evaluate the folder by itself: "
            f"{shlex.join(['nnunet_nacl', 'evaluate', str(gt_folder), str(folder)])}"
        )
    return [case for case in cases if case.is_predicted or case.name in split["val"]]


def _check_validated(folder: Path, fold: str) -> None:
    """Raise an error unless a fold has that validation folder; if calibrated, by the checkpoint that there is now."""
    if not folder.is_dir():
        command = f"nnUNetv2_train ... {fold} --val --npz."
        if folder.name == FOLD_VALIDATION:
            command = f"nnunet_nacl calibrate ... -f {fold} --npz --overwrite."
        raise FileNotFoundError(
            f"{folder} does not exist; a trained fold's cases are predicted by {command}"
        )
    applied = folder / CALIBRATED_NAME
    settings = read_json(applied, ByName)["settings"] if applied.is_file() else {}
    if state := settings.get("checkpoint_file"):
        name, size, changed = state[:3]
        checkpoint = folder.parent / Path(name).name  # the model may have moved
        calibrated = FileState(str(checkpoint.absolute()), size, changed)
        checksum = settings.get("checkpoint_checksum")  # earlier versions kept none
        # A copy may have another time
        if calibrated.has_changed and checkpoint_checksum(checkpoint) != checksum:
            raise ValueError(
                f"{folder} was calibrated before {checkpoint.name} changed: the fold was trained again since, or an "
                "earlier version calibrated it before it was copied. Calibrate it again, with --npz --overwrite."
            )


@dataclass(frozen=True)
class Predictions:
    """Segmentations and probabilities that nnU-Net saved, of a folder or of the validation cases of a model's folds.

    Attributes:
        groups: the cases of each fold, by its name, such as ``0`` or ``all``; those of a folder under the empty text.
        pred_folders: the folder of each group.
        gt_folder: the ground truth of all cases; None where none is needed.
        home: where outputs go by default: the folder of the predictions, or for folds that of their model.
        data_set: how to read the files, and what their labels mean.
    """

    groups: dict[str, list[CaseFiles]]
    pred_folders: tuple[Path, ...]
    gt_folder: Path | None
    home: Path
    data_set: DataSet

    @property
    def cases(self) -> list[CaseFiles]:
        """The cases of all groups, in the order of their names."""
        return list(self.by_name.values())

    @cached_property
    def by_name(self) -> dict[str, CaseFiles]:
        """The cases by their names, in the order of these."""
        by_name = {case.name: case for group in self.groups.values() for case in group}
        return dict(sorted(by_name.items()))

    @classmethod
    def of_folder(cls, gt_folder: str | Path | None, pred_folder: str | Path) -> "Predictions":
        """Pair a folder of predictions (``--save_probabilities``) with one of label maps of the same names, or None.

        Beside the predictions lie the data set's ``dataset.json`` and, if there is one, the ``plans.json`` that says
        which reader to use; a validation folder's lie in that of the model.
        """
        ground_truth = None if gt_folder is None else Path(gt_folder)
        predictions = Path(pred_folder)
        described = predictions / "dataset.json"
        given = unresolved(predictions)
        if given.name.startswith("validation") and not described.is_file():
            described = given.parent.parent / "dataset.json"  # of the model
        problem = ": it says what the labels mean. Copy it and plans.json from the model's folder."
        if ground_truth is not None and any(ground_truth.glob("*.npz")):
            problem = f": the predictions seem to be in {ground_truth}. Ground truth comes first."
        check_input(described, problem)
        data_set = DataSet.read(described)
        groups = {"": find_cases(predictions, ground_truth, data_set.file_ending)}
        return cls(groups, (predictions,), ground_truth, predictions, data_set)

    @classmethod
    def of_model(
        cls,
        model: str | Path,
        folds: Sequence[int | str] = (0, 1, 2, 3, 4),
        *,
        validation: str = "validation",
        preprocessed: str | Path | None = None,
    ) -> "Predictions":
        """Return the validation cases of a model trained with ``nnUNetv2_train ... --npz``; none may be in two folds.

        Args:
            model: its folder; see ``model_folder``.
            folds: their numbers, or ``all``.
            validation: the folder in each fold's.
            preprocessed: the data set's folder with ground truth and splits; by default that in
                ``nnUNet_preprocessed``.
        """
        model = Path(model)
        if preprocessed is None:
            preprocessed = nnunet_folder("nnUNet_preprocessed") / model.parent.name
        folders = {str(fold): model / f"fold_{fold}" / validation for fold in folds}
        data_set = DataSet.read(model / "dataset.json")
        groups = {}
        for fold, folder in folders.items():
            _check_validated(folder, fold)
            groups[fold] = _validation_cases(folder, fold, Path(preprocessed), data_set.file_ending)
        count = Counter(case.name for group in groups.values() for case in group)
        if shared := [name for name, number in count.items() if number > 1]:
            raise ValueError(
                f"folds must not share cases; {len(shared)}, such as {shared[0]}, are in several."
            )
        truth = Path(preprocessed) / "gt_segmentations"
        return cls(groups, tuple(folders.values()), truth, model, data_set)

    @property
    def provenance(self) -> Provenance:
        """The model that made them, how they were calibrated and decoded, and their cases."""
        return Provenance.read(self.home, self.data_set, self.pred_folders, list(self.by_name))

    def predicted(self) -> "Predictions":
        """Keep the cases with a prediction."""
        return self._filtered(lambda case: case.is_predicted)

    def for_fitting(self) -> "Predictions":
        """Keep the cases with prediction and ground truth; if none has both, those with a prediction.

        A ValueError for the validation of fold ``all``.
        """
        if any(map(validates_training_cases, self.pred_folders)):
            raise ValueError(
                "fold all is validated on the cases that it was trained with, which look better than new ones."
            )
        predicted = self.predicted()
        both = predicted._filtered(
            lambda case: bool(case.ground_truth and case.ground_truth.exists())
        )
        return both if both.cases else predicted

    def _filtered(self, is_kept: Callable[[CaseFiles], bool]) -> "Predictions":
        kept = {fold: list(filter(is_kept, cases)) for fold, cases in self.groups.items()}
        return replace(self, groups=kept)
