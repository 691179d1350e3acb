"""Write the tables of the docs' pages from the results in docs/results/data.

    python benchmarks/tables.py

replaces what stands in a page between ``<!-- table NAME -->`` and ``<!-- end -->``. Each name is a function
in ``TABLES``, which takes rows of a CSV file, and for each column a template that is filled with the row.
tests/test_results.py compares.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str, where: str = "") -> pd.DataFrame:
    """The rows of docs/results/data/NAME.csv for which a pandas query holds, in the order of the file."""
    data = pd.read_csv(DOCS / "results" / "data" / f"{name}.csv", dtype={"fold": str, "folds": str})
    return data.query(where) if where else data


def fill(template: str, row: Mapping[str, object]) -> str:
    """A cell such as ``"{NLL:.3f} ({NLL_low:.3f} to {NLL_high:.3f})"``; a dash if a value is missing."""
    if any(pd.isna(row[name]) for name in re.findall(r"{(\w+)", template)):
        return "–"
    return re.sub(r"(?<![\w.])-(?=\d)", "−", template.format_map(row))


def table(rows: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """A Markdown table with a line for each row; ``columns`` maps titles to templates, see :func:`fill`."""
    lines = [[fill(cell, row) for cell in columns.values()] for row in rows.to_dict("records")]
    return markdown([list(columns), *lines])


def crossed(rows: pd.DataFrame, columns: Mapping[str, str], cell: str, *, by: str) -> str:
    """A Markdown table with a line for each value of the column ``by``; ``columns`` maps titles to queries of a row."""
    lines = [[by, *columns]]
    for value, some in rows.groupby(by, sort=False):
        found = [some.query(query).to_dict("records") for query in columns.values()]
        if max(map(len, found)) > 1:
            raise ValueError(f"Expected at most one row of {value!r} for each of {list(columns)}")
        lines.append([str(value), *(fill(cell, rows_of[0]) if rows_of else "–" for rows_of in found)])
    return markdown(lines)


def markdown(lines: Iterable[Iterable[str]]) -> str:
    """A table whose first line is the head."""
    head, *rest = (list(line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rest])


ECE_NEAR = {"ECE near, signed": "{signed:+.3f}"}
UNION = {"ECE union": "{ECE_union:.3f} ({ECE_union_expected:.3f})"}


def losses(where: str) -> pd.DataFrame:
    """Rows of losses.csv, with the ECE near that bears the sign of confidence − accuracy."""
    rows = read("losses", where)
    return rows.assign(signed=rows["ECE_near"].where(rows["over_confidence"] > 0, -rows["ECE_near"]))


def losses_hippocampus() -> str:
    """Six losses, folds 0 and 1."""
    rows = losses("configuration == '2d_bs8' and optimizer == 'Adam' and steps == 3000")
    again = rows[rows["fold"] == "1"].set_index("method")[["NLL", "NLL_T"]].add_suffix("_fold_1")
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "NLL (95 %)": "{NLL:.3f} ({NLL_low:.3f} to {NLL_high:.3f})",
        "of it, cap": "{NLL_cap:.3f}",
        "with T": "{NLL_T:.3f}",
        **ECE_NEAR,
        "near": "{near_share:.2f}",
        "fold 1: NLL": "{NLL_fold_1:.3f}",
        "with T ": "{NLL_T_fold_1:.3f}",
    }
    return table(rows[rows["fold"] == "0"].join(again, on="method"), columns)


def losses_usgra() -> str:
    """Eight losses."""
    rows = losses("configuration == '2d_bs4' and optimizer == 'Adam' and CECE_union.notna()")
    columns = {"loss": "{method}", "Dice": "{Dice:.3f}", "NLL": "{NLL:.3f}", "of it, cap": "{NLL_cap:.3f}"}
    return table(rows, {**columns, "with T": "{NLL_T:.3f}", **ECE_NEAR, **UNION})


def losses_ablations() -> str:
    """Penalty, prior, constraint."""
    rows = losses("configuration == '2d_bs8' and steps == 1500 and CECE_union.notna()")
    return table(rows, {"loss": "{method}", "Dice": "{Dice:.3f}", "NLL": "{NLL:.3f}", **ECE_NEAR, **UNION})


def losses_dice() -> str:
    """DiceCE with a temperature, and what might keep its Dice: NLL, and the best Dice of each."""
    rows = read("losses", "decoded.notna()")
    rows["method"] = rows["method"].replace("DiceCE", "DiceCE with T")
    with_t = rows["method"] == "DiceCE with T"
    rows["best"] = rows[["Dice", "decoded"]].max(axis=1)
    rows.loc[with_t, "best"] = rows[["best", "decoded_T"]].max(axis=1)
    rows["NLL"] = rows["NLL_T"].where(with_t, rows["NLL"])
    settings = rows[["configuration", "optimizer", "steps"]].drop_duplicates().to_records(index=False)
    columns = {
        f"{'Hippocampus' if plan == '2d_bs8' else 'USGRA'}, {optimizer}, {steps:,}": (
            f"configuration == '{plan}' and optimizer == '{optimizer}' and steps == {steps}"
        )
        for plan, optimizer, steps in settings
    }
    shown = "DiceCE with T", "CE", "NACL", "FadeDice", "FadeLate", "DicePlusPlus", "LatePlusPlus"
    rows = rows[(rows["fold"] == "0") & rows["method"].isin(shown)]
    return crossed(rows, columns, "{NLL:.3f}, {best:.3f}", by="method")


TABLES: dict[str, Callable[[], str]] = {
    "losses-hippocampus": losses_hippocampus,
    "losses-usgra": losses_usgra,
    "losses-ablations": losses_ablations,
    "losses-dice": losses_dice,
}


def written(page: str) -> str:
    """The text of a page with its tables anew."""

    def one(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"There is no table {match[2]!r}; expected one of {sorted(TABLES)}")
        return match[1] + TABLES[match[2]]() + match[3]

    return MARKED.sub(one, page)


def pages() -> Iterator[Path]:
    """README and every page of the docs."""
    yield DOCS.parent / "README.md"
    yield from sorted(DOCS.rglob("*.md"))


if __name__ == "__main__":
    for file in pages():
        old = file.read_text(encoding="utf-8")
        new = written(old)
        if new != old:
            file.write_text(new, encoding="utf-8")
            print(file)
