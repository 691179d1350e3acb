"""Results in a line, as the table that the commands print, and as HTML for notebooks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.evaluation._settings import VOXEL_SETS

if TYPE_CHECKING:
    import pandas

    from nnunet_nacl.evaluation._result import FolderResult

_SIGN = "confidence − accuracy"
_POOLED = ("NLL per foreground voxel", "ECE near", _SIGN)
_PAPER = tuple(f"{metric} {voxels}" for metric in ("ECE", "CECE") for voxels in VOXEL_SETS)
_NOTE = f"{', '.join(_POOLED)}: all cases pooled; the others are means over cases."


def format_table(results: "Mapping[str, FolderResult]") -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics.

    Args:
        results: name -> result. What was not evaluated for one of them is shown as ``–``.
    """
    return f"{_frame(results).to_string(index=False)}\n{_NOTE}"


def format_html(results: "Mapping[str, FolderResult]") -> str:
    """The same as an HTML table."""
    return f"{_frame(results).to_html(index=False, border=0)}<p>{_NOTE}</p>"


def format_line(result: "FolderResult") -> str:
    """What is most worth knowing, in a line."""
    cases, total = len(result.cases), len(result.cases) + len(result.skipped)
    counted = f"{total} case{'' if total == 1 else 's'}"
    shown = {title: value for title, value in _values(result).items() if title not in _PAPER or title == "ECE near"}
    texts = (f"{title} {_text(title, value)}" for title, value in shown.items())
    return ", ".join([counted if cases == total else f"{cases} of {counted}", *texts])


def _frame(results: "Mapping[str, FolderResult]") -> "pandas.DataFrame":
    import pandas

    titles = dict.fromkeys(("Dice", "HD95", "NSD", *_POOLED, *_PAPER))
    values = {name: _values(result) for name, result in results.items()}
    shown = [title for title in titles if any(title in row for row in values.values())]
    rows = [
        [name, *(_text(title, row[title]) if title in row else "–" for title in shown)] for name, row in values.items()
    ]
    return pandas.DataFrame(rows, columns=["method", *shown])


def _text(title: str, value: float) -> str:
    return f"{value:{'+' if title == _SIGN else ''}.{1 if title == 'HD95' else 3}f}"


def _values(result: "FolderResult") -> dict[str, float]:
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
