"""The mean of several members' probabilities, folds or seeds, and how much the members agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.confidence import MemberOverlap
from nnunet_nacl.files import whole_folder, write_csv
from nnunet_nacl.nnunet import BLOCK, CaseFiles, LabelMeaning, write_image
from nnunet_nacl.prediction_folders._folder import (
    Labels,
    PredictionFolder,
    Written,
    by_structure,
    nnunet_labels,
    write_cases,
    write_mark,
    write_prediction,
)
from nnunet_nacl.prediction_folders._member_cases import check_same_labels, read_mean, same_case

MEMBERS_NAME = "members.json"
"""In a folder of combined members: which they are."""
AGREEMENT_NAME = "members_agreement.csv"
"""There: how much the members agree, for each case and structure."""
DISAGREEMENT_FOLDER = "mutual_information"
"""There: a map of each case, if they were asked for."""


@dataclass(frozen=True)
class Combined:
    """What :func:`combine_members` did.

    Attributes:
        output: the new folder.
        structures: their names.
        cases: each one's agreement, by structure: mean pairwise Dice of the members' segmentations; and which cases
            were not combined.
    """

    output: Path
    structures: tuple[str, ...]
    cases: Written[tuple[float, ...]]

    def summary(self) -> str:
        """A few lines for people."""
        means = np.mean(list(self.cases.results.values()), axis=0)
        shown = by_structure(self.structures, means.tolist())
        return self.cases.summary(
            self.output, f"Mean agreement of the members: {shown}. That of each case is in {AGREEMENT_NAME}."
        )


def combine_members(
    members: Sequence[str | Path],
    output: str | Path,
    *,
    disagreement: bool = False,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> Combined:
    """Write a folder of predictions with the mean of several members' probabilities, and its segmentations.

    The mean is that of ``nnUNetv2_ensemble``. One case is in memory, whatever the number of members, and a byte a voxel
    of each segmentation. ``members_agreement.csv`` says how much the members' segmentations agree. The folder appears
    whole or not at all. A case that a member lacks, or that cannot be combined for another reason, is not in it, but in
    ``skipped``.

    Args:
        members: folders of predictions of the same cases, at least 2.
        output: the folder to make.
        disagreement: write maps of mutual information, too, into its folder ``mutual_information``.
        dataset_json: the data set's ``dataset.json``; by default the one in each folder.
        plans: the ``plans.json`` whose reader is used; by default the one in each folder.
        num_processes: how many cases are combined at a time.
        overwrite: replace a folder of combined members that is there, once the new one is whole.
        ignore_geometry: take members as they are, though their spacing, origin or direction differ.

    Raises:
        FileExistsError: ``output`` exists, or is to be replaced and is no folder of combined members.
        FileNotFoundError: a file or folder is missing.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: fewer than 2 members, one given twice, other labels or cases, or no case can be combined.
    """
    if len(members) < 2:
        raise ValueError(f"members: expected at least 2 folders; got {len(members)}.")
    folders = [PredictionFolder.read(folder, dataset_json=dataset_json, plans=plans) for folder in members]
    for number, folder in enumerate(folders):
        if folder.folder.resolve() in {other.folder.resolve() for other in folders[:number]}:
            raise ValueError(f"members: {folder.folder} is given twice.")
    first = folders[0]
    for other in folders[1:]:
        check_same_labels(first, other)
    known = {case.name: case for folder in reversed(folders) for case in folder.cases}
    write = partial(_write_case, members=folders, disagreement=disagreement, ignore_geometry=ignore_geometry)
    with whole_folder(Path(output), _is_ours, overwrite=overwrite) as target:
        cases = write_cases(
            [known[name] for name in sorted(known)],
            write,
            target,
            doing="combining",
            done="combined",
            num_processes=num_processes,
        )
        meaning = first.data_set.meaning
        names = tuple(meaning.name_of(structure) for structure in meaning.structures)
        combined = Combined(Path(output), names, cases)
        rows = [
            (case, name, f"{value:.6f}")
            for case, agreement in cases.results.items()
            for name, value in zip(names, agreement, strict=True)
        ]
        with (target / AGREEMENT_NAME).open("w", newline="", encoding="utf-8") as stream:
            write_csv(stream, [("case", "structure", "mean_pairwise_dice"), *rows])
        content = {"members": [str(folder.folder) for folder in folders], "cases": list(cases.results)}
        write_mark(target / MEMBERS_NAME, content, cases.skipped)
        first.copy_descriptions(target)
    return combined


def _is_ours(folder: Path) -> bool:
    return (folder / MEMBERS_NAME).is_file()


def _write_case(
    files: CaseFiles,
    folder: Path,
    *,
    members: Sequence[PredictionFolder],
    disagreement: bool,
    ignore_geometry: bool,
) -> tuple[float, ...]:
    data_set = members[0].data_set
    case = read_mean(files, members, disagreement=disagreement, ignore_geometry=ignore_geometry)
    first = same_case(files.name, members[0])
    labels = nnunet_labels(case.probabilities, data_set.meaning)
    write_prediction(first, folder, data_set.reader, labels=labels, probabilities=case.probabilities)
    if case.disagreement is not None:
        (folder / DISAGREEMENT_FOLDER).mkdir()
        image = folder / DISAGREEMENT_FOLDER / first.prediction.name
        write_image(case.disagreement, first.prediction, data_set.reader, image)
    return _agreement(case.labels, data_set.meaning)


def _agreement(labels: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Mean pairwise Dice of each structure, in blocks of voxels."""
    agreement = []
    for structure in meaning.structures:
        overlap = MemberOverlap(np.zeros((len(labels), len(labels)), np.int64))
        for start in range(0, labels[0].size, BLOCK):
            masks = [np.isin(one.reshape(-1)[start : start + BLOCK], structure) for one in labels]
            overlap += MemberOverlap.of(np.stack(masks))
        agreement.append(overlap.mean_pairwise_dice)
    return tuple(agreement)
