"""Review a folder of predictions: count its cases, rank them, and judge them if there is ground truth."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped, check_any_used, each_case
from nnunet_nacl.evaluation import FolderResult, SavedCase, count_for_review
from nnunet_nacl.files import check_output, read_json, write_csv, write_json
from nnunet_nacl.metrics import LabelMeaning, confusion_matrix, dice, region_of
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions, first_channel
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.typing import ByName, Labels
from nnunet_nacl.use._doubtful_slices import FULL_DOUBT, DoubtfulSlice, doubtful_slices
from nnunet_nacl.use._judgement import (
    ignored_text,
    judge_structures,
    judgement_table,
    outcomes_of,
    rows_of,
)
from nnunet_nacl.use._ranking import ranked_cases, ranked_structures
from nnunet_nacl.use._review_fit import ReviewFit
from nnunet_nacl.use._structure_fit import StructureFit

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_FORMAT = "review of nnunet_nacl"
_NUM_LISTED = 10  # cases in the terminal
_NUM_SLICES = 3  # of each case on the page
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
    data_set = predictions.data_set
    data_set.check_regions()
    file = Path(output or predictions.home / "review.csv")
    page = None if html is None else Path(html)
    described = file.with_suffix(".json")
    # The default list replaces that of an earlier review
    replaces = overwrite
    if output is None:
        with suppress(OSError, ValueError):
            replaces |= read_json(described, ByName).get("format") == _FORMAT
    for one in (file, described):
        check_output(one, overwrite=replaces)
    if page is not None:
        check_output(page, overwrite=overwrite)
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
    views: dict[str, _View] = {}
    if members or page is not None:
        view = partial(
            _view,
            data_set=data_set,
            members=opened_members,
            images=None if images is None else Path(images).resolve(),
            slices=0 if page is None else _NUM_SLICES,
        )
        views, counted = _view_all(counted, predictions, view, num_processes)
    agreements = {case: one.agreement for case, one in views.items()}
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
    if page is not None:
        _write_page(page, review, views, data_set.meaning, predictions.home.resolve())
    return review


def _open_members(folders: Sequence[str | Path], predictions: Predictions) -> list[Predictions]:
    """Open other predictions of the same cases, perhaps of other trainings."""
    if len(folders) == 1:
        raise ValueError(
            "--members: expected two or more folders, whose agreement counts; got one."
        )
    members = [Predictions.of_folder(None, folder) for folder in folders]
    for member in members:
        own, like = (replace(one.provenance, **_MAY_DIFFER) for one in (member, predictions))
        if mismatch := own.mismatch(like):
            raise ValueError(
                f"{member.home} is no member for {predictions.home}: it has {mismatch}."
            )
    return members


class _View(NamedTuple):
    """A case for the page.

    Attributes:
        agreement: of the members on each structure; NaN without members.
        slices: to show.
        problem: the reason why its image is not shown, if it should be.
    """

    agreement: tuple[float, ...]
    slices: list[DoubtfulSlice]
    problem: str | None


def _view_all(
    counted: FolderResult,
    predictions: Predictions,
    view: Callable[[CaseFiles], _View],
    num_processes: int,
) -> tuple[dict[str, _View], FolderResult]:
    """View the cases; also returns the result with those alone that could be viewed."""
    views, failed = each_case(
        {name: predictions.by_name[name] for name in counted.cases},
        view,
        doing="drawing",
        num_processes=num_processes,
    )
    check_any_used(views, failed)
    rows = [row for row, case in enumerate(counted.cases) if case in views]
    return views, replace(counted.take(rows), skipped=[*counted.skipped, *failed])


def _view(
    files: CaseFiles,
    *,
    data_set: DataSet,
    members: Sequence[Predictions],
    images: Path | None,
    slices: int,
) -> _View:
    """Compare a case's members and draw its slices; an OSError or a ValueError if files are missing or do not fit."""
    case = SavedCase(files, data_set)
    agreement = (np.nan,) * len(data_set.meaning.structures)
    if members:
        labels = [case.read_like(member.home / files.prediction.name)[0] for member in members]
        agreement = mean_pairwise_dice(labels, data_set.meaning)
    if not slices:
        return _View(agreement, [], None)
    image = None if images is None else first_channel(images, files.name, files.prediction)
    shown, problem = doubtful_slices(case, data_set, image, number=slices)
    return _View(agreement, shown, problem)


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


def _write_page(
    file: Path,
    review: Review,
    views: Mapping[str, _View],
    meaning: LabelMeaning,
    folder: Path,
) -> None:
    """Write the list of cases, and pictures of each, into one self-contained file; completely or not at all."""
    cases = ranked_cases(review.table)
    slices = chain.from_iterable(view.slices for view in views.values())
    outlined = sorted({label for one in slices for label in one.picture.outlines})
    content = {
        "review": review,
        "cases": cases,
        "views": views,
        "reasons": {
            case: [f"{row['structure']}: {reason}" for row in of_case for reason in row["reasons"]]
            for case, of_case in cases.items()
        },
        "known": {*review.table.columns[review.table.notna().any()]},
        "structures": sorted(meaning.names),
        "outlines": {label: (meaning.name_of(label), label_color(label)) for label in outlined},
        "full_doubt": FULL_DOUBT,
        "folder": folder,
        "judgement": judgement_table(review.judgements) if review.judgements else "",
    }
    write_page(file, "use/templates/review.html.j2", content)


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


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Compute the agreement on each structure: the mean over pairs of ``2 |A ∩ B| / (|A| + |B|)``, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    found = []
    for pair in combinations(segmentations, 2):
        confusion = confusion_matrix(*pair, meaning.ignored + 1)
        found.append([dice(confusion, region_of(one)) for one in meaning.structures])
    return tuple(np.nan_to_num(found, nan=1.0).mean(0).tolist())
