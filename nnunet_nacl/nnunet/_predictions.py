"""Predictions that nnU-Net saved, of a folder or of a model's folds, and the ground truth of their cases, if any."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from nnunet_nacl.nnunet._case_files import (
    CaseFiles,
    cases_of,
    check_probabilities,
    copy_file,
    description_of,
)
from nnunet_nacl.nnunet._json import DataSet, Model, read_dataset_json
from nnunet_nacl.nnunet._marks import CALIBRATED_NAME, CUT_SHORT_NAME
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    cases_in,
    existing_folder,
    model_folder,
    nnunet_folder,
    validates_training_cases,
)
from nnunet_nacl.nnunet._validation import check_validated, validation_cases


@dataclass(frozen=True)
class Predictions:
    """Segmentations and probabilities that nnU-Net saved, of a folder or of the validation cases of a model's folds.

    Attributes:
        groups: the cases of each fold, by its name, such as ``0`` or ``all``; those of a folder under the empty text.
        pred_folders: the folder of each group.
        gt_folder: the ground truth of all cases; None where none is needed.
        home: where outputs go by default: the folder of the predictions, or for folds that of their model.
        dataset_json: of the data set.
        plans: the ``plans.json`` that says which reader to use, if there is one.
        data_set: how to read the files, and what their labels mean.
        missing: cases with ground truth alone, which ``predicted`` has left out.
    """

    groups: dict[str, list[CaseFiles]]
    pred_folders: tuple[Path, ...]
    gt_folder: Path | None
    home: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    missing: tuple[str, ...] = ()

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
        """A folder of predictions made with ``--save_probabilities``, and one of label maps of the same names, or None.

        Beside the predictions lie the data set's ``dataset.json`` and, if there is one, the ``plans.json`` that says
        which reader to use; a validation folder's lie in that of the model.
        """
        ground_truth = None if gt_folder is None else existing_folder(gt_folder)
        predictions = existing_folder(pred_folder)
        if ground_truth is not None and ground_truth.samefile(predictions):
            raise ValueError(f"{predictions} is given as predictions and as their ground truth.")
        if (predictions / CUT_SHORT_NAME).is_dir():
            raise ValueError(
                f"{predictions} is not whole: the command that wrote it was stopped. Run that command again."
            )
        described = description_of(predictions)
        groups = {"": cases_of(predictions, ground_truth, described)}
        check_probabilities(predictions)
        return cls._of(groups, (predictions,), ground_truth, predictions, described)

    @classmethod
    def of_model(
        cls, dataset: str | int, configuration: str, *, trainer: str = DEFAULT_TRAINER, plans: str = "nnUNetPlans",
        folds: Sequence[int | str] = (0, 1, 2, 3, 4), validation: str = "validation",
    ) -> "Predictions":  # fmt: skip
        """The validation cases of a model trained with ``nnUNetv2_train ... --npz``, in nnU-Net's folders."""
        model = model_folder(dataset, configuration, trainer=trainer, plans=plans)
        return cls.of_validation(
            model, nnunet_folder("nnUNet_preprocessed") / model.parent.name, folds, validation
        )

    @classmethod
    def of_validation(
        cls,
        model: str | Path,
        preprocessed: str | Path,
        folds: Sequence[int | str],
        validation: str = "validation",
    ) -> "Predictions":
        """Like ``of_model``, but from folders; no case may be in two folds."""
        if not folds or len(set(map(str, folds))) < len(folds):
            raise ValueError(
                f"expected one or more folds, each once; got {', '.join(map(str, folds)) or 'none'}."
            )
        model = existing_folder(model)
        preprocessed = Path(preprocessed)
        ground_truth = preprocessed / "gt_segmentations"
        if not ground_truth.is_dir():
            raise FileNotFoundError(
                f"{ground_truth} is not a folder; nnU-Net keeps the ground truth there. Preprocess the data set again, "
                "or evaluate a fold by itself: nnunet_nacl evaluate LABELS "
                f"{shlex.quote(f'{model}/fold_{folds[0]}/{validation}')}"
            )
        folders = {str(fold): model / f"fold_{fold}" / validation for fold in folds}
        for fold, folder in folders.items():
            check_validated(folder, fold)
        described = model / "dataset.json"
        trained = cases_in(ground_truth, read_dataset_json(described)["file_ending"])
        groups: dict[str, list[CaseFiles]] = {}
        seen: dict[str, Path] = {}
        for fold, folder in folders.items():
            groups[fold] = validation_cases(folder, fold, preprocessed, trained)
            for case in groups[fold]:
                if (other := seen.setdefault(case.name, folder)) != folder:
                    raise ValueError(
                        f"the case {case.name} is in {other} and in {folder}: folds must not share cases."
                    )
        return cls._of(groups, tuple(folders.values()), ground_truth, model, described)

    @classmethod
    def _of(
        cls,
        groups: dict[str, list[CaseFiles]],
        pred_folders: tuple[Path, ...],
        gt_folder: Path | None,
        home: Path,
        described: Path,
    ) -> "Predictions":
        beside = described.with_name("plans.json")
        plans = beside if beside.is_file() else None
        cases = chain.from_iterable(groups.values())
        examples = [case.ground_truth or case.prediction for case in cases]
        data_set = DataSet.read(described, plans, examples)
        return cls(groups, pred_folders, gt_folder, home, described, plans, data_set)

    @property
    def model(self) -> Model:
        """The model that made them."""
        return Model.of_folder(self.home, self.plans, self.data_set)

    @property
    def is_calibrated(self) -> bool:
        """Whether a folder of them is."""
        return any((folder / CALIBRATED_NAME).is_file() for folder in self.pred_folders)

    @property
    def are_of_training_cases(self) -> bool:
        """Whether a model was trained with them: fold ``all`` is validated on its training cases."""
        return any(map(validates_training_cases, self.pred_folders))

    def predicted(self) -> "Predictions":
        """Keep the cases with a prediction."""
        missing = tuple(case.name for case in self.cases if not case.is_predicted)
        return replace(self._having(lambda case: case.is_predicted), missing=missing)

    def to_fit_to(self) -> "Predictions":
        """Keep the cases with prediction and ground truth; if none has both, those with a prediction."""
        predicted = self.predicted()
        both = predicted._having(lambda case: case.has_truth)
        return both if both.cases else predicted

    def _having(self, is_kept: Callable[[CaseFiles], bool]) -> "Predictions":
        kept = {fold: list(filter(is_kept, cases)) for fold, cases in self.groups.items()}
        return replace(self, groups=kept)

    def check_unseen(self, model: Model, cases: Iterable[str], refused: str) -> None:
        """Raise a ValueError that begins with ``refused`` unless a fit to these cases of a model may be used here."""
        difference = model.difference(self.model)
        if difference is not None:
            raise ValueError(f"{refused} {difference}.")
        seen = sorted({case.name for case in self.cases} & set(cases))
        if seen:
            raise ValueError(
                f"{refused} {len(seen)} of its cases, such as {seen[0]}, which would look better than they are. If "
                "they are other cases, rename them."
            )

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of a folder of predictions beside its cases: data set, plans, arguments."""
        for source in (
            self.dataset_json,
            self.plans,
            self.pred_folders[0] / "predict_from_raw_data_args.json",
        ):
            if source is not None and source.is_file():
                copy_file(source, folder / source.name)
