"""Tables in Markdown of the rows in docs/results/data: each column is a template that a row fills."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parents[1] / "docs"
AGAIN = {1: "", 2: ", again", 3: ", a third time", 4: ", a fourth time"}
ECE_NEAR = {"ECE near": "{ECE_near:.3f}", "confidence − accuracy": "{over_confidence:+.3f}"}
UNION = {"ECE union": "{ECE_union:.3f} ({ECE_union_expected:.3f})"}


def read(name: str, where: str = "") -> pd.DataFrame:
    """The rows of docs/results/data/NAME.csv for which a pandas query holds, in the order of the file."""
    data = pd.read_csv(DOCS / "results" / "data" / f"{name}.csv", dtype={"fold": str, "folds": str})
    return data.query(where) if where else data


def fill(template: str, row: Mapping[str, object]) -> str:
    """A cell such as ``"{NLL:.3f} ({NLL_low:.3f} to {NLL_high:.3f})"``; a dash if a value is missing."""
    if any(pd.isna(row[name]) for name in re.findall(r"{([^}:]+)", template)):
        return "–"
    return re.sub(r"(?<![\w.])-(?=\d)", "−", template.format_map(row)).replace("%", " %")


def table(rows: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """A Markdown table with a line for each row; ``columns`` maps titles to templates, see ``fill``."""
    lines = [[fill(cell, row) for cell in columns.values()] for row in rows.to_dict("records")]
    return markdown([list(columns), *lines])


def crossed(rows: pd.DataFrame, columns: Mapping[str, str], cell: str, *, by: str) -> str:
    """A Markdown table with a line for each value of the column ``by``; ``columns`` maps titles to queries of a row."""
    lines = [[by, *columns]]
    for value, some in rows.groupby(by, sort=False):
        found = [some.query(query).to_dict("records") for query in columns.values()]
        if max(map(len, found)) > 1:
            raise ValueError(f"Expected at most one row of {value!r} for each of {list(columns)}")
        lines.append(
            [str(value), *(fill(cell, rows_of[0]) if rows_of else "–" for rows_of in found)]
        )
    return markdown(lines)


def markdown(lines: Iterable[Iterable[str]]) -> str:
    """A table whose first line is the head."""
    head, *rest = (f"| {' | '.join(cells)} |\n" for cells in lines)
    return head + "|---" * head.count(" | ") + "|---|\n" + "".join(rest)


def difference(value: float, low: float, high: float, digits: int) -> str:
    """A cell such as ``−0.179 (−0.210 to −0.151)``."""
    template = f"{{0:+.{digits}f}} ({{1:+.{digits}f}} to {{2:+.{digits}f}})"
    return template.format(value, low, high).replace("-", "−")
