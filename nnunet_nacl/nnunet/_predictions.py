"""Predictions that nnU-Net saved: one case, one folder, and cases that are compared with their ground truth.

``CaseFiles`` is a case. A ``PredictionFolder`` is a folder to write another one from, and knows no ground truth.
``Predictions`` are cases with ground truth elsewhere, of one folder or of a model's folds, to evaluate or to fit to.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input, file_state, link_or_copy, read_json, whole_file
from nnunet_nacl.nnunet._data import SPLITS_NAME, fold_split
from nnunet_nacl.nnunet._dataset import DataSet, Model, read_dataset_json
from nnunet_nacl.nnunet._images import Reader
from nnunet_nacl.nnunet._names import (
    cases_in,
    existing_folder,
    listed,
    model_folder,
    naming,
    nnunet_folder,
)
from nnunet_nacl.typing import Labels, Record

# In a calibrated folder: the fit that it was calibrated with
CALIBRATED_NAME = "calibration_applied.json"
# In a folder of other segmentations than nnU-Net's: the thresholds of each case
DECODED_NAME = "decoded.json"
_HOW_TO_SAVE = (
    "predict with nnUNetv2_predict --save_probabilities, validate with nnUNetv2_train --val --npz"
)


@dataclass(frozen=True)
class CaseFiles:
    """A case's name and files, which may be missing: label map, saved segmentation, and probabilities (``CASE.npz``).

    ``thresholds`` holds one threshold per class k ≥ 1, or region, if ``nnunet_nacl decode`` wrote the segmentation;
    None for nnU-Net's segmentation, the argmax.
    """

    name: str
    ground_truth: Path
    prediction: Path
    probabilities: Path
    thresholds: tuple[float, ...] | None = None

    @property
    def is_predicted(self) -> bool:
        return self.prediction.exists() or self.probabilities.exists()

    def check_predicted(self) -> None:
        """Raise an OSError that names a file of the prediction that is missing or cannot be read."""
        check_input(self.prediction, ": no predicted segmentation.")
        check_input(self.probabilities, f": no probabilities; {_HOW_TO_SAVE}.")

    def states(self) -> dict[str, list[str | int] | None]:
        """Path, size and time of change of each file, which identify a changed file; None if it is missing."""
        return {
            "reference": file_state(self.ground_truth),
            "prediction": file_state(self.prediction),
            "probabilities": file_state(self.probabilities),
        }

    def write(
        self,
        folder: Path,
        reader: Reader,
        *,
        labels: Labels | None = None,
        probabilities: NDArray[Any] | None = None,
    ) -> None:
        """Write the case into another folder as nnU-Net does: segmentation, probabilities, properties.

        By default, labels (Z, Y, X) and probabilities (C, Z, Y, X) are the case's own.
        """
        copied = [self.probabilities.with_suffix(".pkl")]
        if labels is not None:
            reader.write_labels(labels, self.prediction, folder / self.prediction.name)
        else:
            # Of a TIFF file's spacing
            copied += [self.prediction, self.prediction.with_suffix(".json")]
        target = folder / self.probabilities.name
        if probabilities is None:
            link_or_copy(self.probabilities, target)
        else:
            with whole_file(target) as partial, partial.open("wb") as stream:
                np.savez_compressed(stream, probabilities=probabilities)
        for file in filter(Path.is_file, copied):
            _copy(file, folder / file.name)


@dataclass(frozen=True)
class Predictions:
    """Segmentations and softmax probabilities that nnU-Net saved, and the ground truth to compare them with."""

    groups: dict[str, list[CaseFiles]]
    gt_folder: Path
    pred_folders: tuple[Path, ...]
    dataset_json: Path
    plans: Path | None
    model_folder: Path | None = None

    @property
    def cases(self) -> list[CaseFiles]:
        """The cases of all groups, in the order of their names."""
        return sorted(
            (case for group in self.groups.values() for case in group), key=lambda case: case.name
        )

    @classmethod
    def of_folder(cls, gt_folder: str | Path, pred_folder: str | Path) -> "Predictions":
        """A folder of predictions made with ``--save_probabilities``, and one of label maps with the same names.

        Beside the predictions lie the data set's ``dataset.json`` and, if there is one, the ``plans.json`` that says
        which reader to use; a validation folder's lie in that of the model.
        """
        ground_truth = existing_folder(gt_folder)
        predictions = existing_folder(pred_folder)
        if ground_truth.samefile(predictions):
            raise ValueError(f"{predictions} is given as predictions and as their ground truth.")
        _check_probabilities(predictions)
        described, plans, cases = _read_folder(predictions, ground_truth)
        return cls({"": cases}, ground_truth, (predictions,), described, plans)

    @classmethod
    def of_model(
        cls, dataset: str | int, configuration: str, *, trainer: str = "nnUNetTrainer", plans: str = "nnUNetPlans",
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
        ground_truth = existing_folder(preprocessed / "gt_segmentations")
        ending = read_dataset_json(model / "dataset.json")["file_ending"]
        trained = cases_in(ground_truth, ending)
        has_splits = (preprocessed / SPLITS_NAME).is_file()
        groups: dict[str, list[CaseFiles]] = {}
        seen: dict[str, Path] = {}
        folders = {str(fold): model / f"fold_{fold}" / validation for fold in folds}
        for fold, folder in folders.items():
            if not folder.is_dir():
                there = listed(model, f"fold_*/{validation}")
                hint = (
                    f"nnUNetv2_train ... {fold} --val --npz predicts its cases"
                    if validation == "validation"
                    else ""
                )
                raise FileNotFoundError(
                    f"{folder} is not a folder; there are {there}. {hint}".strip()
                )
            _check_probabilities(folder)
            known = has_splits or fold == "all"
            expected = fold_split(preprocessed, trained, fold)["val"] if known else []
            *_, cases = _read_folder(folder, ground_truth)
            group = [case for case in cases if case.is_predicted or case.name in expected]
            groups[f"fold {fold}"] = group
            for case in group:
                if (other := seen.setdefault(case.name, folder)) != folder:
                    raise ValueError(
                        f"the case {case.name} is in {other} and in {folder}: folds must not share cases."
                    )
        return cls(
            groups,
            ground_truth,
            tuple(folders.values()),
            model / "dataset.json",
            model / "plans.json",
            model,
        )

    def to_fit_to(self) -> "Predictions":
        """Keep the cases with prediction and ground truth; if none has both, those with a prediction."""
        predicted = {
            name: [case for case in group if case.is_predicted]
            for name, group in self.groups.items()
        }
        both = {
            name: [case for case in group if case.ground_truth.exists()]
            for name, group in predicted.items()
        }
        return replace(self, groups=both if any(both.values()) else predicted)

    def read_data_set(self) -> DataSet:
        """How to read the files and what their labels mean."""
        return DataSet.read(
            self.dataset_json, self.plans, [case.ground_truth for case in self.cases]
        )


@dataclass(frozen=True)
class PredictionFolder:
    """A folder of predictions made with ``--save_probabilities``."""

    folder: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    cases: list[CaseFiles]

    @classmethod
    def read(cls, folder: str | Path) -> "PredictionFolder":
        """Find its cases."""
        folder = existing_folder(folder)
        described, plans, cases = _read_folder(folder, folder)
        data_set = DataSet.read(described, plans, [case.prediction for case in cases])
        return cls(folder, described, plans, data_set, cases)

    @property
    def is_calibrated(self) -> bool:
        return (self.folder / CALIBRATED_NAME).is_file()

    def check_unseen(self, model: Model, cases: Iterable[str], refused: str) -> None:
        """Raise a ValueError that begins with ``refused`` unless a fit to these cases of a model may be used here."""
        difference = model.difference(Model.of_folder(self.folder, self.plans, self.data_set))
        if difference is not None:
            raise ValueError(f"{refused} {difference}.")
        seen = sorted({case.name for case in self.cases} & set(cases))
        if seen:
            raise ValueError(
                f"{refused} {len(seen)} of its cases, such as {seen[0]}, which would look better than they are."
            )

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of its predictions beside the cases: data set, plans, arguments."""
        for source in (
            self.dataset_json,
            self.plans,
            self.folder / "predict_from_raw_data_args.json",
        ):
            if source is not None and source.is_file():
                _copy(source, folder / source.name)


