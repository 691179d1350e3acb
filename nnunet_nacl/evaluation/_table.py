"""The table that the commands print."""

from collections.abc import Mapping

from nnunet_nacl.evaluation._case import VOXEL_SETS
from nnunet_nacl.evaluation._summary import METRICS, FolderResult


def format_table(results: Mapping[str, FolderResult]) -> str:
    """One line a result: foreground Dice, and ECE and CECE over each voxel set, as means over the cases.

    Args:
        results: name -> result.
    """
    columns = [(f"{metric} {voxels}", voxels, metric) for metric in METRICS for voxels in VOXEL_SETS]
    width = max(map(len, [*results, "mean over cases"]))
    lines = ["  ".join(["mean over cases".ljust(width), "  Dice", *(title for title, _, _ in columns)])]
    for name, result in results.items():
        figures = [f"{result.mean(voxels, metric):{len(title)}.3f}" for title, voxels, metric in columns]
        lines.append("  ".join([name.ljust(width), f"{result.foreground_dice:6.3f}", *figures]))
    return "\n".join(lines)
