"""Count each case of a prediction folder, or of a model's validation folders: for an evaluation or a review."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from nnunet_nacl.cases import Journal, Skipped, check_any_used, each_case
from nnunet_nacl.evaluation._files import read_result, write_result
from nnunet_nacl.evaluation._origin import USUAL_SETTINGS, Origin
from nnunet_nacl.evaluation._paths import Part, default_summary, files_of, part_file, record_file
from nnunet_nacl.evaluation._record import read_record, write_record
from nnunet_nacl.evaluation._result import CountedCase, FolderResult
from nnunet_nacl.evaluation._saved import SavedCase
from nnunet_nacl.files import check_output, only_writer, whole_file
from nnunet_nacl.metrics import MARGIN_MM, Settings
from nnunet_nacl.metrics.counting import CaseArrays, evaluate_arrays
from nnunet_nacl.nnunet import CaseFiles, DataSet, MisplacedError, Predictions


def evaluate(
    predictions: Predictions,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    *,
    output: str | Path | None = None,
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """Calibration and segmentation metrics of predictions that nnU-Net saved with their probabilities.

    Writes the summary, and beside it ``calibration_cases.csv`` and ``calibration_bins.zip``. A case that cannot be
    evaluated is in ``skipped`` with the reason. A second run does not evaluate cases again whose files and settings are
    the same, unless a new version of this package counts differently. An OSError says that the output cannot be
    written.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder. These are updated, as is one of the same
            predictions, or of copies.
        num_processes: how many cases are evaluated at a time.
        num_parts: the number of parts into which the cases are divided; ``FolderResult.merged`` joins them.
        part_id: which part to evaluate, counted from 0; the output is then ``calibration_part0of4_summary.json``.
        overwrite: evaluate every case again and replace any output.
    """
    if num_parts < 1:
        raise ValueError(f"num_parts must be 1 or more; got {num_parts}.")
    if not 0 <= part_id < num_parts:
        raise ValueError(
            f"part_id must be from 0 to {num_parts - 1}, one of {num_parts} parts; got {part_id}."
        )
    cases = predictions.cases[part_id::num_parts]  # as nnU-Net's predict divides its work
    default = default_summary(predictions.pred_folders)
    summary = Path(output) if output else default
    if summary.suffix != ".json":
        raise ValueError(
            f"{summary}: expected a name that ends with .json, beside which other files are written."
        )
    is_default = summary.absolute() == default.absolute()
    part = None
    if num_parts > 1:
        part = Part(part_id, num_parts)
        summary = part_file(summary, part.name)
    origin = Origin.of(predictions, settings, part)
    earlier = _read_earlier(summary)
    is_updated = is_default or any(_is_of(other, origin, cases) for other in earlier)
    for file in files_of(summary):
        check_output(file, overwrite=overwrite or is_updated)
    if overwrite:
        earlier = []
    with _counted(
        cases,
        predictions.data_set,
        origin,
        summary,
        earlier,
        num_processes=num_processes,
        afresh=overwrite,
    ) as result:
        # A part may have no case that can be used, but then replaces no record that has some
        if num_parts == 1 or (result.skipped and any(other.cases for other in earlier)):
            check_any_used(result.cases, result.skipped)
        missing = {case.name for case in cases if not (case.is_predicted and case.has_truth)}
        skipped = [replace(entry, missing=entry.case in missing) for entry in result.skipped]
        whole = replace(result, skipped=skipped)
        write_result(whole, summary)
    return whole


def count_for_review(
    predictions: Predictions, *, output: Path | None, num_processes: int
) -> FolderResult:
    """Count cases for a review, with ground truth or without, or take them from an evaluation, which has all it needs.

    The record is written beside the summary that ``evaluate`` writes by default, unless it has ground truth, and the
    review has none. If an evaluation has written that summary, the record is its own: what it lacks, or has counted
    otherwise, goes into one of reviews beside it, ``review_bins.zip``.

    Args:
        predictions: those to count.
        output: of the review, if it is not at its default place; the record is then written beside it.
        num_processes: how many cases are counted at a time.
    """
    default = default_summary(predictions.pred_folders)
    of_reviews = default.with_name(f"review{default.name.removeprefix('calibration')}")
    summary = default if output is None else output.with_suffix(".json")
    earlier = _read_earlier(*dict.fromkeys([default, of_reviews, summary]))
    evaluated = [one for one in earlier if one.file == default and default.is_file()]
    like = [result.settings for result in earlier if _is_for_reviews(result.settings)]
    with _counted(
        predictions.cases,
        predictions.data_set,
        Origin.of(predictions, like[0] if like else USUAL_SETTINGS),
        summary,
        earlier,
        num_processes=num_processes,
        is_review=True,
    ) as result:
        check_any_used(result.cases, result.skipped)
        target = summary
        if summary == default and evaluated:
            if _usable(predictions.cases, result.origin, evaluated).keys() >= {*result.cases}:
                return result
            target = of_reviews
        has_truth = any(one.origin.has_truth for one in earlier if one.file == target)
        if result.origin.has_truth or not has_truth:
            missing = predictions.missing
            without = [Skipped(name, "no prediction.", missing=True) for name in missing]
            with whole_file(record_file(target)) as file:
                write_record(replace(result, skipped=[*result.skipped, *without]), file)
    return result


def _is_for_reviews(settings: Settings) -> bool:
    return settings.margin_mm == MARGIN_MM and not settings.ignore_geometry


def _read_earlier(*summaries: Path) -> list[FolderResult]:
    """The records beside these summaries that can be read."""
    found = []
    for summary in summaries:
        with suppress(OSError, ValueError):  # count again what cannot be read
            found.append(read_result(summary, needs_truth=False))
    return found


@contextmanager
def _counted(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    origin: Origin,
    summary: Path,
    earlier: Sequence[FolderResult],
    *,
    num_processes: int,
    afresh: bool = False,
    is_review: bool = False,
) -> Iterator[FolderResult]:
    """The cases of a folder, counted as ``origin`` says; while active, the caller writes them, no other process does.

    Until then a journal keeps what was counted, from which the next process takes it if this one is killed; a review
    has one of its own, and does not end that of an evaluation. Cases of ``earlier`` results are not counted again; if
    ``afresh``, the journals are emptied first.
    """
    with only_writer(summary):
        of_evaluation = Journal[FolderResult](summary, write_record, read_record)
        of_review = replace(of_evaluation, output=record_file(summary))
        journal = of_review if is_review else of_evaluation

        def end_journals() -> None:
            of_review.remove()
            if not is_review:
                of_evaluation.remove()

        if afresh:
            end_journals()
        results, skipped = each_case(
            {case.name: case for case in cases},
            partial(_count_one, data_set=data_set, origin=origin, is_review=is_review),
            doing="reviewing" if is_review else "evaluating",
            num_processes=num_processes,
            journal=journal,
            known=_usable(
                cases, origin, chain(earlier, of_evaluation.finished(), of_review.finished())
            ),
        )
        if not results:
            journal.remove()
        whole = FolderResult.joined([*results.values()], origin)
        yield replace(whole, skipped=skipped, file=summary)
        end_journals()


def _count_one(
    files: CaseFiles, data_set: DataSet, origin: Origin, *, is_review: bool
) -> FolderResult:
    """A result of one case; errors as those of ``SavedCase``."""
    settings = origin.settings
    states = files.states()  # before the files are read
    saved = SavedCase(files, data_set)
    truth = None
    geometry = saved.geometry
    if origin.has_truth:
        try:
            truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
        except MisplacedError as error:
            if is_review:  # which has no such option
                raise
            raise ValueError(
                f"{error} evaluate --ignore_geometry takes them as they are."
            ) from error
    arrays = CaseArrays(
        channels=saved.channels,
        truth=truth,
        segmentation=saved.labels,
        meaning=data_set.meaning,
        spacing=geometry.spacing,
        voxel_ml=geometry.voxel_ml,
        settings=settings,
        must_agree=True,
        thresholds=files.thresholds,
    )
    with saved.naming_files():
        counts = evaluate_arrays(arrays)
    return FolderResult([CountedCase(files, states)], counts, [], origin)


def _usable(
    cases: Sequence[CaseFiles], origin: Origin, earlier: Iterable[FolderResult]
) -> dict[str, FolderResult]:
    """What was counted in the same way before, from files that have not changed since."""
    by_name = {case.name: case for case in cases}
    usable = {}
    for result in earlier:
        lacks_truth = origin.has_truth and not result.origin.has_truth
        if lacks_truth or result.origin.difference(origin) is not None:
            continue
        counts = result.counts if origin.has_truth else result.counts.without_truth()
        needed = replace(result, counts=counts, origin=origin)
        for row, (files, then) in enumerate(result.counted):
            if files.name not in by_name:
                continue
            states = then if origin.has_truth else replace(then, ground_truth=None)
            if now := states.moved_to(by_name[files.name]):
                case = CountedCase(by_name[files.name], now)
                usable[files.name] = replace(needed.take([row]), counted=[case])
    return usable


def _is_of(result: FolderResult, origin: Origin, cases: Iterable[CaseFiles]) -> bool:
    """Whether a result is of the same folders of predictions, or all that it has is the same in other folders."""
    if set(result.origin.pred_folders) == set(origin.pred_folders):
        return True
    by_name = {case.name: case for case in cases}
    return bool(result.counted) and all(
        files.name in by_name and states.moved_to(by_name[files.name])
        for files, states in result.counted
    )
