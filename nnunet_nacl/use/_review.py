"""Review a folder of predictions: count its cases, list them, and judge them if there is ground truth."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped, check_any_used, each_case
from nnunet_nacl.evaluation import FolderResult, SavedCase, count_for_review
from nnunet_nacl.files import check_output, read_json, write_csv, write_json
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions, first_channel
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.use._doubt import FULL_DOUBT, DoubtfulSlice, doubtful_slices
from nnunet_nacl.use._fit import ReviewFit
from nnunet_nacl.use._judging import (
    Judgement,
    ignored_text,
    judge_structures,
    judgement_table,
)
from nnunet_nacl.use._members import case_of, mean_pairwise_dice, read_members
from nnunet_nacl.use._ranking import ranked_cases, ranked_structures
from nnunet_nacl.use._structures import (
    Outcome,
    outcome_frame,
    outcomes_of,
    rows_of,
)

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

REVIEW_NAME = "review.csv"
_LISTED = 10  # cases in the terminal
_SLICES = 3  # of each case on the page
_BIASED = 0.25  # a difference of expected and segmented volumes, in sum, that is worth a note


@dataclass(frozen=True)
class Review:
    """What ``review_folder`` returns: the ``table`` is the CSV's, a row for each structure of each case.

    With ground truth it has judgements. ``notes`` concern all cases.
    """

    table: "DataFrame"
    judgements: list[Judgement]
    cases: list[str]
    skipped: list[Skipped]
    notes: list[str]
    file: Path

    def summary(self) -> str:
        """A text for users: the first cases with their lowest-ranked structure, judgements and notes."""
        lines = ["trust  structure, rank  case"]
        total = len(self.cases)
        for rows in list(ranked_cases(self.table).values())[:_LISTED]:
            row = rows[0]
            rank = f"{row['trust']:5.2f}  {row['structure']}, {row['rank']} of {total}"
            lines.append("  ".join([rank, row["case"], *row["reasons"]]))
        if total > _LISTED:
            lines.append(f"… and {total - _LISTED} more cases")
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
    or, if nothing of a structure is segmented, 1 − max p, and then the expected volume. Writes the CSV, and beside it a
    JSON file with the judgements. After an interruption, a second call continues with the remaining cases. A case that
    cannot be reviewed is in ``skipped``.

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
    file = Path(output or predictions.home / REVIEW_NAME)
    page = None if html is None else Path(html)
    _check_outputs(file, page, fit, is_default=output is None, overwrite=overwrite)
    member_folders = read_members(members, like=predictions) if members else []
    chosen = None if fit is None else ReviewFit.read(fit)
    fit_notes = _fit_notes(chosen, predictions)
    image_folder = _checked_images(images, predictions.cases)
    counted = count_for_review(
        predictions,
        output=None if output is None else file,
        num_processes=num_processes,
    )
    looks: dict[str, _Look] = {}
    if members or page is not None:
        looks, unseen = each_case(
            {case.name: case for case in counted.files},
            partial(
                _look,
                data_set=data_set,
                members=member_folders,
                images=image_folder,
                slices=0 if page is None else _SLICES,
            ),
            doing="looking",
            num_processes=num_processes,
        )
        check_any_used(looks, unseen)
        rows = [row for row, case in enumerate(counted.cases) if case in looks]
        counted = replace(counted.take(rows), skipped=[*counted.skipped, *unseen])
    fits = chosen.structures if chosen else {}
    agreement = np.full((len(counted.cases), len(counted.structures)), np.nan)
    if looks:
        agreement[:] = [looks[case].agreement for case in counted.cases]
    table = ranked_structures(counted, fits, agreement)
    outcomes = outcomes_of(counted, fits)
    review = Review(
        table=table,
        judgements=judge_structures(outcomes),
        cases=counted.cases,
        skipped=counted.skipped,
        notes=[*_notes(counted, table), *fit_notes],
        file=file,
    )
    _write(review, outcomes, chosen)
    if page is not None:
        _write_page(page, review, looks, data_set.meaning, predictions.home.resolve())
    return review


def _check_outputs(
    table: Path, page: Path | None, fit: str | Path | None, *, is_default: bool, overwrite: bool
) -> None:
    """Raise an error if one of the files that a review writes has an unsuitable name or exists already.

    The default list replaces that of an earlier review. No file replaces the fit.
    """
    described = table.with_suffix(".json")
    for file in filter(None, (table, described, page)):
        if fit is not None and file.resolve() == Path(fit).resolve():
            raise ValueError(f"{file} would replace the fit; choose another name.")
    replaces = overwrite or (is_default and _is_of_a_review(described))
    check_output(table, overwrite=replaces)
    if table.suffix.lower() in {".json", ".html"}:
        raise ValueError(
            f"{table}: expected a name that ends with .csv, since other files are written beside it."
        )
    check_output(described, overwrite=replaces)
    if page is not None:
        check_output(page, overwrite=overwrite)
    if page in {table, described}:
        raise ValueError(f"{page}: the page needs another name than the list and its .json file.")


def _fit_notes(fit: ReviewFit | None, predictions: Predictions) -> list[str]:
    """What to know of the fit, if there is one; a ValueError if it must not be used for these predictions."""
    if fit is None:
        return [
            "Trust is the Dice to expect. 'nnunet_nacl review fit' learns by how much it is off."
        ]
    return [*fit.quality_notes(), *fit.ignored_notes(), *fit.check(predictions)]


@dataclass(frozen=True)
class _Look:
    """What a review sees in a case's files: agreement of members on each structure (NaN without), slices to show."""

    agreement: tuple[float, ...]
    slices: list[DoubtfulSlice]
    problem: str | None


