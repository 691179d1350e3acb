"""The files of a case: ground truth, saved segmentation, probabilities; and the cases of a folder."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """The states of all files that a case is read from, at a time; None of one that is missing or not looked for.

    The last two are of the ``.json`` files that hold a TIFF's spacing.
    """

    ground_truth: FileState | None
    prediction: FileState | None
    probabilities: FileState | None
    spacing_of_truth: FileState | None = None
    spacing_of_prediction: FileState | None = None

    def without_truth(self) -> "CaseStates":
        return replace(self, ground_truth=None, spacing_of_truth=None)

    def moved_to(self, folder: Path) -> "CaseStates":
        """The same states of a prediction that was moved into another folder."""
        moved = {
            name: state and state._replace(path=str(folder / Path(state.path).name))
            for name, state in vars(self).items()
            if "truth" not in name
        }
        return replace(self, **moved)

    @property
    def found(self) -> list[FileState]:
        """Those of the files that were there."""
        return [state for state in vars(self).values() if state is not None]

    def equal(self, other: "CaseStates") -> bool:
        """Whether the files have the same names, sizes and times of change, wherever they lie."""
        mine, others = (
            [state and (Path(state.path).name, *state[1:]) for state in vars(states).values()]
            for states in (self, other)
        )
        return mine == others


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
        truth = self.ground_truth
        return CaseStates(
            None if truth is None else FileState.of(truth),
            FileState.of(self.prediction),
            FileState.of(self.probabilities),
            None if truth is None else FileState.of(truth.with_suffix(".json")),
            FileState.of(self.prediction.with_suffix(".json")),
        )

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
