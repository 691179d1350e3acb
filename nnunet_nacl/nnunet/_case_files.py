"""The files of a case: ground truth, saved segmentation, probabilities; and the cases of a folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field

from nnunet_nacl.files import FileState, check_input, link_or_copy, unresolved, whole_file
from nnunet_nacl.nnunet._data_set import Reader, read_dataset_json
from nnunet_nacl.nnunet._names import cases_in
from nnunet_nacl.nnunet._provenance import DecodedMark
from nnunet_nacl.typing import Labels

HOW_TO_SAVE = (
    "predict with nnUNetv2_predict --save_probabilities, validate with nnUNetv2_train --val --npz, ensemble with "
    "nnUNetv2_ensemble --save_npz, or copy the .npz of before postprocessing beside postprocessed segmentations"
)


@dataclass(frozen=True)
class CaseStates:
    """The states of a case's files at a time; None of one that is missing or not looked for."""

    # In records, its name was once that in nnU-Net's summaries
    ground_truth: Annotated[
        FileState | None, Field(validation_alias=AliasChoices("ground_truth", "reference"))
    ]
    prediction: FileState | None
    probabilities: FileState | None

    def moved_to(self, files: "CaseFiles") -> "CaseStates | None":
        """The states of these files if they hold what those held, wherever they lie; None if one has changed."""
        moved: dict[str, FileState | None] = {}
        for name, state in vars(self).items():
            file = getattr(files, name)
            if state is None and (file is None or not file.exists()):
                moved[name] = None
            elif state is None or file is None or not state.is_of(file):
                return None
            else:
                moved[name] = state.at(file)
        return CaseStates(**moved)


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

    @property
    def has_truth(self) -> bool:
        return self.ground_truth is not None and self.ground_truth.exists()

    def check_predicted(self) -> None:
        """Raise an OSError that names a file of the prediction that is missing or cannot be read."""
        check_input(self.prediction, ": no predicted segmentation.")
        check_input(self.probabilities, f": no probabilities; {HOW_TO_SAVE}.")

    def states(self) -> "CaseStates":
        """The states of its files now."""
        truth = None if self.ground_truth is None else FileState.of(self.ground_truth)
        return CaseStates(truth, FileState.of(self.prediction), FileState.of(self.probabilities))

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


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with whole_file(target) as partial:
        shutil.copy2(source, partial)


def check_probabilities(folder: Path) -> None:
    if not cases_in(folder, ".npz"):
        raise ValueError(f"{folder} holds no probabilities (.npz); {HOW_TO_SAVE}.")


def description_of(folder: Path) -> Path:
    """The ``dataset.json`` of a folder of predictions."""
    described = folder / "dataset.json"
    given = unresolved(folder)
    if given.name.startswith("validation") and not described.is_file():
        described = given.parent.parent / "dataset.json"  # of the model
    copy = "Copy it and plans.json from the model's folder; postprocessed segmentations also need their .npz."
    check_input(described, f": it says what the labels mean. {copy}")
    return described


def cases_of(folder: Path, gt_folder: Path | None, described: Path) -> list[CaseFiles]:
    """Each case with any of its files."""
    ending = read_dataset_json(described)["file_ending"]
    mark = DecodedMark.read(folder)
    decoded = {} if mark is None else mark.cases
    names = cases_in(folder, ending) | cases_in(folder, ".npz")
    looked_for = f"no *{ending} or *.npz in {folder}"
    if gt_folder is not None:
        names |= cases_in(gt_folder, ending)
        looked_for = f"no *{ending} in {gt_folder}, {looked_for}"
    if not names:
        raise ValueError(f"No case found: {looked_for}.")
    return [
        CaseFiles(
            name,
            None if gt_folder is None else gt_folder / f"{name}{ending}",
            folder / f"{name}{ending}",
            folder / f"{name}.npz",
            tuple(decoded[name].thresholds) if name in decoded else None,
        )
        for name in sorted(names)
    ]
