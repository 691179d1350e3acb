"""Reviews a folder of predictions: counts its cases, lists them, judges them if there is ground truth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import check_output, only_writer, read_json, whole_file, write_csv, write_json
from nnunet_nacl.nnunet import CaseFiles, PredictionFolder
from nnunet_nacl.use._counting import CountedCase, CountSettings, basis_of, count_cases, first_channel
from nnunet_nacl.use._fit import ReviewFit, judged
from nnunet_nacl.use._judging import Judged, Judgement, judge, judgement_table
from nnunet_nacl.use._members import read_members
from nnunet_nacl.use._page import write_page
from nnunet_nacl.use._rows import StructureReview, ranked_cases, rows_of

REVIEW_NAME = "review.csv"
_FORMAT: Literal["review of nnunet_nacl"] = "review of nnunet_nacl"
_SLICES = 3
_BIASED = 0.25
"""Expected volumes that differ in sum from those of the segmentations by more than this share are worth a note."""


@dataclass(frozen=True)
class Review:
    """What :func:`review_folder` returns."""

    rows: list[StructureReview]
    judged: list[Judged]
    judgements: list[Judgement]
    cases: list[CountedCase]
    skipped: list[Skipped]
    notes: list[str]
    file: Path

    def summary(self, most: int = 10) -> str:
        """The first cases with the structure that ranks lowest, judgements and notes, for people."""
        cases, total = ranked_cases(self.rows), len(self.cases)
        lines = ["trust  rank  case  structure"]
        for case in cases[:most]:
            row = case.rows[0]
            rank = f"{row.rank} of {total}"
            lines.append(f"{row.trust:5.2f}  {rank}  {case.case}  {row.structure}  {'; '.join(row.reasons)}")
        if total > most:
            lines.append(f"… and {total - most} more cases")
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
    ignore_geometry: bool = False,
    force: bool = False,
    overwrite: bool = False,
) -> Review:
    """List the structures of all cases of a folder of nnU-Net predictions made with ``--save_probabilities``.

    By predicted Dice (fitted, with a fit), the lowest first; a structure of which nothing is segmented by 1 − max p,
    then by its expected volume. Writes the CSV, and beside it a JSON file with everything that was counted. Run again,
    cases whose files are the same are not read again. A case that cannot be reviewed is in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations; or nnU-Net's validation folder of a fold.
        output: the CSV; by default ``review.csv`` in ``pred_folder``, which a rerun replaces.
        html: a page to work from.
        images: folder of the images, for the page.
        members: two or more folders of other predictions of the same cases, by folds or seeds, for their agreement.
        fit: file that :func:`fit_review` wrote, for fitted Dice and intervals.
        gt_folder: ground truth, to judge the review by.
        num_processes: how many cases are counted at a time.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.
        force: use the fit even for cases that it was fitted to.
        overwrite: replace outputs that exist.

    Raises:
        FileNotFoundError: a file or folder is missing.
        OSError: an output exists or cannot be written.
        ValueError: no case can be reviewed, or fit, images or members are not of this folder.
    """
    read = PredictionFolder.read(pred_folder)
    folder, data_set, meaning = read.folder, read.data_set, read.data_set.meaning
    file = check_output(output or folder / REVIEW_NAME, overwrite=overwrite or output is None)
    if file.suffix.lower() in {".json", ".html"}:
        raise ValueError(f"{file}: expected a name that ends with .csv, since other files are written beside it.")
    check_output(file.with_suffix(".json"), overwrite=overwrite or output is None)
    page = None if html is None else check_output(html, overwrite=overwrite)
    cases = [case for case in read.cases if case.is_predicted]
    if gt_folder is not None:
        cases = [replace(case, ground_truth=Path(gt_folder) / case.ground_truth.name) for case in cases]
        if not any(case.ground_truth.exists() for case in cases):
            raise FileNotFoundError(f"{gt_folder} has no ground truth: no {cases[0].ground_truth.name}.")
    _check_images(images, gt_folder, cases)
    if not meaning.structures:
        raise ValueError(f"{read.dataset_json}: expected 2 labels or more, the background being one; got 1.")
    if members:
        read_members(members, like=read)
    chosen = None if fit is None else ReviewFit.read(fit)
    notes = [] if chosen is None else chosen.check(read, force=force)
    settings = CountSettings(
        members=tuple(str(Path(one).resolve()) for one in members),
        truth=gt_folder is not None,
        slices=0 if page is None else _SLICES,
        images=None if images is None or page is None else str(Path(images).resolve()),
        ignore_geometry=ignore_geometry,
    )
    with only_writer(file):
        known = _earlier(file.with_suffix(".json"), basis_of(data_set, settings))
        counted, skipped, journal = count_cases(
            cases, data_set, settings, beside=file, known=known, num_processes=num_processes
        )
        if chosen is not None:
            counted, skipped = _of_known_unit(counted, skipped, chosen)
        if not counted:
            raise ValueError(
                f"None of {len(cases)} cases can be reviewed; the first: {skipped[0].case}: {skipped[0].reason}"
            )
        rows = rows_of(counted, chosen)
        say = judged if chosen is None else chosen.judged
        of_truth = [say(case, name) for name in counted[0].counts.structures for case in counted] if gt_folder else []
        notes = [*_volume_notes(counted), *notes]
        review = Review(rows, of_truth, judge(of_truth), counted, skipped, notes, file)
        _write(review, basis_of(data_set, replace(settings, slices=0, images=None)), chosen)
        if page is not None:
            write_page(
                ranked_cases(rows),
                page,
                folder=folder,
                counts={case.case: case.counts for case in counted},
                files={case.name: case for case in cases},
                notes=notes,
                judgement=judgement_table(review.judgements) if of_truth else "",
                skipped=skipped,
                labels={label: meaning.name_of(label) for label in meaning.known},
                images=None if images is None else Path(images),
            )
        journal.remove()
    return review


def _check_images(images: str | Path | None, gt_folder: str | Path | None, cases: Sequence[CaseFiles]) -> None:
    if images is None:
        return
    if gt_folder is not None and Path(images).resolve() == Path(gt_folder).resolve():
        raise ValueError(f"{images} is the folder of the ground truth; expected that of the images.")
    if not any(first_channel(case, Path(images)).exists() for case in cases):
        raise FileNotFoundError(f"{images} has no images of these cases: no {first_channel(cases[0], Path()).name}.")


def _of_known_unit(
    counted: Sequence[CountedCase], skipped: Sequence[Skipped], fit: ReviewFit
) -> tuple[list[CountedCase], list[Skipped]]:
    """Skip the cases whose voxels have a volume that the fit cannot know."""
    other = [Skipped(case.case, reason) for case in counted if (reason := fit.other_unit(case.counts.voxel_ml))]
    names = {one.case for one in other}
    return [one for one in counted if one.case not in names], sorted([*skipped, *other], key=lambda one: one.case)


def _volume_notes(cases: Sequence[CountedCase]) -> list[str]:
    notes = []
    for name in cases[0].counts.structures:
        sums = [(case.counts.structures[name].sums, case.counts.voxel_ml) for case in cases]
        segmented = sum(one.segmented * voxel_ml for one, voxel_ml in sums)
        share = sum(one.probability * voxel_ml for one, voxel_ml in sums) / segmented - 1 if segmented else 0
        if abs(share) > _BIASED:
            notes.append(
                f"{name}: the expected volumes are in sum {share:+.0%} from those of the segmentations. The "
                "probabilities look uncalibrated: see nnunet_nacl calibrate."
            )
    return notes


@dataclass(frozen=True)
class _StoredJudged:
    """What of the JSON file :func:`read_judged` returns."""

    format: Literal["review of nnunet_nacl"]
    judged: list[Judged]


def read_judged(review: str | Path) -> list[Judged]:
    """What a review says of each structure of each case, and what the ground truth says; empty without any."""
    return read_json(Path(review), _StoredJudged).judged


@dataclass(frozen=True)
class _StoredCounts:
    """What of the JSON file is taken up again."""

    basis: dict[str, Any]
    cases: list[CountedCase]


def _earlier(file: Path, basis: dict[str, Any]) -> Mapping[str, CountedCase]:
    """The cases of an earlier review, if they were counted on the same basis."""
    try:
        stored = read_json(file, _StoredCounts)
    except (OSError, ValueError):  # what cannot be read is counted again
        return {}
    return {case.case: case for case in stored.cases} if stored.basis == basis else {}


def _write(review: Review, basis: dict[str, Any], fit: ReviewFit | None) -> None:
    columns = [one.name for one in fields(StructureReview)]
    with whole_file(review.file) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
        write_csv(stream, [columns, *([_cell(getattr(row, name)) for name in columns] for row in review.rows)])
    reviewed = {one.case for one in review.cases} | {one.case for one in review.skipped}
    content = {
        "format": _FORMAT,
        "version": __version__,
        "fit": None if fit is None else str(fit.file),
        "fitted_to_same_cases": [] if fit is None else sorted(set(fit.cases) & reviewed),
        "judgements": [asdict(one) for one in review.judgements],
        "judged": [asdict(one) for one in review.judged],
        "notes": review.notes,
        "skipped": [asdict(one) for one in review.skipped],
        "basis": basis,
        "cases": [
            asdict(replace(case, counts=replace(case.counts, pictures=[], problems=[]))) for case in review.cases
        ],
    }
    write_json(review.file.with_suffix(".json"), content)


def _cell(value: str | float | tuple[str, ...] | None) -> str | float:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "; ".join(value)
    return value if isinstance(value, (str, int)) else f"{value:.6g}"
