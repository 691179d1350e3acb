"""A table of numbers with intervals and p-values: its texts, and it as Markdown, LaTeX and CSV."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nnunet_nacl.files import csv_text
from nnunet_nacl.metrics import Interval
from nnunet_nacl.report._statistics import LEVEL

ALL_OTHERS = "all others that find each structure"
_BOLD = f"Bold: significantly better, on these cases, than {ALL_OTHERS}."
_STAR = f"*: p is below {LEVEL:g}, and value, interval and test point in one direction."
_INTERVALS = "In parentheses: 95 % bootstrap intervals."
ARROWS = " ↑↓"
"""What may follow a title in a column's head: the better direction."""
_LATEX = str.maketrans(
    {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
)


def number_text(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """Format a number with a true minus sign; a signed number has no sign if it is 0; – if it is not defined.

    >>> number_text(-0.0004, signed=True), number_text(-0.0006, signed=True), number_text(float("nan"))
    ('0.000', '−0.001', '–')
    """
    if np.isnan(value):
        return "–"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return (text if float(text) else text.lstrip("+-")).replace("-", "−")


def p_text(p: float) -> str:
    """Format a p-value: ``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


@dataclass(frozen=True)
class Cell:
    """A number, NaN where not defined, with its interval and p-value, if any.

    ``is_significant`` as ``Difference.is_significant``: a low p alone can belong to a test that contradicts the number.
    """

    number: float
    interval: Interval = (np.nan, np.nan)
    p: float = np.nan
    digits: int = 3
    signed: bool = False
    is_significant: bool = False
    is_bold: bool = False

    @property
    def text(self) -> str:
        """The rounded number, with a star if it is significant."""
        text = number_text(self.number, self.digits, signed=self.signed)
        return f"{text}*" if self.is_significant else text

    @property
    def details(self) -> str:
        """``(0.800 to 0.824), p = 0.012``, as far as they are known."""
        found = []
        if not np.isnan(self.interval[0]):
            ends = (number_text(end, self.digits, signed=self.signed) for end in self.interval)
            found.append(f"({' to '.join(ends)})")
        if not np.isnan(self.p):
            found.append(p_text(self.p))
        return ", ".join(found)

    def __str__(self) -> str:
        return f"{self.text} {self.details}".rstrip()


def exact(number: float) -> str:
    """Format the unrounded number; empty if it is not defined."""
    return "" if np.isnan(number) else f"{number:.10g}"


@dataclass(frozen=True)
class Table:
    """Cells by the columns' heads, of one or several data sets; ``index`` says what the rows are."""

    title: str
    dataset: str
    note: str
    rows: list[str]
    columns: dict[str, list[Cell]]
    index: str = "method"

    @property
    def heading(self) -> str:
        """The title with the data set."""
        return f"{self.title}: {self.dataset}" if self.dataset else self.title

    @property
    def legend(self) -> str:
        """What bold, stars and parentheses mean, as far as there are any."""
        cells = [cell for cells in self.columns.values() for cell in cells]
        shown = {
            _BOLD: any(cell.is_bold for cell in cells),
            _STAR: any(cell.is_significant for cell in cells),
            _INTERVALS: any("(" in cell.details for cell in cells),
        }
        return " ".join(text for text, is_shown in shown.items() if is_shown)

    @property
    def caption(self) -> str:
        """The note and the legend."""
        return f"{self.note} {self.legend}".rstrip()

    @property
    def frame(self) -> pd.DataFrame:
        """The cells by row and head."""
        return pd.DataFrame(self.columns, pd.Index(self.rows, name=self.index), dtype=object)

    def values(self) -> pd.DataFrame:
        """Return the unrounded numbers; ends of intervals and p-values, if known, have columns of their own."""
        found = []
        for head, cells in self.columns.items():
            title = head.rstrip(ARROWS)
            numbers = [(cell.number, *cell.interval, cell.p) for cell in cells]
            titles = [title, f"{title} low", f"{title} high", f"{title} p"]
            own = pd.DataFrame(numbers, self.frame.index, titles, dtype=np.float64)
            is_shown = own.notna().any()
            is_shown[title] = True
            found.append(own.loc[:, is_shown])
        return pd.concat(found, axis=1)


def to_markdown(table: Table) -> str:
    """Return a GitHub Markdown table with its title and note."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", " ".join(text.split()).replace("&", "&amp;"))

    rows = [[escaped(head) for head in (table.index, *table.columns)]]
    rows.append(["---"] * len(rows[0]))
    for name, *cells in zip(table.rows, *table.columns.values(), strict=True):
        texts = [f"**{escaped(str(one))}**" if one.is_bold else escaped(str(one)) for one in cells]
        rows.append([escaped(name), *texts])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{escaped(table.heading)}**\n\n{lines}\n\n{escaped(table.caption)}\n"


def to_latex(table: Table) -> str:
    r"""Return a LaTeX table for ``\usepackage{booktabs}``."""

    def escaped(text: object) -> str:
        return str(text).translate(_LATEX)

    style = table.frame.style.format(escaped)
    style = style.format_index(escaped, axis=0).format_index(escaped, axis=1)
    bold = table.frame.map(lambda cell: "textbf:--rwrap;" if cell.is_bold else "")
    style = style.apply(lambda _: bold, axis=None)
    caption = escaped(f"{table.heading}. {table.caption}")
    label = f"tab:{re.sub(r'[^a-z0-9]+', '-', table.heading.lower())}"
    layout = {"position_float": "centering", "column_format": "l" + "c" * len(table.columns)}
    text: str = style.to_latex(hrules=True, caption=caption, label=label, **layout)
    return text


def to_csv(table: Table) -> str:
    """Return CSV with unrounded numbers, empty if not defined."""
    texts = table.values().map(exact).reset_index()
    return csv_text([texts.columns, *texts.to_numpy()], lineterminator="\n")


FORMATS = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}


def column(numbers: Iterable[float], **style: Any) -> list[Cell]:
    """Make a column of numbers alone."""
    return [Cell(number, **style) for number in numbers]
