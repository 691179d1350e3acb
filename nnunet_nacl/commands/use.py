"""The commands ``review``, ``review fit``, ``decode`` and ``maps``."""

import shlex
from collections.abc import Sequence
from typing import Literal

from nnunet_nacl.commands._arguments import Chosen, num_processes
from nnunet_nacl.commands._output import print_skipped


def review(
    pred_folder: str,
    *,
    o: str | None = None,
    html: str | None = None,
    i: str | None = None,
    members: Sequence[str] = (),
    fit: str | None = None,
    gt: str | None = None,
    overwrite: bool = False,
) -> int:
    """List which cases to look at: predicted Dice, volumes and uncertainty, worst first.

    No ground truth is needed. After an interruption, the same command resumes where it stopped. 'nnunet_nacl review
    fit' fits the predicted Dice and intervals to cases with ground truth. (For a folder named fit, type ./fit.)

    Args:
        o: FILE.csv for the list; a .json file goes beside it (default: review.csv in PRED_FOLDER)
        html: FILE.html for a page to work from
        i: IMAGES: folder of the images for the page
        members: FOLDER of each member (two or more folds or seeds that predicted the same cases), to show how well they
            agree
        fit: FIT.json that review fit wrote, for fitted Dice and intervals
        gt: LABELS: ground truth to judge the list by

    Examples:
        nnunet_nacl review predictions --html review.html -i imagesTs
        nnunet_nacl review predictions --fit review_fit.json
    """
    from nnunet_nacl.use import review_folder

    done = review_folder(
        pred_folder, output=o, html=html, images=i, members=members, fit=fit, gt_folder=gt,
        num_processes=num_processes(), overwrite=overwrite,
    )  # fmt: skip
    print(done.summary())
    total = len(done.cases) + len(done.skipped)
    print(f"Reviewed {len(done.cases)} of {total} cases; the whole list is in {done.file}")
    return print_skipped(done.skipped)


def review_fit(
    chosen: Chosen,
    *,
    calibrated: bool = False,
    by_patient: str | bool = False,
    overwrite: bool = False,
) -> int:
    """Fit predicted Dice, volume intervals and recall thresholds to cases with ground truth.

    The cases are the validation cases of a model trained with --npz (-d -c -tr -p -f) or a folder of predictions made
    with --save_probabilities (GT_FOLDER PRED_FOLDER). Writes review_fit.json beside the model or in PRED_FOLDER.

    Args:
        by_patient: REGEX: fit to one case of each patient; the patient is the case's name up to the last underscore, or
            REGEX's first group

    Examples:
        nnunet_nacl review fit -d 4 -c 2d -f 0 1 2 3 4 --calibrated
        nnunet_nacl review fit labelsVal validation_predictions
    """
    predictions = chosen.predictions(calibrated=calibrated)
    from nnunet_nacl.use import fit_review

    done = fit_review(
        predictions, by_patient=by_patient, num_processes=num_processes(), overwrite=overwrite
    )
    file = shlex.quote(str(done.file))
    print(f"{done.summary()}\nWrote {file}, for: nnunet_nacl review PREDICTIONS --fit {file}")
    return print_skipped(done.skipped)


def decode(
    pred_folder: str,
    *,
    o: str,
    fit: str | None = None,
    alpha: float | None = None,
    threshold: Sequence[str] = (),
    overwrite: bool = False,
) -> int:
    """Write segmentations by thresholds, your own or of a guaranteed recall, or with the highest expected Dice.

    For Dice, the library rankseg chooses them: pip install -e ".[rankseg]".

    Args:
        o: FOLDER of the decoded copy; probabilities are hard links
        fit: FIT.json that 'review fit' wrote, for recall instead of Dice
        alpha: SHARE of each structure that its mask (where p reaches its threshold) may miss at most, on average, with
            --fit (default: 0.1)
        threshold: NAME=T for each structure: it is where p reaches T (default: 0.5 for structures that are not named)

    Examples:
        nnunet_nacl decode calibrated -o for_recall --fit review_fit.json --alpha 0.1
        nnunet_nacl decode predictions -o sensitive --threshold tumour=0.3 liver=0.5
    """
    from nnunet_nacl.use import decode_folder

    given = [one.rpartition("=") for one in threshold]
    thresholds = {name: float(value) for name, _, value in given}
    done = decode_folder(
        pred_folder, o, fit=fit, alpha=alpha, thresholds=thresholds, num_processes=num_processes(),
        overwrite=overwrite,
    )  # fmt: skip
    print(done.summary())
    return print_skipped(done.skipped)


def maps(
    pred_folder: str,
    *,
    o: str,
    what: Sequence[str] = ("confidence",),
    as_one: bool = False,
    dtype: Literal["uint8", "uint16", "float32"] | None = None,
    overwrite: bool = False,
) -> int:
    """Write probability maps (soft segmentations) of the structures, or maps of confidence or entropy, for a viewer.

    They lie where the image lies. NIfTI files say how integers are scaled, so that viewers show p in [0, 1].

    Args:
        o: FOLDER for CASE_MAP.nii.gz and so on
        what: MAP or maps: structures (the probability of each, as CASE_NAME.nii.gz), structure:NAME (of one),
            confidence, entropy
        as_one: write structures as one 4-D image, CASE_structures.nii.gz
        dtype: how numbers are stored (default: uint8 for structures in NIfTI files, else the finest of the format)

    Examples:
        nnunet_nacl maps predictions -o maps --what structures
        nnunet_nacl maps predictions -o maps --what confidence entropy structure:tumour
    """
    from nnunet_nacl.use import write_maps

    done = write_maps(
        pred_folder, o, what=what, as_one=as_one, dtype=dtype, num_processes=num_processes(),
        overwrite=overwrite,
    )  # fmt: skip
    print(done.summary())
    return print_skipped(done.skipped)
