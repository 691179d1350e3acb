"""The files of a predicted case: which there are, in what state, and how a changed case is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import (
    check_input,
    copy_file,
    link_or_copy,
    read_json,
    whole_file,
)
from nnunet_nacl.nnunet._names import cases_in
from nnunet_nacl.nnunet._provenance import DECODED_NAME
from nnunet_nacl.nnunet._reader import Reader
from nnunet_nacl.paths import FileState
from nnunet_nacl.typing import ByName, Labels

_HOW_TO_SAVE = (
    "predict with nnUNetv2_predict --save_probabilities, validate with nnUNetv2_train --val --npz, ensemble with "
    "nnUNetv2_ensemble --save_npz, or copy the .npz of before postprocessing beside postprocessed segmentations"
)


@dataclass(frozen=True)
class CaseFiles:
    """A case's name and files, which may be missing: label map, saved segmentation, and probabilities (``CASE.npz``).

    ``ground_truth`` is None where none is looked for. ``thresholds`` holds one threshold per class k ≥ 1, or region, if
    ``nnunet_nacl decode`` wrote the segmentation; None for nnU-Net's segmentation, the argmax.
    """

    name: str
    ground_truth: Path | None
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

    def states(self) -> dict[str, FileState]:
        """Return the states now of all files that it is read from, those of a TIFF's spacing too."""
        files = {
            "prediction": self.prediction,
            "probabilities": self.probabilities,
            "spacing_of_prediction": self.prediction.with_suffix(".json"),
        }
        if self.ground_truth is not None:
            files["ground_truth"] = self.ground_truth
            files["spacing_of_truth"] = self.ground_truth.with_suffix(".json")
        return {what: FileState.now(file) for what, file in files.items()}

    def write(
        self,
        folder: Path,
        reader: Reader,
        *,
        labels: Labels | None = None,
        probabilities: NDArray[Any] | None = None,
    ) -> None:
        """Write the case into another folder as nnU-Net does: probabilities, properties, and last the segmentation.

        By default, labels (Z, Y, X) and probabilities (C, Z, Y, X) are the case's own.
        """
        target = folder / self.probabilities.name
        if probabilities is None:
            link_or_copy(self.probabilities, target)
        else:
            with whole_file(target) as partial, partial.open("wb") as stream:
                np.savez_compressed(stream, probabilities=probabilities)
        copied = [self.probabilities.with_suffix(".pkl")]
        if labels is None:
            # Of a TIFF file's spacing
            copied += [self.prediction.with_suffix(".json"), self.prediction]
        for file in filter(Path.is_file, copied):
            copy_file(file, folder / file.name)
        if labels is not None:
            reader.write_labels(labels, self.prediction, folder / self.prediction.name)


def find_cases(folder: Path, gt_folder: Path | None, ending: str) -> list[CaseFiles]:
    """Find each case with any of its files in a folder of predictions or in one of ground truth."""
    mark = folder / DECODED_NAME
    decoded: ByName = read_json(mark, ByName)["cases"] if mark.is_file() else {}
    names = cases_in(folder, ending) | cases_in(folder, ".npz")
    names |= cases_in(gt_folder, ending) if gt_folder is not None else set()
    if not names:
        raise ValueError(f"No case found: no *{ending} or *.npz in {folder}.")
    return [
        CaseFiles(
            name,
            None if gt_folder is None else gt_folder / f"{name}{ending}",
            folder / f"{name}{ending}",
            folder / f"{name}.npz",
            tuple(decoded[name]["thresholds"]) if name in decoded else None,
        )
        for name in sorted(names)
    ]
