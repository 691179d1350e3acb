"""The table that the commands print."""

from collections.abc import Mapping

import numpy as np

from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.evaluation._settings import VOXEL_SETS

_SIGN = "confidence − accuracy"
_POOLED = ("NLL per foreground voxel", "ECE near", _SIGN)
_PAPER = tuple(f"{metric} {voxels}" for metric in ("ECE", "CECE") for voxels in VOXEL_SETS)
_TITLES = tuple(dict.fromkeys(("Dice", "HD95", "NSD", *_POOLED, *_PAPER)))


def format_table(results: Mapping[str, FolderResult]) -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics.

    Args:
        results: name -> result. What was not evaluated for one of them is shown as ``–``.
    """
    values = {name: _values(result) for name, result in results.items()}
    titles = [title for title in _TITLES if any(title in row for row in values.values())]
    columns = [["method", *results]]
    for title in titles:
        texts = [_text(title, row[title]) if title in row else "–" for row in values.values()]
        columns.append([title, *texts])
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for name, *texts in zip(*columns, strict=True):
        cells = [text.rjust(width) for text, width in zip(texts, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells]))
    pooled = [title for title in titles if title in _POOLED]
    if pooled:
        lines.append(f"{', '.join(pooled)}: all cases pooled; the others are means over cases.")
    return "\n".join(lines)


def _text(title: str, value: float) -> str:
    return f"{value:{'+' if title == _SIGN else ''}.{1 if title == 'HD95' else 3}f}"


def _values(result: FolderResult) -> dict[str, float]:
    """Title -> value, of what was evaluated."""
    counts_all = result.settings.counts_all_voxels
    metrics = ("Dice", "HD95", "NSD") if result.settings.surface else ("Dice",)
    values = {metric: result.foreground_mean(metric) for metric in metrics}
    if "image" in result.voxels and counts_all:
        values["NLL per foreground voxel"] = result.pooled("image").get("NLL_per_foreground", np.nan)
    if "near" in result.voxels:
        near = result.pooled("near")
        values["ECE near"], values[_SIGN] = near.get("ECE", np.nan), near.get("over_confidence", np.nan)
    for metric in ("ECE", "CECE"):
        for voxels in result.voxels:
            if voxels not in {"near", "image"} or not counts_all:
                values[f"{metric} {voxels}"] = result.mean(voxels, metric)
    return values
