"""The validation cases of a model's fold: those that nnU-Net predicted, and none that it was trained with."""

import shlex
from collections.abc import Collection
from pathlib import Path

from nnunet_nacl.nnunet._case_files import CaseFiles, cases_of, check_probabilities, description_of
from nnunet_nacl.nnunet._folders import SPLITS_NAME, Split, fold_split
from nnunet_nacl.nnunet._marks import CalibratedMark
from nnunet_nacl.nnunet._names import listed


def check_validated(folder: Path, fold: str) -> None:
    """Raise an error unless a fold's validation folder has probabilities, of the network that is there now."""
    if not folder.is_dir():
        there = listed(folder.parent.parent, f"fold_*/{folder.name}")
        hint = ""
        if folder.name == "validation" and (folder.parent / "checkpoint_final.pth").is_file():
            hint = f"nnUNetv2_train ... {fold} --val --npz predicts its cases"
        raise FileNotFoundError(f"{folder} is not a folder; there are {there}. {hint}".strip())
    check_probabilities(folder)
    mark = CalibratedMark.read(folder)
    if mark is not None and (checkpoint := mark.outdated_by(folder.parent)):
        raise ValueError(
            f"{folder} was calibrated before {checkpoint} changed: the fold was trained again since. Calibrate it "
            "again, with --npz --overwrite."
        )


def validation_cases(
    folder: Path, fold: str, preprocessed: Path, trained: Collection[str]
) -> list[CaseFiles]:
    """The cases in a fold's validation folder, and those that it lacks by the splits, if these are known.

    ``trained`` are the cases with ground truth, of which nnU-Net draws a split for a fold that has none. Raises a
    ValueError if there are predictions of training cases; nnU-Net never empties a validation folder.
    """
    split = Split(train=[], val=[])
    if fold == "all" or (preprocessed / SPLITS_NAME).is_file():
        split = fold_split(preprocessed, trained, fold)
    gt_folder = preprocessed / "gt_segmentations"
    all_cases = cases_of(folder, gt_folder, description_of(folder))
    training = {*split["train"]} - {*split["val"]}
    seen = [case.name for case in all_cases if case.is_predicted and case.name in training]
    if seen:
        command = shlex.join(["nnunet_nacl", "evaluate", str(gt_folder), str(folder)])
        raise ValueError(
            f"{folder} has training cases of fold {fold}, by the splits in {preprocessed}: {', '.join(seen)}. If "
            "the fold was trained with these splits, they are left over from an earlier training: remove them. "
            f"Otherwise, restore its splits, or evaluate the folder by itself: {command}"
        )
    return [case for case in all_cases if case.is_predicted or case.name in split["val"]]
