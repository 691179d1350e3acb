"""Review a folder of predictions: count its cases, rank them, and judge them if there is ground truth."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation import FolderResult, count_for_review
from nnunet_nacl.files import check_output, read_json, write_csv, write_json
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._judgement import (
    ignored_text,
    judge_structures,
    judgement_table,
    outcomes_of,
    rows_of,
)
from nnunet_nacl.use._ranking import ranked_cases, ranked_structures
from nnunet_nacl.use._review_fit import ReviewFit
from nnunet_nacl.use._review_page import View, view_cases, write_review_page
from nnunet_nacl.use._structure_fit import StructureFit

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_FORMAT = "review of nnunet_nacl"
_NUM_LISTED = 10  # cases in the terminal
_MAY_DIFFER: ByName = {
    **dict.fromkeys(("trainer", "plans", "configuration", "decoded")),
    "calibration": [],
    "cases": [],
}
"""The parts of their provenance in which members of an ensemble may differ."""
_BIASED = 0.25  # relative difference of the sums of expected and segmented volumes that is noted


@dataclass(frozen=True)
class Review:
    """A review of a folder: the ``table`` is the CSV's, a row for each structure of each case.

    With ground truth it has judgements. ``notes`` concern all cases.
    """

    table: "DataFrame"
    judgements: list[ByName]
    cases: list[str]
    skipped: list[Skipped]
    notes: list[str]
    file: Path

    def summary(self) -> str:
        """Return a text for users: the first cases with their lowest-ranked structure, judgements and notes."""
        lines = ["trust  structure, rank  case"]
        total = len(self.cases)
        for rows in list(ranked_cases(self.table).values())[:_NUM_LISTED]:
            row = rows[0]
            rank = f"{row['trust']:5.2f}  {row['structure']}, {row['rank']} of {total}"
            lines.append("  ".join([rank, row["case"], *row["reasons"]]))
        if total > _NUM_LISTED:
            lines.append(f"… and {total - _NUM_LISTED} more cases")
        if self.judgements:
            lines += ["", judgement_table(self.judgements)]
        return "\n".join([*lines, *self.notes])


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
    _check_outputs(file, html, is_default=output is None, overwrite=overwrite)
    opened_members = _open_members(members, predictions)
    fits: dict[str, StructureFit] = {}
    fit_notes = [
        "Trust is the Dice to expect. 'nnunet_nacl review fit' learns by how much it is off."
    ]
    if fit is not None:
        review_fit = ReviewFit.read(fit)
        fits = review_fit.structures
        fit_notes = review_fit.check(predictions)
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
            draws=html is not None,
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
    _write_list(review, outcomes, fit)
    if html is not None:
        write_review_page(
            Path(html),
            table,
            views,
            counted.meaning,
            judgements=review.judgements,
            notes=review.notes,
            skipped=review.skipped,
            folder=predictions.home.resolve(),
        )
    return review


def _check_outputs(
    file: Path, html: str | Path | None, *, is_default: bool, overwrite: bool
) -> None:
    """Raise an OSError if an output exists or cannot be written; a default list replaces that of an earlier review."""
    described = file.with_suffix(".json")
    replaces = overwrite
    if is_default:
        with suppress(OSError, ValueError):
            replaces |= read_json(described, ByName).get("format") == _FORMAT
    for one in (file, described):
        check_output(one, overwrite=replaces)
    if html is not None:
        check_output(html, overwrite=overwrite)


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
        own, like = (replace(one.provenance, **_MAY_DIFFER) for one in (member, predictions))
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


def _write_list(review: Review, outcomes: "DataFrame | None", fit: str | Path | None) -> None:
    """Write the list and, beside it, the judgements with the predictions and truth that they compare."""
    table = review.table.astype(object).where(review.table.notna(), "")
    table["reasons"] = table["reasons"].map("; ".join)
    table = table.map(lambda cell: f"{cell:.6g}" if isinstance(cell, float) else cell)
    content = {
        "format": _FORMAT,
        "version": __version__,
        "fit": None if fit is None else str(fit),
        "judgements": review.judgements,
        "judged": [] if outcomes is None else rows_of(outcomes),
        "notes": review.notes,
        "skipped": [asdict(case) for case in review.skipped],
    }
    # First, since it marks the list beside it as a review's, also if this process is killed in between
    write_json(review.file.with_suffix(".json"), content)
    write_csv(review.file, [table.columns, *table.to_numpy()])
