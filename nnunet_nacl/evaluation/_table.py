"""Results side by side, one line each."""

from collections.abc import Mapping
from typing import Any

from nnunet_nacl.metrics import METRICS, Voxels

_SHOWN: tuple[tuple[Voxels, str], ...] = (
    ("image", "NLL_per_foreground"),
    ("near", "ECE"),
    ("near", "over_confidence"),
)
POOLED = {METRICS[name].titled(voxels): (voxels, name) for voxels, name in _SHOWN}
"""Columns over the voxels of all cases together: voxel set and metric."""


def format_table(results: Mapping[str, Any]) -> str:
    """One line for each ``FolderResult``, by name; ``–`` if unknown; then what is to be known about the columns."""
    import pandas

    values = pandas.DataFrame({name: result.row() for name, result in results.items()}).T
    shown = values.loc[:, values.notna().any() | (values.columns == "Dice")].rename_axis(
        columns="method"
    )
    formats = dict.fromkeys(shown, "{:.3f}".format) | {
        "HD95": "{:.1f}".format,
        METRICS["over_confidence"].titled(): "{:+.3f}".format,
    }
    table = shown.to_string(formatters=formats, na_rep="–")
    lost = dict.fromkeys(result.meaning.what_is_lost for result in results.values())
    notes = [
        f"{of_regions} Dice, like nnU-Net's, is that of the label map, and below 1 for a perfect model; Dice of masks "
        "is that of p > ½."
        for of_regions in lost
        if of_regions is not None
    ]
    pooled = f"{', '.join(POOLED)}: all cases pooled; the others are means over cases."
    return "\n".join([table, pooled, *notes])
