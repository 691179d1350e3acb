"""A folder of predictions that nnU-Net has saved, read, and cases written as nnU-Net writes them."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import is_readable
from nnunet_nacl.nnunet._dataset import DataSet, DatasetJson, LabelMeaning
from nnunet_nacl.nnunet._marks import CALIBRATED_NAME
from nnunet_nacl.nnunet._predictions import CaseFiles, dataset_files, find_cases
from nnunet_nacl.nnunet._raw import place
from nnunet_nacl.nnunet._written import segmentation_files, write_labels

Labels = NDArray[np.unsignedinteger]

_ARGUMENTS = "predict_from_raw_data_args.json"


@dataclass(frozen=True)
class PredictionFolder:
    """A folder of predictions made with ``--save_probabilities``.

    Attributes:
        folder: its path.
        dataset_json: the data set's ``dataset.json``.
        plans: the ``plans.json`` that names the reader, if there is one.
        data_set: how to read its files.
        cases: that have a segmentation or probabilities, in the order of their names.
    """

    folder: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    cases: list[CaseFiles]

    @classmethod
    def read(
        cls, folder: str | Path, *, dataset_json: str | Path | None = None, plans: str | Path | None = None
    ) -> "PredictionFolder":
        """Find its cases.

        Args:
            folder: ``CASE.npz`` and segmentations.
            dataset_json: the data set's ``dataset.json``; by default the one in the folder.
            plans: the ``plans.json`` whose reader is used; by default the one in the folder.

        Raises:
            FileNotFoundError: a file or the folder is missing.
            ValueError: a file is not what it should be, or there is no case.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
        dataset_file, plans_file = dataset_files(folder, dataset_json, plans)
        cases = find_cases(folder, folder, DatasetJson.read(dataset_file).file_ending)
        examples = [case.prediction for case in cases if is_readable(case.prediction)]
        data_set = DataSet.read(dataset_file, plans_file, sorted(examples, key=lambda file: file.stat().st_size))
        return cls(folder, dataset_file, plans_file, data_set, cases)

    @property
    def is_calibrated(self) -> bool:
        """Whether ``nnunet_nacl apply`` has written its probabilities."""
        return (self.folder / CALIBRATED_NAME).is_file()

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of its predictions beside the cases: data set, plans, arguments."""
        if (self.folder / _ARGUMENTS).is_file():
            shutil.copyfile(self.folder / _ARGUMENTS, folder / _ARGUMENTS)
        shutil.copyfile(self.dataset_json, folder / "dataset.json")
        if self.plans is not None:
            shutil.copyfile(self.plans, folder / "plans.json")


def write_prediction(
    case: CaseFiles,
    folder: Path,
    reader: Any,
    *,
    labels: Labels | None = None,
    probabilities: NDArray[np.floating] | None = None,
) -> None:
    """Write a case as nnU-Net does: segmentation, probabilities, properties.

    Args:
        case: that it is made of. What is not given is the same as there: probabilities are a hard link then, or a copy
            where the file system has none.
        folder: to write into.
        reader: an object of one of nnU-Net's reader classes.
        labels: (Z, Y, X).
        probabilities: (C, Z, Y, X).
    """
    if labels is None:
        for file in segmentation_files(case.prediction):
            shutil.copy2(file, folder / file.name)
    else:
        write_labels(labels, case.prediction, reader, folder / case.prediction.name)
    if probabilities is None:
        place(case.probabilities, folder / case.probabilities.name)
    else:
        with (folder / case.probabilities.name).open("wb") as stream:
            np.savez_compressed(stream, probabilities=probabilities)
    properties = case.probabilities.with_suffix(".pkl")
    if properties.is_file():
        shutil.copy2(properties, folder / properties.name)


def nnunet_labels(probabilities: NDArray[np.floating], meaning: LabelMeaning) -> Labels:
    """The segmentation as nnU-Net makes it: the most probable class, or each region's label over those before it."""
    if meaning.regions is None:
        top: Labels = probabilities.argmax(0).astype(np.min_scalar_type(len(probabilities) - 1))
        return top
    labels = np.zeros(probabilities.shape[1:], np.min_scalar_type(max(meaning.known)))
    for p, label in zip(probabilities, meaning.written, strict=True):
        labels[p > 0.5] = label
    return labels
