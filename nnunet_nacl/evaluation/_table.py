"""Results side by side, a line each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.metrics import VOXEL_SETS, Voxels

if TYPE_CHECKING:
    from nnunet_nacl.evaluation._result import FolderResult

_POOLED: dict[str, tuple[Voxels, str]] = {
    "NLL per foreground voxel": ("image", "NLL_per_foreground"),
    "ECE near": ("near", "ECE"),
    "confidence − accuracy": ("near", "over_confidence"),
}
_PAPER = [(metric, voxels) for metric in ("ECE", "CECE") for voxels in VOXEL_SETS[:2]]


def format_table(results: Mapping[str, "FolderResult"]) -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics; ``–`` is not known."""
    import pandas

    values = pandas.DataFrame({name: _table_row(result) for name, result in results.items()}).T
    shown = values.loc[:, values.notna().any() | (values.columns == "Dice")].rename_axis(
        columns="method"
    )
    formats = dict.fromkeys(shown, "{:.3f}".format) | {
        "HD95": "{:.1f}".format,
        "confidence − accuracy": "{:+.3f}".format,
    }
    table = shown.to_string(formatters=formats, na_rep="–")
    return f"{table}\n{', '.join(_POOLED)}: all cases pooled; the others are means over cases."


def _table_row(result: "FolderResult") -> dict[str, float]:
    values = {"Dice": result.foreground_mean("Dice"), "HD95": np.nan, "NSD": np.nan}
    if result.settings.surface:
        values["HD95"] = result.foreground_mean("HD95")
        values["NSD"] = result.foreground_mean("NSD")
    for title, (voxels, metric) in _POOLED.items():
        values[title] = result.pooled(voxels).get(metric, np.nan)
    for metric, voxels in _PAPER:
        values[f"{metric} {voxels}"] = (
            result.mean(voxels, metric) if voxels in result.voxels else np.nan
        )
    return values
