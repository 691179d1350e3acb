"""A case as several members predict it: folds or seeds."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import CaseFiles
from nnunet_nacl.prediction_folders._folder import PredictionFolder


def check_same_labels(one: PredictionFolder, other: PredictionFolder) -> None:
    """Raise a ValueError unless two folders are different ones with the same labels and some case in common."""
    if one.folder.resolve() == other.folder.resolve():
        return
    first, second = one.data_set, other.data_set
    if (
        first.meaning != second.meaning
        or first.labels != second.labels
        or (list(first.meaning.written) != list(second.meaning.written))
    ):
        raise ValueError(f"{other.folder}: its labels {second.labels} are not those of {one.folder}, {first.labels}.")
    if first.file_ending != second.file_ending:
        raise ValueError(
            f"{other.folder}: its segmentations are {second.file_ending} files, those of {one.folder} "
            f"{first.file_ending}."
        )
    if not {case.name for case in one.cases} & {case.name for case in other.cases}:
        raise ValueError(f"{other.folder} has none of the cases of {one.folder}.")


def same_case(name: str, member: PredictionFolder) -> CaseFiles:
    """A member's case of that name; the files may be missing."""
    for case in member.cases:
        if case.name == name:
            return case
    raise FileNotFoundError(f"{member.folder / f'{name}.npz'} does not exist.")


def read_together(cases: Sequence[SavedCase]) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
    """Yield channel, voxels and values (M, n) of each block of all members' probabilities.

    Raises:
        ValueError: as for :meth:`SavedCase.blocks`, or they have different shapes.
    """
    for case in cases:
        if case.shape != cases[0].shape:
            raise ValueError(
                f"{case.files.probabilities}: the shape {case.shape} is not that of {cases[0].files.probabilities}, "
                f"{cases[0].shape}."
            )
    for blocks in zip(*(case.blocks() for case in cases), strict=True):
        channel, part, _ = blocks[0]
        yield channel, part, np.stack([block for _, _, block in blocks])