def _look(
    files: CaseFiles,
    *,
    data_set: DataSet,
    members: Sequence[Predictions],
    images: Path | None,
    slices: int,
) -> _Look:
    """Look at a case; raises an OSError or a ValueError if a file is missing, damaged, or does not fit the others."""
    case = SavedCase(files, data_set)
    agreement = (np.nan,) * len(data_set.meaning.structures)
    if members:
        of_members = [case_of(member, files).prediction for member in members]
        labels = [case.read_like(file)[0] for file in of_members]
        agreement = mean_pairwise_dice(labels, data_set.meaning)
    if not slices:
        return _Look(agreement, [], None)
    image = None if images is None else first_channel(images, files.name, files.prediction)
    shown, problem = doubtful_slices(case, data_set, image, number=slices)
    return _Look(agreement, shown, problem)


def _checked_images(images: str | Path | None, cases: Sequence[CaseFiles]) -> Path | None:
    if images is None:
        return None
    folder = Path(images).resolve()
    expected = [first_channel(folder, case.name, case.prediction) for case in cases]
    if not any(file.exists() for file in expected):
        raise FileNotFoundError(f"{images} has no images of these cases: no {expected[0].name}.")
    return folder


def _notes(counted: FolderResult, table: "DataFrame") -> list[str]:
    """What to know before reading the list."""
    notes = []
    truth = counted.counts.truth
    ignored = None if truth is None else ignored_text(truth.ignored.tolist())
    if ignored is not None:
        notes.append(
            f"{ignored}. True volumes of these are unknown and left out; the Dice is that of labelled voxels."
        )
    lost = counted.meaning.what_is_lost
    if lost is not None:
        notes.append(f"{lost} Segmented volumes and Dice are those of the label map.")
    sums = table.groupby("structure", sort=False)[["volume_ml", "segmented_ml"]].sum()
    shares = (sums.volume_ml / sums.segmented_ml - 1)[sums.segmented_ml > 0]
    for name, share in shares[shares.abs() > _BIASED].items():
        notes.append(
            f"{name}: the expected volumes add up to {1 + share:.2f} times the segmented ones. Either segmentations "
            f"are too {'small' if share > 0 else 'large'}, or the probabilities are not calibrated (see nnunet_nacl "
            "calibrate)."
        )
    return notes


@dataclass(frozen=True)
class _Marked:
    """What a review's JSON file of any version has."""

    format: Literal["review of nnunet_nacl"]


@dataclass(frozen=True)
class _Stored(_Marked):
    """The part of the JSON file that ``read_outcomes`` returns."""

    judged: list[Outcome]


def _is_of_a_review(file: Path) -> bool:
    """Whether a JSON file is a review's, and so the list beside it."""
    with suppress(OSError, ValueError):
        read_json(file, _Marked)
        return True
    return False


def read_outcomes(folder: Path) -> "DataFrame":
    """What the review in a folder predicts for each structure of each case, and what is true; empty without truth.

    A row for each ``Outcome``, whose index is case and structure. A FileNotFoundError says that the folder has no
    review, a ValueError that another version wrote it.
    """
    stored = read_json((folder / REVIEW_NAME).with_suffix(".json"), _Stored)
    return outcome_frame(map(vars, stored.judged))


def _write_page(
    file: Path,
    review: Review,
    looks: Mapping[str, _Look],
    meaning: LabelMeaning,
    folder: Path,
) -> None:
    """Write the list of cases, and pictures of each, into one self-contained file; completely or not at all."""
    cases = ranked_cases(review.table)
    slices = [one for look in looks.values() for one in look.slices]
    outlined = sorted({label for one in slices for label in one.picture.outlines})
    content = {
        "cases": cases,
        "reasons": {
            case: [f"{row['structure']}: {reason}" for row in of_case for reason in row["reasons"]]
            for case, of_case in cases.items()
        },
        "looks": looks,
        "known": {*review.table.columns[review.table.notna().any()]},
        "structures": sorted(meaning.names),
        "outlines": {label: (meaning.name_of(label), label_color(label)) for label in outlined},
        "full_doubt": FULL_DOUBT,
        "folder": folder,
        "notes": review.notes,
        "judgement": judgement_table(review.judgements) if review.judgements else "",
        "skipped": review.skipped,
    }
    write_page(file, "use/templates/review.html.j2", content)


def _write(review: Review, outcomes: "DataFrame", fit: ReviewFit | None) -> None:
    """Write the list and, beside it, what ``read_outcomes`` reads."""
    table = review.table.astype(object).where(review.table.notna(), "")
    table["reasons"] = table["reasons"].map("; ".join)
    table = table.map(lambda cell: f"{cell:.6g}" if isinstance(cell, float) else cell)
    content = {
        "format": "review of nnunet_nacl",
        "version": __version__,
        "fit": None if fit is None else str(fit.file),
        "judgements": list(map(asdict, review.judgements)),
        "judged": rows_of(outcomes.reset_index()),
        "notes": review.notes,
        "skipped": [asdict(case) for case in review.skipped],
    }
    # First, since it marks the list beside it as a review's, also if this process is killed in between
    write_json(review.file.with_suffix(".json"), content)
    write_csv(review.file, [table.columns, *table.to_numpy()])
