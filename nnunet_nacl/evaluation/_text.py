"""Results in a line, as the table that the commands print, and as HTML for notebooks."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.evaluation._settings import VOXEL_SETS

if TYPE_CHECKING:
    from nnunet_nacl.evaluation._result import FolderResult

_SIGN = "confidence − accuracy"
_POOLED = ("NLL per foreground voxel", "ECE near", _SIGN)
_PAPER = tuple(f"{metric} {voxels}" for metric in ("ECE", "CECE") for voxels in VOXEL_SETS)
_TITLES = tuple(dict.fromkeys(("Dice", "HD95", "NSD", *_POOLED, *_PAPER)))


def format_table(results: "Mapping[str, FolderResult]") -> str:
    """One line for each result: Dice, the scores that compare methods, and the paper's metrics.

    Args:
        results: name -> result. What was not evaluated for one of them is shown as ``–``.
    """
    columns = _columns(results)
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for name, *texts in zip(*columns, strict=True):
        cells = [text.rjust(width) for text, width in zip(texts, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells]))
    return "\n".join([*lines, *_notes(columns)])


def format_html(results: "Mapping[str, FolderResult]") -> str:
    """The same as an HTML table."""
    columns = _columns(results)
    head, *rows = zip(*columns, strict=True)
    lines = ["".join(f"<th>{escape(title)}</th>" for title in head)]
    lines += ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(columns))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{notes}"


def format_line(result: "FolderResult") -> str:
    """What is most worth knowing, in a line."""
    total = len(result.cases) + len(result.skipped)
    cases = f"{total} case{'' if total == 1 else 's'}"
    if result.skipped:
        cases = f"{len(result.cases)} of {cases}"
    values = {title: value for title, value in _values(result).items() if title not in _PAPER or title == "ECE near"}
    return ", ".join([cases, *(f"{title} {_text(title, value)}" for title, value in values.items())])


def _columns(results: "Mapping[str, FolderResult]") -> list[list[str]]:
    """The title of each column and its texts, the methods' names first."""
    values = {name: _values(result) for name, result in results.items()}
    columns = [["method", *results]]
    for title in (title for title in _TITLES if any(title in row for row in values.values())):
        columns += [[title, *(_text(title, row[title]) if title in row else "–" for row in values.values())]]
    return columns


def _notes(columns: list[list[str]]) -> list[str]:
    pooled = [title for title, *_ in columns if title in _POOLED]
    return [f"{', '.join(pooled)}: all cases pooled; the others are means over cases."] if pooled else []


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
