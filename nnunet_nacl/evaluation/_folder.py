"""Count a folder of predictions, or a model's validation folders; a case with a record is not counted again."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nnunet_nacl.case_loop import Skipped, check_any_used, each_case
from nnunet_nacl.evaluation._case import SavedCase
from nnunet_nacl.evaluation._counting import CountedCase, Counting
from nnunet_nacl.evaluation._record import (
    check_record_files,
    read_record,
    record_file,
    write_record,
)
from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.evaluation._summary import (
    cases_file,
    default_summary,
    is_summary_of,
    write_result,
)
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import CaseArrays, Settings, evaluate_arrays
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import ByName

USUAL_SETTINGS = Settings(surface=True)
"""The settings of the command ``evaluate`` without options, which does not count such records again."""
_UNREAD_IN_REVIEWS = ("num_bins", "surface", "tolerance_mm", "protocol")
"""The settings that do not change what a review reads of a record."""


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
    is_default = summary.absolute() == default.absolute()
    is_updated = is_default or is_summary_of(summary, predictions)
    beside = None if is_default else summary
    for file in (summary, cases_file(summary)):
        check_output(file, overwrite=overwrite or is_updated)
    check_record_files(predictions.cases, beside)
    if not is_updated:  # or else, if this run is stopped, it describes records of other predictions
        for file in (summary, cases_file(summary)):
            file.unlink(missing_ok=True)
    counter = _CaseCounter(
        data_set=predictions.data_set,
        counting=Counting.describe(predictions.data_set, settings),
        beside=beside,
        overwrite=overwrite,
    )
    records, skipped = counter.count_all(predictions.cases, num_processes)
    result = replace(FolderResult.merged(records), skipped=skipped, file=summary)
    write_result(result, summary, beside)
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
    check_record_files(predictions.cases, output)
    counter = _CaseCounter(
        data_set=predictions.data_set,
        counting=Counting.describe(predictions.data_set, USUAL_SETTINGS),
        beside=output,
        is_review=True,
    )
    records, skipped = counter.count_all(predictions.cases, num_processes)
    # What an evaluation has counted may differ in what a review does not read
    unread: ByName = {"calibration": {}, "segmentation_metrics": {}}
    if predictions.gt_folder is None:
        unread["truth"] = None
    read = [replace(record, counts=replace(record.counts, **unread)) for record in records]
    return replace(FolderResult.merged(read), skipped=skipped)


@dataclass(frozen=True, kw_only=True)
class _CaseCounter:
    """Counts the cases of a data set, or takes their records.

    Attributes:
        data_set: that of the predictions.
        counting: how to count.
        beside: the file beside which records lie; None: beside the predictions.
        is_review: take also records that differ in settings which do not change what a review reads, and replace none.
        overwrite: count every case again.
    """

    data_set: DataSet
    counting: Counting
    beside: Path | None
    is_review: bool = False
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
        records = [*taken.values(), *counted.values()]
        check_any_used(records, skipped)
        return records, skipped

    def take(self, files: CaseFiles) -> FolderResult | None:
        """Return a case's record if there is one of its files as they are, counted alike.

        Another summary's records may be copies of those beside the predictions.
        """
        if self.overwrite:
            return None
        unread = _UNREAD_IN_REVIEWS if self.is_review else ()
        now = CountedCase.now(files)
        own = record_file(files.prediction, files.name, self.beside)
        for file in dict.fromkeys([own, record_file(files.prediction, files.name)]):
            record = _record_of(file, now)
            if record and record.counting.as_json(unread) == self.counting.as_json(unread):
                if file != own and not self.is_review:
                    write_record(own, record)
                return replace(record, counting=self.counting) if self.is_review else record
        return None

    def count(self, files: CaseFiles) -> FolderResult:
        """Count a case and write its record, unless another process has done so; errors as for ``SavedCase``."""
        if found := self.take(files):
            return found
        settings = self.counting.settings
        case = CountedCase.now(files)  # before the files are read
        saved = SavedCase(files, self.data_set)
        truth = np.full_like(saved.labels, self.data_set.meaning.ignored)
        geometry = saved.geometry
        if files.ground_truth is not None:
            truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
        arrays = CaseArrays(
            channels=saved.channels,
            truth=truth,
            segmentation=saved.labels,
            meaning=self.data_set.meaning,
            spacing=geometry.spacing,
            voxel_ml=geometry.voxel_ml,
            settings=settings,
            has_truth=files.ground_truth is not None,
            must_agree=True,
            thresholds=files.thresholds,
        )
        record = FolderResult([case], evaluate_arrays(arrays), [], self.counting)
        file = record_file(files.prediction, files.name, self.beside)
        # A review does not replace an evaluation's record of the same files
        if not self.is_review or _record_of(file, case) is None:
            write_record(file, record)
        return record


def _record_of(file: Path, now: CountedCase) -> FolderResult | None:
    """Read a record if there is one of a case's files as they are now."""
    with suppress(OSError, ValueError):
        record = read_record(file)
        if record.counted[0].includes(now):
            return record
    return None
