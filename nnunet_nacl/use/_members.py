"""Several members (folds or seeds) that predict the same cases: their mean probabilities, and how well they agree."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import write_csv
from nnunet_nacl.folders import NewFolder, write_folder
from nnunet_nacl.metrics import LabelMeaning, confusion_matrix, dice, segment
from nnunet_nacl.metrics.counting import region_of
from nnunet_nacl.nnunet import CaseFiles, Model, Predictions, calibration_of, decoding_of
from nnunet_nacl.typing import Labels
from nnunet_nacl.use._means_text import means_text

AGREEMENT_NAME = "members_agreement.csv"


def combine_members(
    members: Sequence[str | Path],
    output: str | Path,
    *,
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[tuple[float, ...]]:
    """Write a folder of predictions with the mean of several members' probabilities, and its segmentations.

    The mean is that of ``nnUNetv2_ensemble``. Memory holds one case, whatever the number of members, and one byte per
    voxel of each segmentation. ``members_agreement.csv`` says how well the members' segmentations agree. A case that a
    member lacks, or that cannot be combined for another reason, is not in the folder, but in ``skipped``.

    Args:
        members: at least 2 folders of predictions of the same cases, calibrated by the same fit or not at all, and
            decoded for the same or not at all.
        output: the folder to write.
        num_processes: how many cases are combined at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.

    Raises:
        FileExistsError: ``output`` is a member, or not empty.
        ValueError: fewer than 2 members; they are of different models, or not calibrated or decoded alike; no case can
            be combined.
    """
    folders = read_members(members)
    first, *others = (folder.pred_folders[0] for folder in folders)
    for other in others:
        if calibration_of(other) != calibration_of(first):
            raise ValueError(
                f"members: {first} and {other} are not calibrated by the same fit. Combine their predictions of before "
                "calibration, then calibrate the mean."
            )
        if decoding_of(other) != decoding_of(first):
            raise ValueError(
                f"members: {first} and {other} are not decoded alike. Combine their predictions of before decoding, "
                "then decode the mean."
            )
    names = folders[0].data_set.meaning.names
    with write_folder(
        folders,
        output,
        "combined",
        partial(_write_case, members=folders),
        of_predictions=True,
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        rows = [
            (case, name, f"{value:.6f}")
            for case, agreement in written.results.items()
            for name, value in zip(names, agreement, strict=True)
        ]
        head = ("case", "structure", "mean_pairwise_dice")
        write_csv(written.unfinished / AGREEMENT_NAME, [head, *rows])
        content = {
            "members": list(map(str, (first, *others))),
            "cases": list(written.results),
        }
        written.write_mark("members.json", content)
        written.describe_like(folders[0])
    means = means_text(names, written.results.values())
    written.notes.append(
        f"Mean agreement of the members: {means}. That of each case is in {AGREEMENT_NAME}."
    )
    return written


def read_members(
    members: Sequence[str | Path], *, like: Predictions | None = None
) -> list[Predictions]:
    """Folders of predictions, 2 or more and each once, of the data set and labels of the first, or of ``like``."""
    if len({Path(member).resolve() for member in members}) < max(2, len(members)):
        listed = ", ".join(map(str, members))
        raise ValueError(f"members: expected 2 or more folders, each once; got {listed}.")
    folders = [Predictions.of_folder(None, folder) for folder in members]
    like = like or folders[0]
    for folder in folders:
        difference = _predicted(folder).difference(_predicted(like))
        if difference is not None:
            raise ValueError(f"{folder.home} has {difference} as {like.home}.")
    return folders


def case_of(member: Predictions, files: CaseFiles) -> CaseFiles:
    """The member's files of a case; a FileNotFoundError if it has none."""
    own = member.by_name.get(files.name)
    if own is None:
        raise FileNotFoundError(
            f"{member.home} has neither {files.prediction.name} nor {files.probabilities.name}."
        )
    return own


def _predicted(folder: Predictions) -> Model:
    """What members must share: the model, except for how it was trained."""
    return replace(folder.model, trainer=None, plans=None, configuration=None)


def _write_case(
    files: CaseFiles, folder: Path, *, members: Sequence[Predictions]
) -> tuple[float, ...]:
    cases = [SavedCase(case_of(member, files), member.data_set) for member in members]
    first = cases[0]
    mean = np.zeros(first.shape, np.float32)
    for case in cases:
        if case.shape != first.shape:
            raise ValueError(
                f"{case.files.probabilities}: the shape {case.shape} is not that of {first.files.probabilities}."
            )
        case.geometry.check_same(first.geometry)
        for channel, p in case.whole_channels():
            # In this order and precision, as nnU-Net adds them
            mean[channel] += p.reshape(case.labels.shape)
    mean /= len(members)
    meaning = members[0].data_set.meaning
    first.files.write(
        folder,
        members[0].data_set.reader,
        labels=segment(mean, meaning),
        probabilities=mean,
    )
    return mean_pairwise_dice([case.labels for case in cases], meaning)


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Agreement of members: for each structure the mean over pairs of ``2 |A ∩ B| / (|A| + |B|)``, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    found = []
    for pair in combinations(segmentations, 2):
        confusion = confusion_matrix(*pair, meaning.ignored + 1)
        found.append([dice(confusion, region_of(one)) for one in meaning.structures])
    return tuple(np.nan_to_num(found, nan=1.0).mean(0).tolist())
