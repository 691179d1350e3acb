"""The table that the commands print."""

from collections.abc import Mapping

from nnunet_nacl.evaluation._settings import Voxels
from nnunet_nacl.evaluation._summary import FolderResult

_METRICS = ("ECE", "CECE")


def format_table(results: Mapping[str, FolderResult]) -> str:
    """One line a result: foreground Dice, and ECE and CECE over each voxel set, as means over the cases.

    Args:
        results: name -> result; all with the same voxel sets.
    """
    first = next(iter(results.values()))
    columns: list[tuple[str, Voxels, str]] = [(f"{metric} {v}", v, metric) for metric in _METRICS for v in first.voxels]
    surface = [metric for metric in ("HD95", "NSD") if first.settings["surface"]]
    width = max(map(len, [*results, "mean over cases"]))
    titles = ["  Dice", *(f"{metric:>6}" for metric in surface), *(title for title, _, _ in columns)]
    lines = ["  ".join(["mean over cases".ljust(width), *titles])]
    for name, result in results.items():
        figures = [f"{result.foreground_mean():6.3f}"]
        figures += [f"{result.foreground_mean(metric):6.{1 if metric == 'HD95' else 3}f}" for metric in surface]
        figures += [f"{result.mean(voxels, metric):{len(title)}.3f}" for title, voxels, metric in columns]
        lines.append("  ".join([name.ljust(width), *figures]))
    return "\n".join(lines)
