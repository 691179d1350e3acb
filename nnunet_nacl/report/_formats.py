"""Tables of numbers, and tables as Markdown, LaTeX or CSV."""

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from nnunet_nacl.files import write_csv
from nnunet_nacl.metrics import Interval
from nnunet_nacl.report._metrics import signed_text
from nnunet_nacl.report._statistics import LEVEL

Mark = Literal["", "best", "second"]
NO_INTERVAL = (math.nan, math.nan)

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": "$-$",
    "–": "--",
}


@dataclass(frozen=True)
class Cell:
    """A number in a table.

    Attributes:
        value: the number; NaN if it is not defined.
        digits: shown after the decimal point.
        signed: whether it is shown with its sign, like a difference.
        interval: its 95 % interval; NaN if there is none.
        p: corrected p-value of a test; NaN if there is none.
        mark: whether it is the best or second best of those that it is compared with.
        remark: a word after it, such as ``tied``; not in CSV.
    """

    value: float
    digits: int = 3
    signed: bool = False
    interval: Interval = NO_INTERVAL
    p: float = math.nan
    mark: Mark = ""
    remark: str = ""

    @property
    def text(self) -> str:
        return self._shown(self.value) + ("*" if self.p < LEVEL else "") + (f" {self.remark}" if self.remark else "")

    @property
    def low(self) -> str:
        """Lower end of the interval; empty without one."""
        return "" if math.isnan(self.interval[0]) else self._shown(self.interval[0])

    @property
    def high(self) -> str:
        """Upper end of the interval; empty without one."""
        return "" if math.isnan(self.interval[1]) else self._shown(self.interval[1])

    @property
    def p_text(self) -> str:
        """``= 0.012`` or ``< 0.001``; empty without a test."""
        return "" if math.isnan(self.p) else p_value(self.p)

    def _shown(self, value: float) -> str:
        if self.signed:
            return signed_text(value, self.digits)
        return "–" if math.isnan(value) else f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        note: how to read it.
        columns: titles; the first is that of the row names.
        rows: name of the row, and its cells, one for each further column.
        groups: of each further column, the title that it shares with its neighbors, and its own; empty if none does.
    """

    title: str
    note: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]] = field(default_factory=list)
    groups: list[tuple[str, str]] = field(default_factory=list)


def p_value(p: float) -> str:
    """``= 0.012`` or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def to_markdown(table: Table) -> str:
    """A GitHub Markdown table with its title and note; best bold, second underlined."""
    lines = [_markdown_row(table.columns), _markdown_row(["---"] * len(table.columns))]
    lines += [
        _markdown_row([_markdown_text(name), *map(_markdown_cell, cells)], escaped=True) for name, cells in table.rows
    ]
    return f"**{_markdown_text(table.title)}**\n\n" + "\n".join(lines) + f"\n\n{_markdown_text(table.note)}\n"


def _markdown_row(texts: list[str], *, escaped: bool = False) -> str:
    return f"| {' | '.join(texts if escaped else map(_markdown_text, texts))} |"


def _markdown_text(text: str) -> str:
    text = " ".join(text.split()).replace("&", "&amp;")
    return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", text)


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>", "": text}[cell.mark]
    text += f" ({cell.low} to {cell.high})" if cell.low else ""
    return f"{text}, p {_markdown_text(cell.p_text)}" if cell.p_text else text


def to_latex(table: Table) -> str:
    r"""A LaTeX table for ``\usepackage{booktabs}``; best bold, second underlined."""
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text(table.title)}. {_latex_text(table.note)}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
        r"\toprule",
        _latex_row(list(map(_latex_text, table.columns))),
        r"\midrule",
        *(_latex_row([_latex_text(name), *map(_latex_cell, cells)]) for name, cells in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(texts: list[str]) -> str:
    guard = "{}" if texts[0][:1] in {"[", "*"} else ""  # or LaTeX takes it for an option of the line before
    return rf"{guard}{' & '.join(texts)} \\"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_cell(cell: Cell) -> str:
    text = _latex_text(cell.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}", "": text}[cell.mark]
    text += rf" {{\scriptsize ({_latex_text(cell.low)} to {_latex_text(cell.high)})}}" if cell.low else ""
    return rf"{text} {{\scriptsize $p$ {_latex_text(cell.p_text)}}}" if cell.p_text else text


def to_csv(table: Table) -> str:
    """CSV with unrounded numbers, empty if not defined; interval ends and p-values have columns of their own."""
    columns = range(len(table.columns) - 1)
    with_interval = [any(cells[column].low for _, cells in table.rows) for column in columns]
    with_p = [any(cells[column].p_text for _, cells in table.rows) for column in columns]
    header = [table.columns[0]]
    for column in columns:
        title = table.columns[column + 1].rstrip(" ↑↓")
        header += [
            title,
            *([f"{title} low", f"{title} high"] * with_interval[column]),
            *([f"{title} p"] * with_p[column]),
        ]
    rows = [header]
    for name, cells in table.rows:
        numbers: list[float] = []
        for column, cell in enumerate(cells):
            numbers += [cell.value, *(cell.interval * with_interval[column]), *([cell.p] * with_p[column])]
        rows.append([name, *("" if math.isnan(number) else f"{number:.10g}" for number in numbers)])
    stream = io.StringIO()
    write_csv(stream, rows, lineterminator="\n")
    return stream.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}
