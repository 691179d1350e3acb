"""Count what is left of a folder of predictions, or of a model's validation folders; put the cases together."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from nnunet_nacl.case_loop import Skipped, check_any_used, each_case
from nnunet_nacl.evaluation._case import SavedCase
from nnunet_nacl.evaluation._origin import COUNTING, FolderPair, Origin
from nnunet_nacl.evaluation._result import CountedCase, FolderResult, States, summary_of
from nnunet_nacl.files import (
    check_input,
    check_output,
    read_json,
    whole_file,
    write_csv,
    write_json,
)
from nnunet_nacl.metrics import CaseArrays, Counts, Settings, evaluate_arrays
from nnunet_nacl.nnunet import CaseFiles, DataSet, MisplacedError, Predictions
from nnunet_nacl.typing import ByName

SUMMARY_NAME = "calibration_summary.json"
USUAL_SETTINGS = Settings(surface=True)
"""The settings of the command ``evaluate`` without options, which does not count such records again."""
_UNREAD_IN_REVIEWS = frozenset({"num_bins", "surface", "tolerance_mm", "protocol"})
"""The settings that do not change what a review reads of a record."""


def default_summary(pred_folders: Sequence[Path]) -> Path:
    """Return the file of the summary of a folder of predictions, or of the validation folders of a model."""
    if len(pred_folders) == 1:
        return pred_folders[0] / SUMMARY_NAME
    folds = "_".join(folder.parent.name.removeprefix("fold_") for folder in pred_folders)
    kind = pred_folders[0].name.removeprefix("validation")  # _calibrated
    return pred_folders[0].parent.parent / f"calibration{kind}_folds_{folds}_summary.json"


def cases_file(summary: Path) -> Path:
    """Return the CSV of a summary: ``x_cases.csv`` for ``x_summary.json``, ``x.cases.csv`` for ``x.json``.

    So no two summaries share what lies beside them.
    """
    prefix = summary.stem.removesuffix("_summary")
    is_summary = prefix != summary.stem
    return summary.with_name(f"{prefix}{'_' if is_summary else '.'}cases.csv")


def record_file(files: CaseFiles, output: Path | None = None) -> Path:
    """Return the file of a case's record: ``calibration/CASE.npz`` beside its prediction.

    With another output, a folder beside that: ``x/`` for ``x_summary.json``, ``x.cases/`` for ``x.json``.
    """
    home = files.prediction.with_name("calibration")
    if output is not None:
        home = output.with_name(cases_file(output).stem.removesuffix("_cases"))
    return home / f"{files.name}.npz"


_ORIGIN = TypeAdapter(Origin)
_CASE: TypeAdapter[CountedCase] = TypeAdapter(CountedCase)


def write_record(result: FolderResult, file: Path) -> None:
    """Write the record of a single case, completely or not at all, as an ``.npz``.

    ``counts`` is ``Counts.to_array``; ``origin`` and ``case`` are texts.
    """
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as unfinished, unfinished.open("wb") as stream:
        np.savez_compressed(
            stream,
            counts=result.counts.to_array(),
            origin=np.array(_ORIGIN.dump_json(result.origin, by_alias=True)),
            case=np.array(_CASE.dump_json(result.counted[0])),
        )


def read_record(file: Path) -> FolderResult:
    """Read what ``write_record`` wrote.

    Raises an OSError if there is no such file, a ValueError if it is damaged, of another version or something else.
    """
    check_input(file)
    try:
        with file.open("rb") as stream, np.load(stream) as archive:
            row, text, case = (archive[name] for name in ("counts", "origin", "case"))
        origin = _ORIGIN.validate_json(text.item())
        if origin.counting == COUNTING:
            counts = Counts.of_array(row, origin.meaning)
            return FolderResult([_CASE.validate_json(case.item())], counts, [], origin)
    except Exception as error:  # a damaged file makes zipfile and NumPy raise nearly anything
        raise ValueError(f"{file} cannot be read as a record of nnunet_nacl: {error}") from error
    raise ValueError(f"{file}: another version counted it. Run nnunet_nacl evaluate again.")


def evaluate(
    predictions: Predictions,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    *,
    output: str | Path | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> FolderResult:
    """Evaluate calibration and segmentation of predictions that nnU-Net saved with their probabilities.

    Writes each case's record into ``calibration/`` as soon as it is counted, then ``calibration_cases.csv`` and the
    summary. A case that cannot be evaluated is in ``skipped`` with the reason. A case is not counted again if its
    record has the same settings, and the sizes and times of all files that it was read from. So a run that was stopped
    goes on, and several machines may work side by side. An OSError says that the output cannot be written.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: bins, margin and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder. These are updated, as is one of the same
            predictions. The records of another summary lie beside it.
        num_processes: how many cases are evaluated at a time.
        overwrite: evaluate every case again and replace any output.
    """
    default = default_summary(predictions.pred_folders)
    summary = Path(output) if output else default
    if summary.suffix != ".json":
        raise ValueError(
            f"{summary}: expected a name that ends with .json, beside which other files are written."
        )
    is_default = summary.absolute() == default.absolute()
    origin = Origin.describe(predictions, settings)
    is_updated = is_default or _is_summary_of(summary, origin)
    for file in (summary, cases_file(summary)):
        check_output(file, overwrite=overwrite or is_updated)
    counting = _Counting(
        data_set=predictions.data_set,
        origin=origin,
        output=None if is_default else summary,
        overwrite=overwrite,
    )
    results, skipped = counting.count_all(predictions.cases, num_processes)
    result = replace(FolderResult.merged(results), skipped=skipped, origin=origin, file=summary)
    write_result(result, summary)
    return result


def count_for_review(
    predictions: Predictions, *, output: Path | None, num_processes: int
) -> FolderResult:
    """Count cases for a review, with ground truth or without, or take what an evaluation has counted.

    Args:
        predictions: those to count.
        output: of the review, if it is not at its default place; records then lie beside it.
        num_processes: how many cases are counted at a time.

    Returns:
        Sums, doubt and truth of the cases, without tables and metrics.
    """
    origin = Origin.describe(predictions, USUAL_SETTINGS)
    counting = _Counting(
        data_set=predictions.data_set, origin=origin, output=output, unread=_UNREAD_IN_REVIEWS
    )
    results, skipped = counting.count_all(predictions.cases, num_processes)
    # What an evaluation has counted may differ in what a review does not read
    unread: ByName = {"calibration": {}, "segmentation_metrics": {}}
    if not origin.has_truth:
        unread["truth"] = None
    read = [replace(result, counts=replace(result.counts, **unread)) for result in results]
    return replace(FolderResult.merged(read), skipped=skipped, origin=origin)


@dataclass(frozen=True, kw_only=True)
class _Counting:
    """How cases are counted, and where their records lie.

    Attributes:
        data_set: that of the predictions.
        origin: all cases', with the settings to count in.
        output: the file beside which records lie; None for their default places.
        unread: settings in which a record may differ, since the caller does not read what they change.
        overwrite: count every case again.
    """

    data_set: DataSet
    origin: Origin
    output: Path | None
    unread: frozenset[str] = frozenset()
    overwrite: bool = False

    def count_all(
        self, cases: Sequence[CaseFiles], num_processes: int
    ) -> tuple[list[FolderResult], list[Skipped]]:
        """Take the records that there are, count the other cases; also return the cases that cannot be counted.

        Raises a ValueError with the reasons if no case can be used.
        """
        taken = {case.name: found for case in cases if (found := self.take(case))}
        left = [case for case in cases if case.name not in taken]
        counted, skipped = each_case(
            # In any order, so that machines that work side by side seldom count the same case
            {case.name: case for case in random.sample(left, len(left))},
            self.count,
            doing="counting",
            num_processes=num_processes,
        )
        results = [*taken.values(), *counted.values()]
        check_any_used(results, skipped)
        return results, skipped

    def take(self, files: CaseFiles) -> FolderResult | None:
        """Return a case's record if there is one of its files as they are, counted alike but for ``unread``."""
        if self.overwrite:
            return None
        states = files.states()
        own = record_file(files, self.output)
        counted_by = self.origin.counted_by(self.unread)
        for file in dict.fromkeys([own, record_file(files)]):
            found = _read_unchanged(file, files, states)
            if found is None or found.origin.counted_by(self.unread) != counted_by:
                continue
            ((recorded, _),) = found.counted
            found = replace(
                found, counted=[(files, states)], origin=_origin_of_case(files, self.origin)
            )
            if not self.unread and (file != own or recorded != files):  # copied or moved
                write_record(found, own)
            return found
        return None

    def count(self, files: CaseFiles) -> FolderResult:
        """Count a case and write its record, unless another process has done so; errors as for ``SavedCase``."""
        if found := self.take(files):
            return found
        settings = self.origin.settings
        states = files.states()  # before the files are read
        saved = SavedCase(files, self.data_set)
        truth = None
        geometry = saved.geometry
        if self.origin.has_truth:
            try:
                truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
            except MisplacedError as error:
                raise ValueError(
                    f"{error} Only evaluate takes them as they are, with --ignore_geometry."
                ) from error
        arrays = CaseArrays(
            channels=saved.channels,
            truth=truth,
            segmentation=saved.labels,
            meaning=self.data_set.meaning,
            spacing=geometry.spacing,
            voxel_ml=geometry.voxel_ml,
            settings=settings,
            must_agree=True,
            thresholds=files.thresholds,
        )
        counts = evaluate_arrays(arrays)
        result = FolderResult([(files, states)], counts, [], _origin_of_case(files, self.origin))
        file = record_file(files, self.output)
        # A review does not replace an evaluation's record of the same files
        if not self.unread or _read_unchanged(file, files, states) is None:
            write_record(result, file)
        return result


