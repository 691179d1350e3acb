"""Results in a line each, as the table that the commands print."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nnunet_nacl.evaluation._result import FolderResult

_SIGN = "confidence − accuracy"
_POOLED = ("NLL per foreground voxel", "ECE near", _SIGN)
_PAPER = tuple(f"{metric} {voxels}" for metric in ("ECE", "CECE") for voxels in ("foreground", "union"))


def format_table(results: "Mapping[str, FolderResult]") -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics.

    Args:
        results: name -> result. What was not evaluated for one of them is shown as ``–``.
    """
    import pandas

    values = {name: _values(result) for name, result in results.items()}
    titles = [
        title for title in ("Dice", "HD95", "NSD", *_POOLED, *_PAPER) if any(title in row for row in values.values())
    ]
    rows = [[name, *(_text(title, row.get(title)) for title in titles)] for name, row in values.items()]
    table = pandas.DataFrame(rows, columns=["method", *titles]).to_string(index=False)
    return f"{table}\n{', '.join(_POOLED)}: all cases pooled; the others are means over cases."


def _text(title: str, value: float | None) -> str:
    return "–" if value is None else f"{value:{'+' if title == _SIGN else ''}.{1 if title == 'HD95' else 3}f}"


def _values(result: "FolderResult") -> dict[str, float]:
    """Title -> value, of what was evaluated."""
    metrics = ("Dice", "HD95", "NSD") if result.settings.surface else ("Dice",)
    values = {metric: result.foreground_mean(metric) for metric in metrics}
    if "image" in result.voxels and result.settings.counts_all_voxels:
        values["NLL per foreground voxel"] = result.pooled("image").get("NLL_per_foreground", np.nan)
    if "near" in result.voxels:
        near = result.pooled("near")
        values["ECE near"], values[_SIGN] = near.get("ECE", np.nan), near.get("over_confidence", np.nan)
    for metric in ("ECE", "CECE"):
        for voxels in result.voxels:
            if voxels in {"foreground", "union"}:
                values[f"{metric} {voxels}"] = result.mean(voxels, metric)
    return values
