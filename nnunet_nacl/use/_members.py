"""Several members that predict the same cases, folds or seeds: the mean of their probabilities, what they agree on."""

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import write_csv
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    CaseFiles,
    Labels,
    Model,
    PredictionFolder,
    check_geometry,
    write_prediction,
)
from nnunet_nacl.use._folders import Written, whole_folder, write_cases
from nnunet_nacl.use._quantities import mean_pairwise_dice, whole_channels

AGREEMENT_NAME = "members_agreement.csv"


def combine_members(
    members: Sequence[str | Path], output: str | Path, *, num_processes: int = 1, overwrite: bool = False
) -> Written[tuple[float, ...]]:
    """Write a folder of predictions with the mean of several members' probabilities, and its segmentations.

    The mean is that of ``nnUNetv2_ensemble``. One case is in memory, whatever the number of members, and a byte a voxel
    of each segmentation. ``members_agreement.csv`` says how much the members' segmentations agree. A case that a member
    lacks, or that cannot be combined for another reason, is not in the folder, but in ``skipped``.

    Args:
        members: at least 2 folders of predictions of the same cases, all calibrated or none.
        output: the folder to write.
        num_processes: how many cases are combined at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    folders = read_members(members)
    first, meaning = folders[0], folders[0].data_set.meaning
    calibrated, others = ([one.folder for one in folders if one.is_calibrated is what] for what in (True, False))
    if calibrated and others:
        raise ValueError(f"members: {calibrated[0]} is calibrated, and {others[0]} is not.")
    names = [meaning.name_of(structure) for structure in meaning.structures]
    known = {case.name: case for folder in reversed(folders) for case in folder.cases}
    cases = [known[name] for name in sorted(known)]
    with whole_folder(output, inputs=folders, overwrite=overwrite) as folder:
        work = partial(_write_case, members=folders)
        written = write_cases(cases, work, folder, done="combined", num_processes=num_processes)
        rows = [
            (case, name, f"{value:.6f}")
            for case, agreement in written.results.items()
            for name, value in zip(names, agreement, strict=True)
        ]
        with (folder / AGREEMENT_NAME).open("w", newline="", encoding="utf-8") as stream:
            write_csv(stream, [("case", "structure", "mean_pairwise_dice"), *rows])
        content = {"members": [str(member.folder) for member in folders], "cases": list(written.results)}
        written.write_mark(folder / "members.json", content)
        first.copy_descriptions(folder)
        if first.is_calibrated:  # so is the mean, which must not be calibrated again
            shutil.copyfile(first.folder / CALIBRATED_NAME, folder / CALIBRATED_NAME)
    means = np.mean([*written.results.values()], axis=0)
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
    written.notes.append(f"Mean agreement of the members: {shown}. That of each case is in {AGREEMENT_NAME}.")
    return written


def read_members(members: Sequence[str | Path], *, like: PredictionFolder | None = None) -> list[PredictionFolder]:
    """Folders of predictions, 2 or more and each once, of the data set and labels of the first, or of ``like``."""
    if len(members) < 2:
        raise ValueError(f"members: expected at least 2 folders; got {len(members)}.")
    folders = [PredictionFolder.read(folder) for folder in members]
    like = like or folders[0]
    mine, dataset = like.data_set, Model.of_folder(like.folder, like.plans, like.data_set).dataset
    seen: set[Path] = set()
    for folder in folders:
        other, theirs = folder.data_set, Model.of_folder(folder.folder, folder.plans, folder.data_set).dataset
        if folder.folder.resolve() in seen:
            raise ValueError(f"members: {folder.folder} is given twice.")
        seen.add(folder.folder.resolve())
        if (mine.meaning, mine.labels, mine.meaning.written) != (other.meaning, other.labels, other.meaning.written):
            raise ValueError(
                f"{folder.folder}: its labels {other.labels} are not those of {like.folder}, {mine.labels}."
            )
        if None not in {dataset, theirs} and dataset != theirs:
            raise ValueError(f"{folder.folder} is of the data set {theirs}; {like.folder} is of {dataset}.")
    return folders


def _write_case(files: CaseFiles, folder: Path, *, members: Sequence[PredictionFolder]) -> tuple[float, ...]:
    data_set, labels = members[0].data_set, list[Labels]()
    mean = np.empty(0, np.float32)
    for case in _cases_of(members, files.name):
        if not labels:
            mean = np.zeros(case.shape, np.float32)
        for channel, p in whole_channels(case):
            mean[channel] += p.reshape(case.labels.shape)  # in this order and precision, as nnU-Net adds them
        labels.append(case.labels)
    mean /= len(members)
    first = next(case for case in members[0].cases if case.name == files.name)
    segmentation = data_set.meaning.segmentation(mean)
    write_prediction(first, folder, data_set.reader, labels=segmentation, probabilities=mean)
    return mean_pairwise_dice(labels, data_set.meaning)


def _cases_of(members: Sequence[PredictionFolder], name: str) -> Iterator[SavedCase]:
    """A case of one member after the other; all must lie where the first one does."""
    first = None
    for member in members:
        files = next((case for case in member.cases if case.name == name), None)
        if files is None:
            raise FileNotFoundError(f"{member.folder / f'{name}.npz'} does not exist.")
        case = SavedCase(files, member.data_set)
        first = first or case
        if case.shape != first.shape:
            raise ValueError(
                f"{files.probabilities}: the shape {case.shape} is not that of {first.files.probabilities}, "
                f"{first.shape}."
            )
        check_geometry(files.prediction, case.geometry, first.files.prediction, first.geometry)
        yield case
