"""A table, and its text in Markdown, LaTeX and CSV."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from nnunet_nacl.files import csv_text
from nnunet_nacl.metrics import Interval
from nnunet_nacl.report._statistics import LEVEL
from nnunet_nacl.report._texts import number_text, p_text
from nnunet_nacl.typing import Mask

_LATEX = str.maketrans(
    {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
)
_LATEX_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


@dataclass(frozen=True)
class Cell:
    """A number and its texts; those of interval and p-value are empty if there is none or it is not shown."""

    number: float
    value: str
    interval: str = ""
    p: str = ""
    is_bold: bool = False

    @property
    def sort_value(self) -> str:
        """The unrounded number, empty if not defined."""
        return _exact(self.number)

    def __str__(self) -> str:
        """``0.812 (0.800 to 0.824)``, or with a test ``−0.010*, p = 0.012``."""
        value = f"{self.value} {self.interval}" if self.interval else self.value
        return f"{value}, {self.p}" if self.p else value


@dataclass(frozen=True)
class Column:
    """Numbers, one for each row, NaN where not defined; ``best`` is the row significantly better than all others."""

    title: str
    values: Sequence[float]
    intervals: Sequence[Interval] | None = None
    p: Sequence[float] | None = None
    digits: int = 3
    signed: bool = False
    arrow: str = ""
    best: str | None = None

    @property
    def head(self) -> str:
        """The title with its arrow."""
        return f"{self.title} {self.arrow}".rstrip()

    def cell(self, row: int, *, name: str, intervals: bool, digits: int | None) -> Cell:
        """The cell of a row of this name."""
        digits = self.digits if digits is None else digits
        p = np.nan if self.p is None else self.p[row]
        value = number_text(self.values[row], digits, signed=self.signed)
        if p < LEVEL:
            value += "*"
        interval = ""
        if intervals and self.intervals is not None and not np.isnan(self.intervals[row][0]):
            ends = (number_text(end, digits, signed=self.signed) for end in self.intervals[row])
            interval = f"({' to '.join(ends)})"
        return Cell(
            number=self.values[row],
            value=value,
            interval=interval,
            p=p_text(p) if intervals and not np.isnan(p) else "",
            is_bold=self.best == name,
        )


@dataclass(frozen=True)
class Table:
    """Numbers by row and column, of one or several data sets; ``index`` says what the rows are.

    ``intervals``: whether intervals and p-values are shown; ``digits``: after the decimal point, by default each
    column's own.
    """

    title: str
    dataset: str
    note: str
    rows: list[str]
    columns: list[Column]
    index: str = "method"
    intervals: bool = True
    digits: int | None = None

    @property
    def heading(self) -> str:
        """The title with the data set."""
        return f"{self.title}: {self.dataset}" if self.dataset else self.title

    @property
    def caption(self) -> str:
        """The note, and what the intervals are, if any is shown."""
        if self.intervals and any(column.intervals is not None for column in self.columns):
            return f"{self.note} In parentheses: 95 % bootstrap intervals."
        return self.note

    def values(self) -> pd.DataFrame:
        """The unrounded numbers; ends of intervals and p-values have columns of their own."""
        found: dict[str, Sequence[float]] = {}
        for column in self.columns:
            found[column.title] = column.values
            if not self.intervals:
                continue
            if column.intervals is not None and not np.isnan(column.intervals).all():
                found[f"{column.title} low"] = [low for low, _ in column.intervals]
                found[f"{column.title} high"] = [high for _, high in column.intervals]
            if column.p is not None and not np.isnan(column.p).all():
                found[f"{column.title} p"] = column.p
        return pd.DataFrame(found, pd.Index(self.rows, name=self.index), dtype=np.float64)

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The cells of each row."""
        return [
            [
                column.cell(row, name=name, intervals=self.intervals, digits=self.digits)
                for column in self.columns
            ]
            for row, name in enumerate(self.rows)
        ]

    def shown(self) -> pd.DataFrame:
        """The texts of the cells; titles have their arrows."""
        texts = [[str(cell) for cell in row] for row in self.cells]
        heads = [column.head for column in self.columns]
        return pd.DataFrame(texts, pd.Index(self.rows, name=self.index), heads)

    def bold(self) -> Mask:
        """Which cells are bold."""
        return np.array([[cell.is_bold for cell in row] for row in self.cells])


def _exact(number: float) -> str:
    return "" if np.isnan(number) else f"{number:.10g}"


def to_markdown(table: Table) -> str:
    """A GitHub Markdown table with its title and note."""
    texts = table.shown().map(_escaped)
    texts = texts.mask(table.bold(), "**" + texts + "**").rename(_escaped).reset_index()
    rows = [
        [_escaped(head) for head in texts.columns],
        ["---"] * len(texts.columns),
        *texts.to_numpy().tolist(),
    ]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{_escaped(table.heading)}**\n\n{lines}\n\n{_escaped(table.caption)}\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def to_latex(table: Table) -> str:
    r"""A LaTeX table for ``\usepackage{booktabs}``."""
    style = table.shown().style.format(escape="latex")
    style = style.format_index(escape="latex", axis=0).format_index(escape="latex", axis=1)
    style = style.apply(lambda _: np.where(table.bold(), "textbf:--rwrap;", ""), axis=None)
    caption = f"{table.heading}. {table.caption}".translate(_LATEX_SPECIAL)
    label = f"tab:{re.sub(r'[^a-z0-9]+', '-', table.heading.lower())}"
    layout = {"position_float": "centering", "column_format": "l" + "c" * len(table.columns)}
    text: str = style.to_latex(hrules=True, caption=caption, label=label, **layout)
    return text.translate(_LATEX)


def to_csv(table: Table) -> str:
    """CSV with unrounded numbers, empty if not defined."""
    texts = table.values().map(_exact).reset_index()
    return csv_text([texts.columns, *texts.to_numpy()], lineterminator="\n")


FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
}
