"""Several members that predict the same cases, folds or seeds: the mean of their probabilities, what they agree on."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import write_csv
from nnunet_nacl.nnunet import (
    BLOCK,
    CALIBRATED_NAME,
    CaseFiles,
    Labels,
    Model,
    PredictionFolder,
    check_geometry,
    write_image,
    write_prediction,
)
from nnunet_nacl.use._folders import Written, by_structure, write_cases
from nnunet_nacl.use._quantities import class_entropy, mean_pairwise_dice, region_entropy

MEMBERS_NAME = "members.json"
"""In a folder of combined members: which they are."""
AGREEMENT_NAME = "members_agreement.csv"
"""There: how much the members agree, for each case and structure."""
DISAGREEMENT_FOLDER = "mutual_information"
"""There: a map of each case, if they were asked for."""


def combine_members(
    members: Sequence[str | Path],
    output: str | Path,
    *,
    disagreement: bool = False,
    num_processes: int = 1,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> Written[tuple[float, ...]]:
    """Write a folder of predictions with the mean of several members' probabilities, and its segmentations.

    The mean is that of ``nnUNetv2_ensemble``. One case is in memory, whatever the number of members, and a byte a voxel
    of each segmentation. ``members_agreement.csv`` says how much the members' segmentations agree. A case that a member
    lacks, or that cannot be combined for another reason, is not in the folder, but in ``skipped``.

    Members are at least 2 folders of the same cases, all calibrated or none. ``disagreement`` asks for maps of mutual
    information, in the folder ``mutual_information``. Other arguments and errors are those of :func:`write_maps`.

    Raises:
        ValueError: fewer than 2 members, one given twice, other labels or cases, some calibrated and some not.
    """
    folders = read_members(members)
    first = folders[0]
    for folder in folders:
        if folder.is_calibrated != first.is_calibrated:
            calibrated, other = (folder, first) if folder.is_calibrated else (first, folder)
            raise ValueError(f"members: {calibrated.folder} is calibrated, and {other.folder} is not.")
    meaning = first.data_set.meaning
    names = tuple(meaning.name_of(structure) for structure in meaning.structures)

    def describe(written: Written[tuple[float, ...]], folder: Path) -> None:
        rows = [
            (case, name, f"{value:.6f}")
            for case, agreement in written.results.items()
            for name, value in zip(names, agreement, strict=True)
        ]
        with (folder / AGREEMENT_NAME).open("w", newline="", encoding="utf-8") as stream:
            write_csv(stream, [("case", "structure", "mean_pairwise_dice"), *rows])
        content = {"members": [str(member.folder) for member in folders], "cases": list(written.results)}
        written.write_mark(folder / MEMBERS_NAME, content)
        first.copy_descriptions(folder)
        if first.is_calibrated:  # so is the mean, which must not be calibrated again
            shutil.copyfile(first.folder / CALIBRATED_NAME, folder / CALIBRATED_NAME)
        shown = by_structure(names, np.mean([*written.results.values()], axis=0).tolist())
        written.notes.append(f"Mean agreement of the members: {shown}. That of each case is in {AGREEMENT_NAME}.")

    known = {case.name: case for folder in reversed(folders) for case in folder.cases}
    return write_cases(
        [known[name] for name in sorted(known)],
        partial(_write_case, members=folders, disagreement=disagreement, ignore_geometry=ignore_geometry),
        output,
        inputs=folders,
        describe=describe,
        doing="combining",
        done="combined",
        num_processes=num_processes,
        overwrite=overwrite,
    )


def read_members(
    members: Sequence[str | Path],
    *,
    like: PredictionFolder | None = None,
) -> list[PredictionFolder]:
    """Folders of predictions of the same cases with the same labels, at least 2 and each once."""
    if len(members) < 2:
        raise ValueError(f"members: expected at least 2 folders; got {len(members)}.")
    folders = [PredictionFolder.read(folder) for folder in members]
    for number, folder in enumerate(folders):
        if folder.folder.resolve() in {other.folder.resolve() for other in folders[:number]}:
            raise ValueError(f"members: {folder.folder} is given twice.")
    check_same_labels(folders, like=like or folders[0])
    return folders


def check_same_labels(folders: Sequence[PredictionFolder], like: PredictionFolder) -> None:
    """Raise a ValueError unless all folders have the data set, labels, format, and some case of that one."""
    one = like.data_set
    for folder in folders:
        other = folder.data_set
        if (one.meaning, one.labels, [*one.meaning.written]) != (other.meaning, other.labels, [*other.meaning.written]):
            raise ValueError(
                f"{folder.folder}: its labels {other.labels} are not those of {like.folder}, {one.labels}."
            )
        first, second = (Model.of_folder(each.folder, each.plans, each.data_set).dataset for each in (like, folder))
        if first is not None and second is not None and first != second:
            raise ValueError(f"{folder.folder} is of the data set {second}; {like.folder} is of {first}.")
        if one.file_ending != other.file_ending:
            raise ValueError(
                f"{folder.folder} has {other.file_ending} files; {like.folder} has {one.file_ending} files."
            )
        if not {case.name for case in like.cases} & {case.name for case in folder.cases}:
            raise ValueError(f"{folder.folder} has none of the cases of {like.folder}.")


def _write_case(
    files: CaseFiles, folder: Path, *, members: Sequence[PredictionFolder], disagreement: bool, ignore_geometry: bool
) -> tuple[float, ...]:
    data_set = members[0].data_set
    case = read_mean(files, members, disagreement=disagreement, ignore_geometry=ignore_geometry)
    first = _case_of(members[0], files.name)
    labels = data_set.meaning.segmentation(case.probabilities)
    write_prediction(first, folder, data_set.reader, labels=labels, probabilities=case.probabilities)
    if case.disagreement is not None:
        (folder / DISAGREEMENT_FOLDER).mkdir()
        image = folder / DISAGREEMENT_FOLDER / first.prediction.name
        write_image(case.disagreement, first.prediction, data_set.reader, image)
    return mean_pairwise_dice(case.labels, data_set.meaning)


def _case_of(member: PredictionFolder, name: str) -> CaseFiles:
    for case in member.cases:
        if case.name == name:
            return case
    raise FileNotFoundError(f"{member.folder / f'{name}.npz'} does not exist.")


@dataclass(frozen=True)
class MeanCase:
    """What the members of a case say together."""

    probabilities: NDArray[np.float32]
    labels: list[Labels]
    disagreement: NDArray[np.float32] | None


def read_mean(
    files: CaseFiles,
    members: Sequence[PredictionFolder],
    *,
    disagreement: bool,
    ignore_geometry: bool,
    like: SavedCase | None = None,
) -> MeanCase:
    r"""Read a case of one member after the other, so that one case is in memory, whatever the number of members.

    What they disagree on is the entropy of their mean less the mean of their entropies, :math:`H(\bar p) - \frac{1}{M}
    \sum_m H(p_m)`, 0 to ln min(K, M).

    References:
        Houlsby et al., arXiv 1112.5745; Smith & Gal, UAI 2018.
    """
    regions = members[0].data_set.meaning.regions is not None
    flat = entropy = np.empty((0, 0), np.float32)
    labels: list[Labels] = []
    for own, member in [(_case_of(member, files.name), member) for member in members]:
        case = SavedCase(own, member.data_set)
        first = like = like or case
        if case.shape != first.shape:
            raise ValueError(
                f"{own.probabilities}: the shape {case.shape} is not that of {first.files.probabilities}, "
                f"{first.shape}."
            )
        if not ignore_geometry:
            check_geometry(own.prediction, case.geometry, first.files.prediction, first.geometry)
        if not labels:
            flat = np.zeros((case.shape[0], case.labels.size), np.float32)
            entropy = np.zeros((case.shape[0] if regions else 1, case.labels.size if disagreement else 0), np.float32)
        for channel, part, p in case.blocks():
            flat[channel, part] += p  # in this order and precision, as nnU-Net adds them
            if disagreement and regions:
                entropy[channel, part] += region_entropy(p).astype(np.float32)
            elif disagreement:
                entropy[0, part] += class_entropy(p[None]).astype(np.float32)
        labels.append(case.labels)
    flat /= len(members)
    mean = flat.reshape(-1, *labels[0].shape)
    if not disagreement:
        return MeanCase(mean, labels, None)
    entropy /= len(members)
    information = np.empty(entropy.shape[1], np.float32)
    for start in range(0, information.size, BLOCK):
        part = slice(start, start + BLOCK)
        of_mean = region_entropy(flat[:, part]) if regions else class_entropy(flat[:, part])[None]
        information[part] = np.maximum(of_mean - entropy[:, part], 0).max(0)
    return MeanCase(mean, labels, information.reshape(labels[0].shape))