def _read_unchanged(file: Path, files: CaseFiles, states: States) -> FolderResult | None:
    """Read a record if it is of a case's files in these states; the prediction may have moved with its record."""
    with suppress(OSError, ValueError):
        found = read_record(file)
        moved = _with_paths_at(files.prediction.absolute().parent, found, file)
        ((recorded_files, recorded),) = moved.counted
        # Ground truth of another path may be another rater's, though equal in size and time of change
        is_unchanged = {what: recorded.get(what) for what in states} == states
        has_truth = found.origin.has_truth or files.ground_truth is None
        is_decoded_alike = recorded_files.thresholds == files.thresholds
        if is_unchanged and has_truth and is_decoded_alike:
            return found
    return None


def _origin_of_case(files: CaseFiles, origin: Origin) -> Origin:
    """Return the origin of one case among others."""
    truth = "" if files.ground_truth is None else str(files.ground_truth.absolute().parent)
    return replace(origin, folders=(FolderPair(truth, str(files.prediction.absolute().parent)),))


def _is_summary_of(file: Path, origin: Origin) -> bool:
    """Whether a file is a summary of the same predictions and ground truth."""
    settings = origin.settings_json()
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(file.read_text())["settings"]
        return all(found[name] == settings[name] for name in ("gt_folder", "pred_folder"))
    return False


