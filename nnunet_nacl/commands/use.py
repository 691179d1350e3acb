"""The commands ``decode``, ``maps`` and ``members``."""

from collections.abc import Sequence

from nnunet_nacl.commands._shared import num_processes, wrong_usage


def decode(
    pred_folder: str, *, o: str, fit: str | None = None, alpha: float | None = None, overwrite: bool = False
) -> int:
    """Write segmentations with the highest expected Dice, or with a guaranteed recall.

    They are chosen from the probabilities that nnU-Net saved.

    Args:
        o: FOLDER of the decoded copy; probabilities are hard links
        fit: FIT.json that 'review fit' has written, for recall in place of Dice
        alpha: SHARE of each structure that is missed at most, on average, with --fit (default: 0.1)

    Examples:
        nnunet_nacl decode calibrated -o for_dice
        nnunet_nacl decode calibrated -o for_recall --fit review_fit.json --alpha 0.1
    """
    if fit is None and alpha is not None:
        raise wrong_usage("--alpha goes with --fit FIT.json, which nnunet_nacl review fit writes.")
    from nnunet_nacl.use import decode_folder

    share = 0.1 if alpha is None else alpha
    decoded = decode_folder(pred_folder, o, fit=fit, alpha=share, num_processes=num_processes(), overwrite=overwrite)
    print(decoded.summary())
    return 1 if decoded.skipped else 0


def maps(
    pred_folder: str,
    *,
    o: str,
    what: Sequence[str] = ("confidence",),
    overwrite: bool = False,
) -> int:
    """Write images of confidence, entropy or a structure's probability, for a viewer.

    They lie where each case's segmentation does: same spacing, origin, direction and format. Viewers such as ITK-SNAP
    and 3D Slicer show them over it.

    Args:
        o: FOLDER for CASE_MAP.nii.gz and so on
        what: MAP or maps: confidence, entropy or structure:NAME (its probability)

    Examples:
        nnunet_nacl maps predictions -o maps --what confidence entropy structure:tumour
    """
    from nnunet_nacl.use import write_maps

    written = write_maps(pred_folder, o, what=what, num_processes=num_processes(), overwrite=overwrite)
    print(written.summary())
    return 1 if written.skipped else 0


def members(*members: str, o: str, overwrite: bool = False) -> int:
    """Average the predictions of several folds or seeds, and say how well they agree.

    The mean of their probabilities, as nnUNetv2_ensemble writes it.

    Args:
        members: folder of each member's predictions of the same cases
        o: FOLDER of the mean

    Examples:
        nnunet_nacl members fold_0 fold_1 fold_2 -o ensemble
    """
    from nnunet_nacl.use import combine_members

    combined = combine_members(members, o, num_processes=num_processes(), overwrite=overwrite)
    print(combined.summary())
    return 1 if combined.skipped else 0
