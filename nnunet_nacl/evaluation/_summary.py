"""The summary of a folder, ``calibration_summary.json``, and the CSV of its cases beside it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation._counting import CountedCase
from nnunet_nacl.evaluation._record import read_record, record_file
from nnunet_nacl.evaluation._result import FolderResult, folders_json, metrics_by_label
from nnunet_nacl.files import read_json, write_csv, write_json
from nnunet_nacl.metrics import CALIBRATION_METRICS, NLL_CLIP, VOXEL_SETS, Estimate, mean_of_known
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.typing import ByName, Floats

SUMMARY_NAME = "calibration_summary.json"


def default_summary(pred_folders: Sequence[Path]) -> Path:
    """Return the file of the summary of a folder of predictions, or of the validation folders of a model."""
    if len(pred_folders) == 1:
        return pred_folders[0] / SUMMARY_NAME
    folds = "_".join(folder.parent.name.removeprefix("fold_") for folder in pred_folders)
    kind = pred_folders[0].name.removeprefix("validation")  # _calibrated
    return pred_folders[0].parent.parent / f"calibration{kind}_folds_{folds}_summary.json"


def cases_file(summary: Path) -> Path:
    """Return the CSV of a summary: ``x_cases.csv`` for ``x_summary.json``, ``x.cases.csv`` for any other ``x.json``."""
    if summary.stem.endswith("_summary"):
        return summary.with_name(f"{summary.stem.removesuffix('summary')}cases.csv")
    return summary.with_suffix(".cases.csv")


def is_summary_of(file: Path, predictions: Predictions) -> bool:
    """Whether a file is a summary of these predictions and their ground truth."""
    assert predictions.gt_folder is not None
    pred_folders = sorted(folder.absolute() for folder in predictions.pred_folders)
    folders = folders_json([predictions.gt_folder.absolute()], pred_folders)
    with suppress(OSError, ValueError, KeyError, AttributeError):
        return bool(folders.items() <= read_json(file, ByName)["settings"].items())
    return False


def write_result(result: FolderResult, summary: str | Path, beside: Path | None = None) -> None:
    """Write the summary, and beside it the cases in long form; replaces existing files.

    ``beside`` says where the records lie, see ``record_file``.
    """
    summary = Path(summary)
    home = summary.absolute().parent
    content = summary_of(result)
    for entry, case in zip(content["metric_per_case"], result.counted, strict=True):
        record = record_file(case.file("prediction"), case.name, beside)
        entry["record_file"] = str(record.absolute().relative_to(home))
        entry["file_states"] = _states_json(case)
    rows = result.to_dataframe()
    write_csv(cases_file(summary), [rows.columns, *rows.itertuples(index=False)])
    write_json(summary, content, allow_nan=True)


def read_result(summary: str | Path) -> FolderResult:
    """Read the records of the cases of a summary.

    Raises an OSError if there is no such file, a ValueError if it was written by another version, or a record is
    damaged or was counted since, of other files or in another way.
    """
    summary = Path(summary)
    content: ByName = read_json(summary, dict)
    try:
        entries = [
            (case["record_file"], case["file_states"], case["reference_file"])
            for case in content["metric_per_case"]
        ]
        skipped = [Skipped(**entry) for entry in content["skipped"]]
        settings = content["settings"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{summary} was written by another version of nnunet_nacl: run nnunet_nacl evaluate again."
        ) from error
    records = []
    for file, states, truth in entries:
        record = read_record(summary.absolute().parent / file)
        (case,) = record.counted
        is_same = record.counting.as_json().items() <= settings.items()
        if not is_same or _states_json(case) != states or str(case.file("ground_truth")) != truth:
            raise ValueError(
                f"{summary} is not of the record of {case.name}, which was counted in another way or of other files "
                "since: run nnunet_nacl evaluate again."
            )
        records.append(record)
    return replace(FolderResult.merged(records), skipped=skipped, file=summary)


def _states_json(case: CountedCase) -> ByName:
    """Return size and time of change of a case's files, whose folder may move, as JSON has them."""
    return {what: [state.size, state.changed] for what, state in case.states.items()}


def summary_of(result: FolderResult) -> ByName:
    """Return the content of ``calibration_summary.json``."""
    mean = _figures(result, lambda values: float(mean_of_known(values)))
    interval = _figures(result, lambda values: Estimate.of_means(values[:, None]).interval)
    pooled = {}
    pooled_interval = {}
    with_voxels = {}
    for voxels in VOXEL_SETS:
        of_all = result.pooled(voxels)
        by_class = metrics_by_label(result.meaning, result.counts[voxels])
        pooled[voxels] = {**of_all, "classes": by_class}
        pooled_interval[voxels] = {
            name: Estimate.of_tables(
                CALIBRATION_METRICS[name], result.counts.calibration[voxels]
            ).interval
            for name in of_all
            if CALIBRATION_METRICS[name].pooled_over
        }
        with_voxels[voxels] = int((~np.isnan(result.values("ECE", voxels))).sum())
    return {
        "settings": {**result.settings_json(), "nll_clip": NLL_CLIP},
        "versions": result.counting.versions,
        "notes": list(result.notes.values()),
        "num_cases": {"evaluated": len(result.cases), **with_voxels},
        "mean": mean["calibration"],
        "interval": interval["calibration"],
        "pooled": pooled,
        "pooled_interval": pooled_interval,
        "segmentation": {
            "mean": mean["segmentation"],
            "interval": interval["segmentation"],
            "foreground_mean": {
                name: result.estimate(name).value for name in result.counts.segmentation_metrics
            },
        },
        "metric_per_case": [
            {
                "case": case.name,
                "reference_file": str(case.file("ground_truth")),
                "prediction_file": str(case.file("prediction")),
                "probabilities_file": str(case.file("probabilities")),
                **_figures(result, methodcaller("item", row)),
            }
            for row, case in enumerate(result.counted)
        ],
        "skipped": [asdict(entry) for entry in result.skipped],
    }


def _figures(result: FolderResult, figure: Callable[[Floats], Any]) -> ByName:
    """Return the figure of each metric's values (cases,).

    ``calibration``: voxel set -> metric -> figure, and -> ``classes`` -> label -> metric -> figure; ``segmentation``:
    label -> metric -> figure.
    """
    calibration: ByName = {}
    segmentation: ByName = {}
    for (voxels, label, metric), values in result.columns.items():
        if not voxels:
            home = segmentation.setdefault(label, {})
        else:
            home = calibration.setdefault(voxels, {})
            if label:
                home = home.setdefault("classes", {}).setdefault(label, {})
        home[metric] = figure(values)
    return {"calibration": calibration, "segmentation": segmentation}
