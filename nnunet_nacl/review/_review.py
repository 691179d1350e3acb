"""Reviews a folder of predictions: counts its cases, lists them, judges them if there is ground truth."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from nnunet_nacl import __version__
from nnunet_nacl.files import Kind, check_file, is_readable, only_writer, whole_file, write_csv
from nnunet_nacl.json_files import load_json, read_json, typed
from nnunet_nacl.nnunet import CaseFiles, DataSet, DatasetJson, dataset_files, find_cases
from nnunet_nacl.review._cases import Basis, CountedCase, CountJournal, count_cases
from nnunet_nacl.review._counts import CountSettings
from nnunet_nacl.review._fit_file import ReviewFit, SkippedCase
from nnunet_nacl.review._judgement import Judged, Judgement, judge, judgement_table
from nnunet_nacl.review._page import PAGE, write_page
from nnunet_nacl.review._rows import StructureReview, judged, rows_of

REVIEW_NAME = "review.csv"
_FORMAT = "review of nnunet_nacl"
_CSV = Kind("a review", re.compile(rb"\Acase,structure,predicted_dice,"))
_JSON = Kind("a review", re.compile(rb'\A\{\s*"format": "review of nnunet_nacl"'))
_SLICES = 3
_BIASED = 0.25
"""Expected volumes that differ in sum from those of the segmentations by more than this share are worth a note."""


@dataclass(frozen=True)
class Review:
    """What :func:`review_folder` returns.

    Attributes:
        rows: one for each structure of each case, worst first.
        judged: what is predicted of each structure of each case, and what is true; empty without ground truth.
        judgements: of each structure, and of all together; empty without ground truth.
        cases: what was counted of each case.
        skipped: cases that could not be reviewed, and why.
        fitted_to_same_cases: cases that the fit was fitted to, which takes ``force``.
        notes: on the whole folder.
        file: the CSV.
    """

    rows: list[StructureReview]
    judged: list[Judged]
    judgements: list[Judgement]
    cases: list[CountedCase]
    skipped: list[SkippedCase]
    fitted_to_same_cases: list[str]
    notes: list[str]
    file: Path

    def summary(self, most: int = 10) -> str:
        """The worst rows, notes and judgements, for people."""
        lines = [f"{row.trust:5.2f}  {row.case}  {row.structure}  {'; '.join(row.reasons)}" for row in self.rows[:most]]
        if len(self.rows) > most:
            lines.append(f"… and {len(self.rows) - most} more")
        if self.judgements:
            lines += ["", judgement_table(self.judgements)]
        return "\n".join(["trust  case  structure", *lines, *self.notes])


def review_folder(
    pred_folder: str | Path,
    *,
    output: str | Path | None = None,
    html: str | Path | None = None,
    images: str | Path | None = None,
    members: Sequence[str | Path] = (),
    fit: str | Path | None = None,
    gt_folder: str | Path | None = None,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    num_processes: int = 1,
    ignore_geometry: bool = False,
    force: bool = False,
    overwrite: bool = False,
) -> Review:
    """List the structures of all cases of a folder of nnU-Net predictions made with ``--save_probabilities``.

    Worst first: by predicted Dice (fitted, with a fit); a structure of which nothing is segmented by 1 − max p, then by
    its expected volume. Writes the CSV, and beside it a JSON file with everything that was counted. Run again, cases
    whose files are the same are not read again. A case that cannot be reviewed is in ``skipped`` with the reason.

    Args:
        pred_folder: ``CASE.npz`` and segmentations; or nnU-Net's validation folder of a fold.
        output: the CSV; by default ``review.csv`` in ``pred_folder``.
        html: a page to work from.
        images: folder of the images, for the page.
        members: two or more folders of other predictions of the same cases, by folds or seeds, for their agreement.
        fit: file that :func:`fit_review` wrote, for fitted Dice and intervals.
        gt_folder: ground truth, to judge the review by.
        dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``.
        plans: the ``plans.json`` whose reader is used; by default the one in ``pred_folder``.
        num_processes: how many cases are counted at a time.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.
        force: use the fit even for cases that it was fitted to.
        overwrite: count every case anew, and replace files that are no reviews, too.

    Raises:
        FileNotFoundError: a file or folder is missing.
        OSError: the output cannot be written, or there is something else.
        ValueError: no case can be reviewed, or the fit must not be used for this folder.
    """
    folder = Path(pred_folder)
    folders = [folder, *map(Path, members), *(Path(one) for one in (images, gt_folder) if one is not None)]
    for one in folders:
        if not one.is_dir():
            raise FileNotFoundError(f"{one} is not a folder.")
    if len(members) == 1:
        raise ValueError(f"members must be two folders or more, which are compared with each other; got {members[0]}.")
    file = check_file(folder / REVIEW_NAME if output is None else output, _CSV, overwrite=overwrite)
    if file.suffix.lower() in {".json", ".html"}:
        raise ValueError(f"{file}: expected a name that ends with .csv, since other files are written beside it.")
    check_file(file.with_suffix(".json"), _JSON, overwrite=overwrite)
    page = None if html is None else check_file(html, PAGE, overwrite=overwrite)

    dataset_file, plans_file = dataset_files(folder, dataset_json, plans)
    found = find_cases(
        folder if gt_folder is None else Path(gt_folder), folder, DatasetJson.read(dataset_file).file_ending
    )
    cases = [case for case in found if case.is_predicted]
    examples = [case.prediction for case in cases if is_readable(case.prediction)]
    data_set = DataSet.read(dataset_file, plans_file, sorted(examples, key=lambda example: example.stat().st_size))
    if not data_set.meaning.structures:
        raise ValueError(f"{dataset_file}: expected 2 labels or more, the background being one; got 1.")
    chosen = None if fit is None else ReviewFit.read(fit)
    seen: list[str] = []
    if chosen is not None:
        seen = chosen.check(folder, plans_file, data_set, [case.name for case in cases], force=force)
    settings = CountSettings(
        members=tuple(str(Path(one).resolve()) for one in members),
        truth=gt_folder is not None,
        slices=0 if page is None else _SLICES,
        images=None if images is None or page is None else str(Path(images).resolve()),
        ignore_geometry=ignore_geometry,
    )
    with only_writer(file):
        counted, skipped, journal = _counted(cases, data_set, settings, file, num_processes, overwrite=overwrite)
        if chosen is not None:
            counted, skipped = _of_known_unit(counted, skipped, chosen)
        if not counted:
            raise ValueError(
                f"None of {len(cases)} cases can be reviewed; the first: {skipped[0].case}: {skipped[0].reason}"
                if skipped
                else f"No prediction found in {folder}."
            )
        rows = rows_of(counted, chosen)
        names = list(counted[0].counts.structures)
        of_truth = [judged(case, name, chosen) for name in names for case in counted] if settings.truth else []
        judgements = judge(of_truth)
        notes = _notes(counted, seen)
        review = Review(rows, of_truth, judgements, counted, skipped, seen, notes, file)
        _write(review, Basis.of(data_set, replace(settings, slices=0, images=None)), chosen, overwrite=overwrite)
        if page is not None:
            meaning = data_set.meaning
            write_page(
                rows,
                counted,
                page,
                files={case.name: case for case in cases},
                folder=folder,
                notes=notes,
                judgements=judgements,
                skipped=skipped,
                names=names,
                labels={label: meaning.name_of(label) for label in meaning.known},
                images=None if images is None else Path(images),
                overwrite=overwrite,
            )
        journal.remove()
    return review


def _counted(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    settings: CountSettings,
    file: Path,
    num_processes: int,
    *,
    overwrite: bool,
) -> tuple[list[CountedCase], list[SkippedCase], CountJournal]:
    basis = Basis.of(data_set, settings)
    journal = CountJournal(file, basis)
    known: Mapping[str, CountedCase] = {}
    if overwrite:
        journal.clear()
    else:
        known = _earlier(file.with_suffix(".json"), basis)
    counted, skipped = count_cases(cases, data_set, settings, journal=journal, known=known, num_processes=num_processes)
    return counted, skipped, journal


def _of_known_unit(
    counted: Sequence[CountedCase], skipped: Sequence[SkippedCase], fit: ReviewFit
) -> tuple[list[CountedCase], list[SkippedCase]]:
    """Skip the cases whose voxels have a volume that the fit cannot know."""
    kept, left_out = [], list(skipped)
    for case in counted:
        try:
            fit.check_voxel(case.counts.voxel_ml)
            kept.append(case)
        except ValueError as error:  # noqa: PERF203 - a bad case must not take the others with it
            left_out.append(SkippedCase(case.case, str(error)))
    return kept, sorted(left_out, key=lambda entry: entry.case)


def _notes(cases: Sequence[CountedCase], seen: Sequence[str]) -> list[str]:
    notes = []
    for name in cases[0].counts.structures:
        expected, segmented = (
            sum(getattr(case.counts.structures[name].sums, one) * case.counts.voxel_ml for case in cases)
            for one in ("probability", "segmented")
        )
        if segmented and abs(expected / segmented - 1) > _BIASED:
            notes.append(
                f"{name}: the expected volumes are in sum {expected / segmented - 1:+.0%} from those of the "
                "segmentations. The probabilities look uncalibrated: see nnunet_nacl calibrate."
            )
    if seen:
        notes.append(f"The fit was fitted to {len(seen)} of these cases: what it says of them is too good.")
    return notes


@dataclass(frozen=True)
class _StoredJudged:
    """What of the JSON file :func:`read_judged` returns; the first version did not write it."""

    format: Literal["review of nnunet_nacl"]
    judged: list[Judged] = field(default_factory=list)


def read_judged(review: str | Path) -> list[Judged]:
    """What a review says of each structure of each case, and what the ground truth says.

    Args:
        review: the JSON file that :func:`review_folder` writes beside the CSV.

    Returns:
        One for each structure and case; empty if there was no ground truth.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        ValueError: it is something else, or damaged.
    """
    return read_json(Path(review), _StoredJudged, _FORMAT, finite=True).judged


@dataclass(frozen=True)
class _Stored:
    """What of the JSON file is taken up again."""

    format: str
    basis: Basis
    cases: list[CountedCase]


def _earlier(file: Path, basis: Basis) -> Mapping[str, CountedCase]:
    """The cases of an earlier review, if they were counted on the same basis."""
    try:
        stored = typed(load_json(file), _Stored, str(file), _FORMAT)
    except (OSError, ValueError):  # what cannot be read is counted again
        return {}
    return {case.case: case for case in stored.cases} if stored.basis == basis else {}


def _write(review: Review, basis: Basis, fit: ReviewFit | None, *, overwrite: bool) -> None:
    columns = [one.name for one in fields(StructureReview)]
    with (
        whole_file(review.file, _CSV, overwrite=overwrite) as partial,
        partial.open("w", newline="", encoding="utf-8") as stream,
    ):
        write_csv(stream, [columns, *([_cell(getattr(row, name)) for name in columns] for row in review.rows)])
    content = {
        "format": _FORMAT,
        "version": __version__,
        "fit": None if fit is None else str(fit.file),
        "fitted_to_same_cases": review.fitted_to_same_cases,
        "judgements": [asdict(one) for one in review.judgements],
        "judged": [asdict(one) for one in review.judged],
        "notes": review.notes,
        "skipped": [asdict(one) for one in review.skipped],
        "basis": asdict(basis),
        "cases": [
            asdict(replace(case, counts=replace(case.counts, pictures=[], problems=[]))) for case in review.cases
        ],
    }
    with whole_file(review.file.with_suffix(".json"), _JSON, overwrite=overwrite) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _cell(value: str | float | tuple[str, ...] | None) -> str | float:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "; ".join(value)
    return value if isinstance(value, str) else f"{value:.6g}"
