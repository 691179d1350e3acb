"""The table that the commands print."""

from collections.abc import Mapping

import numpy as np

from nnunet_nacl.evaluation._summary import FolderResult


def format_table(results: Mapping[str, FolderResult]) -> str:
    """One line a result: Dice, the scores that compare methods, and the paper's figures.

    Args:
        results: name -> result; all with the same voxel sets.
    """
    width = max(map(len, [*results, "method"]))
    rows = [["method".ljust(width)], *([name.ljust(width)] for name in results)]
    columns: dict[str, list[float]] = {}
    for result in results.values():
        for title, value in _figures(result).items():
            columns.setdefault(title, []).append(value)
    for title, values in columns.items():
        digits = 1 if title == "HD95" else 3
        texts = [f"{value:{'+' if title == _SIGN else ''}.{digits}f}" for value in values]
        space = max(map(len, [title, *texts]))
        for row, text in zip(rows, [title, *texts], strict=True):
            row.append(text.rjust(space))
    lines = ["  ".join(row) for row in rows]
    pooled = [title for title in columns if title in _POOLED]
    if pooled:
        lines.append(f"{', '.join(pooled)}: all cases pooled; the others are means over cases.")
    return "\n".join(lines)


_SIGN = "confidence − accuracy"
_POOLED = ("NLL per foreground voxel", "ECE near", _SIGN)


def _figures(result: FolderResult) -> dict[str, float]:
    surface = ("HD95", "NSD") if result.settings["surface"] else ()
    found = {metric: result.foreground_mean(metric) for metric in ("Dice", *surface)}
    if "image" in result.voxels and result.settings["protocol"] == "standard":
        found["NLL per foreground voxel"] = result.pooled("image").get("NLL_per_foreground", np.nan)
    if "near" in result.voxels:
        near = result.pooled("near")
        found["ECE near"], found[_SIGN] = near.get("ECE", np.nan), near.get("over_confidence", np.nan)
    for metric in ("ECE", "CECE"):
        for voxels in result.voxels:
            if voxels not in {"near", "image"} or result.settings["protocol"] != "standard":
                found[f"{metric} {voxels}"] = result.mean(voxels, metric)
    return found
