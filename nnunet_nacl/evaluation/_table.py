"""Results side by side, one line each."""

from collections.abc import Iterable, Mapping

from nnunet_nacl.metrics import METRICS, Voxels
from nnunet_nacl.typing import Numbers

_SHOWN: tuple[tuple[Voxels, str], ...] = (
    ("image", "NLL_per_foreground"),
    ("near", "ECE"),
    ("near", "over_confidence"),
)
POOLED = {METRICS[name].titled(voxels): (voxels, name) for voxels, name in _SHOWN}
"""Columns over the voxels of all cases together: voxel set and metric."""


def table_of_rows(rows: Mapping[str, Numbers], lost: Iterable[str | None]) -> str:
    """One line for each row, by name; ``–`` for NaN; then notes, and what label maps lose of regions."""
    import pandas

    values = pandas.DataFrame(rows).T
    shown = values.loc[:, values.notna().any() | (values.columns == "Dice")].rename_axis(
        columns="method"
    )
    formats = dict.fromkeys(shown, "{:.3f}".format) | {
        "HD95": "{:.1f}".format,
        METRICS["over_confidence"].titled(): "{:+.3f}".format,
    }
    table = shown.to_string(formatters=formats, na_rep="–")
    notes = [
        f"{of_regions} Dice, like nnU-Net's, is that of the label map, and below 1 for a perfect model; Dice of masks "
        "is that of p > ½."
        for of_regions in dict.fromkeys(lost)
        if of_regions is not None
    ]
    pooled = f"{', '.join(POOLED)}: all cases pooled; the others are means over cases."
    return "\n".join([table, pooled, *notes])
