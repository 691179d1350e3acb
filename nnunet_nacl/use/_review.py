"""Review a folder of predictions: count its cases, rank them, and judge them if there is ground truth."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnunet_nacl.evaluation import FolderResult, count_for_review
from nnunet_nacl.files import check_output
from nnunet_nacl.nnunet import Predictions, Provenance
from nnunet_nacl.use._judgement import ignored_text, judge_structures, outcomes_of
from nnunet_nacl.use._review_fit import ReviewFit
from nnunet_nacl.use._review_list import Review, check_list, ranked_structures
from nnunet_nacl.use._review_page import write_review_page
from nnunet_nacl.use._structure_fit import StructureFit
from nnunet_nacl.use._views import View, view_cases

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_BIASED = 0.25  # relative difference of the sums of expected and segmented volumes that is noted


def review_folder(
    pred_folder: str | Path,
    *,
    output: str | Path | None = None,
    html: str | Path | None = None,
    images: str | Path | None = None,
    members: Sequence[str | Path] = (),
    fit: str | Path | None = None,
    gt_folder: str | Path | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> Review:
    """List the structures of all cases of a folder of nnU-Net predictions made with ``--save_probabilities``.

    They are sorted by trust, the lowest first: the fitted Dice, or else the Dice to expect, that is the predicted Dice
    or, if nothing of a structure is segmented, 1 − max p. Ties are sorted by predicted Dice, then by expected volume,
    the largest first. Writes the CSV, and beside it a JSON file with the judgements. After an interruption, a second
    call counts only the remaining cases. A case that cannot be reviewed is in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations; or nnU-Net's validation folder of a fold.
        output: the CSV; by default ``review.csv`` in ``pred_folder``, where a review replaces an earlier one.
        html: a review page with pictures.
        images: folder of the images, for the page.
        members: two or more folders of other predictions of the same cases, by folds or seeds, for their agreement.
        fit: file that ``fit_review`` wrote, for fitted Dice and intervals.
        gt_folder: ground truth, to judge the review by.
        num_processes: how many cases are counted at a time.
        overwrite: replace outputs that exist.
    """
    predictions = Predictions.of_folder(gt_folder, pred_folder).predicted()
    predictions.data_set.check_regions()
    file = Path(output or predictions.home / "review.csv")
    check_list(file, is_default=output is None, overwrite=overwrite)
    if html is not None:
        check_output(html, overwrite=overwrite)
    opened_members = _open_members(members, predictions)
    fits: dict[str, StructureFit] = {}
    fit_notes = [
        "Trust is the Dice to expect. 'nnunet_nacl review fit' learns by how much it is off."
    ]
    if fit is not None:
        review_fit = ReviewFit.read(fit)
        fits = review_fit.structures
        fit_notes = review_fit.shortfalls()
        fit_notes += review_fit.check(predictions.provenance, predictions.home)
    counted = count_for_review(
        predictions, output=None if output is None else file, num_processes=num_processes
    )
    views: dict[str, View] = {}
    if members or html is not None:
        views, counted = view_cases(
            counted,
            predictions,
            members=opened_members,
            images=images,
            with_pictures=html is not None,
            num_processes=num_processes,
        )
    agreements = {case: view.agreement for case, view in views.items()}
    table = ranked_structures(counted, fits, agreements)
    outcomes = None if counted.counts.truth is None else outcomes_of(counted, fits)
    review = Review(
        table=table,
        judgements=[] if outcomes is None else judge_structures(outcomes),
        cases=counted.cases,
        skipped=counted.skipped,
        notes=[*_notes(counted, table), *fit_notes],
        file=file,
    )
    review.write(outcomes, fit)
    if html is not None:
        write_review_page(Path(html), review, views, counted.meaning, predictions.home.resolve())
    return review


def _open_members(folders: Sequence[str | Path], predictions: Predictions) -> list[Predictions]:
    """Open other predictions of the same cases, perhaps of other trainings."""
    different = {Path(folder).resolve() for folder in folders}
    if len(folders) == 1 or len(different) < len(folders):
        raise ValueError(
            "--members: expected two or more different folders, whose agreement counts; got "
            f"{', '.join(map(str, folders))}."
        )
    members = [Predictions.of_folder(None, folder) for folder in folders]
    for member in members:
        # Other trainings, calibrated or decoded otherwise, may be members
        own, like = (
            Provenance(made.labels, made.regions_class_order, made.dataset)
            for made in (member.provenance, predictions.provenance)
        )
        if mismatch := own.mismatch(like):
            raise ValueError(
                f"{member.home} is no member for {predictions.home}: it has {mismatch}."
            )
    return members


def _notes(counted: FolderResult, table: "DataFrame") -> list[str]:
    """List what to know before reading the list."""
    notes = []
    truth = counted.counts.truth
    ignored = None if truth is None else ignored_text(truth.ignored.tolist())
    if ignored is not None:
        notes.append(
            f"{ignored}. True volumes of these are unknown and left out; the Dice is that of labelled voxels."
        )
    sums = table.groupby("structure", sort=False)[["volume_ml", "segmented_ml"]].sum()
    shares = (sums.volume_ml / sums.segmented_ml - 1)[sums.segmented_ml > 0]
    for name, share in shares[shares.abs() > _BIASED].items():
        notes.append(
            f"{name}: the expected volumes add up to {1 + share:.2f} times the segmented ones. Either segmentations "
            f"are too {'small' if share > 0 else 'large'}, or the probabilities are not calibrated (see nnunet_nacl "
            "calibrate)."
        )
    return notes