def write_result(result: FolderResult, summary: str | Path) -> None:
    """Write the summary, and beside it the cases in long form; replaces existing files."""
    summary = Path(summary)
    home = summary.absolute().parent
    is_default = summary.absolute() == default_summary(result.origin.pred_folders).absolute()
    output = None if is_default else summary
    records = [record_file(files, output).absolute() for files, _ in result.counted]
    content = summary_of(result)
    for case, record in zip(content["metric_per_case"], records, strict=True):
        case["record_file"] = str(record.relative_to(home))
    rows = result.to_dataframe()
    write_csv(cases_file(summary), [rows.columns, *rows.itertuples(index=False)])
    write_json(summary, content, allow_nan=True)


def read_result(summary: str | Path) -> FolderResult:
    """Read the records of the cases of a summary.

    Raises an OSError if there is no such file, a ValueError if it was written by another version, or a record is
    damaged or was counted in another way since.
    """
    summary = Path(summary)
    content: ByName = read_json(summary, dict)
    try:
        files = [case["record_file"] for case in content["metric_per_case"]]
        skipped = [Skipped(**entry) for entry in content["skipped"]]
        settings = content["settings"]
        truths = settings["gt_folder"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{summary} was written by another version of nnunet_nacl: run nnunet_nacl evaluate again."
        ) from error
    home = summary.absolute().parent
    results = [_with_paths_at(home, read_record(home / file), home / file) for file in files]
    for result in results:
        counted_by = json.loads(json.dumps(result.origin.counted_by()))
        is_same = counted_by.items() <= settings.items()
        if not is_same or result.origin.folders[0].gt_folder not in np.atleast_1d(truths):
            raise ValueError(
                f"{summary} is not of the record of {result.cases[0]}, which was counted in another way since: run "
                "nnunet_nacl evaluate again."
            )
    return replace(FolderResult.merged(results), skipped=skipped, file=summary)


def _with_paths_at(home: Path, result: FolderResult, record: Path) -> FolderResult:
    """Give a record's result the paths of a prediction in ``home``, if it lies beside the record or has moved there."""
    ((files, states),) = result.counted
    prediction = home / files.prediction.name
    is_beside = record.absolute() == record_file(replace(files, prediction=prediction))
    if not prediction.is_file() or (files.prediction.is_file() and not is_beside):
        return result
    moved_states = {
        what: state and state._replace(path=str(home / Path(state.path).name))
        for what, state in states.items()
        if "truth" not in what
    }
    moved = replace(files, prediction=prediction, probabilities=home / files.probabilities.name)
    (folders,) = result.origin.folders
    return replace(
        result,
        counted=[(moved, states | moved_states)],
        origin=replace(result.origin, folders=(replace(folders, pred_folder=str(home)),)),
    )
