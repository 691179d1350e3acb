"""The summary of a result, ``calibration_summary.json``."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.metrics import CALIBRATION_METRICS, NLL_CLIP, Estimate, Interval, Voxels
from nnunet_nacl.metrics.counting import mean_of_known
from nnunet_nacl.typing import ByName, Floats


def summary_of(result: FolderResult) -> ByName:
    """The content of ``calibration_summary.json``."""
    mean = _figures(result, lambda values: float(mean_of_known(values)))
    interval = _figures(result, lambda values: Estimate.of_means(values[:, None]).interval)
    pooled = {}
    pooled_interval = {}
    with_voxels = {}
    for voxels in result.voxels if result.cases else ():
        by_class = result.by_class(result.counts[voxels])
        pooled[voxels] = {**result.pooled(voxels), "classes": by_class}
        pooled_interval[voxels] = _pooled_intervals(result, voxels)
        with_voxels[voxels] = int((~np.isnan(result.values("ECE", voxels))).sum())
    return {
        "settings": {**result.origin.settings_json(), "nll_clip": NLL_CLIP},
        "versions": result.origin.versions,
        "notes": result.notes,
        "num_cases": {"evaluated": len(result.cases), **with_voxels},
        "mean": mean["calibration"],
        "interval": interval["calibration"],
        "pooled": pooled,
        "pooled_interval": pooled_interval,
        "segmentation": {
            "mean": mean["segmentation"],
            "interval": interval["segmentation"],
            "foreground_mean": {
                name: result.estimate(name).value for name in result.segmentation_metrics
            },
        },
        "metric_per_case": [_case(result, row) for row in range(len(result.cases))],
        "skipped": [asdict(entry) for entry in result.skipped],
    }


def _pooled_intervals(result: FolderResult, voxels: Voxels) -> dict[str, Interval]:
    """Intervals of the pooled metrics, also where labels choose the voxels."""
    tables = result.counts.calibration[voxels]
    known = [CALIBRATION_METRICS[name] for name in result.pooled(voxels)]
    return {
        metric.name: Estimate.of_tables(metric, tables).interval
        for metric in known
        if metric.over_cases != "mean"
    }


def _case(result: FolderResult, row: int) -> ByName:
    files = result.files[row]
    return {
        "case": files.name,
        "reference_file": str(files.ground_truth),
        "prediction_file": str(files.prediction),
        "probabilities_file": str(files.probabilities),
        **_figures(result, lambda values: values[row].item()),
    }


def _figures(result: FolderResult, figure: Callable[[Floats], Any]) -> ByName:
    """The figure of each metric's values (cases,).

    ``calibration``: voxel set -> metric -> figure, and -> ``classes`` -> label -> metric -> figure; ``segmentation``:
    label -> metric -> figure.
    """
    calibration: ByName = {}
    segmentation: ByName = {}
    for key, values in result.columns.items():
        if not key.voxels:
            home = segmentation.setdefault(key.label, {})
        else:
            home = calibration.setdefault(key.voxels, {})
            if key.label:
                home = home.setdefault("classes", {}).setdefault(key.label, {})
        home[key.metric] = figure(values)
    return {"calibration": calibration, "segmentation": segmentation}