def _check_probabilities(folder: Path) -> None:
    if not any(folder.glob("*.npz")):
        raise ValueError(f"{folder} holds no probabilities (.npz); {_HOW_TO_SAVE}.")


def _read_folder(folder: Path, gt_folder: Path) -> tuple[Path, Path | None, list[CaseFiles]]:
    """``dataset.json``, ``plans.json`` if there is one, and each case with any of its files."""
    described = folder / "dataset.json"
    resolved = folder.resolve()
    if resolved.name.startswith("validation") and not described.is_file():
        described = resolved.parent.parent / "dataset.json"  # of the model
    copy = "Copy it from the model's folder, and plans.json with it."
    check_input(described, f": it says what the labels mean. {copy}")
    ending = read_dataset_json(described)["file_ending"]
    plans = described.with_name("plans.json")
    thresholds = {}
    decoded = folder / DECODED_NAME
    if decoded.exists():
        with naming(decoded):
            of_cases = read_json(decoded, Record)["cases"]
            thresholds = {name: tuple(case["thresholds"]) for name, case in of_cases.items()}
    names = cases_in(gt_folder, ending) | cases_in(folder, ending) | cases_in(folder, ".npz")
    if not names:
        raise ValueError(
            f"No case found: no *{ending} in {gt_folder}, no *{ending} or *.npz in {folder}."
        )
    cases = []
    for name in sorted(names):
        files = gt_folder / f"{name}{ending}", folder / f"{name}{ending}", folder / f"{name}.npz"
        cases.append(CaseFiles(name, *files, thresholds.get(name)))
    return described, plans if plans.is_file() else None, cases


def _copy(source: Path, target: Path) -> None:
    with whole_file(target) as partial:
        shutil.copy2(source, partial)
