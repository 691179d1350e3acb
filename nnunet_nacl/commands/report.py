"""The commands ``report``, ``table`` and ``plot``."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

VoxelSet: TypeAlias = Literal["foreground", "union", "near", "image"]
Table: TypeAlias = Literal[
    "methods", "differences", "ece", "expected", "published", "structures", "scores", "ranks", "sum-rank",
    "mean-case-rank", "cases",
]  # fmt: skip


def report(
    summaries: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    o: str | None = None,
    i: str | None = None,
    overwrite: bool = False,
    command_line: Sequence[str],
) -> int:
    """Show on one page how methods compare.

    One self-contained HTML page from what evaluate has written for methods, folds or data sets: what to believe,
    tables, reliability diagrams, rankings, cases. The methods are compared with the first.

    Args:
        o: FILE.html (default: report.html here)
        i: IMAGES: their folder, for the cases (default: imagesTs beside labelsTs, and so on)

    Examples:
        nnunet_nacl report predictions/DiceCE predictions/CE -o comparison.html
    """
    from nnunet_nacl.report import is_page, read_results, write_report

    page = Path(o or "report.html")
    if o is None and page.exists() and not is_page(page):
        raise FileExistsError(
            f"{page} exists, and is none of our pages. Choose another name by -o FILE.html."
        )
    results = read_results(summaries, names=names)
    may_replace = overwrite or o is None
    write_report(results, page, images=i, command=shlex.join(command_line), overwrite=may_replace)
    print(f"Wrote {page}\nOpen {page.resolve().as_uri()} in a browser.")
    return 0


def table(
    summaries: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    table: Table = "methods",
    format: Literal["markdown", "latex", "csv"] = "markdown",  # noqa: A002 - the option's name
    voxels: VoxelSet | None = None,
    no_intervals: bool = False,
    digits: int | None = None,
) -> int:
    """Print a table of the report as Markdown, LaTeX or CSV.

    The methods are compared with the first.

    Args:
        table: ece: Dice, HD95, ECE and CECE over the foreground and union, as papers have them; expected: beside what
            they would be if perfectly calibrated; published: beside the paper's values
        format: of the table; a LaTeX document needs the package booktabs for it
        no_intervals: without intervals and p-values
        digits: N digits after the decimal point (default: the metric's own)

    Examples:
        nnunet_nacl table predictions/DiceCE predictions/CE --table ece --format latex --no_intervals > table.tex
    """
    from nnunet_nacl.report import read_results, write_table

    if digits is not None and digits < 0:
        raise ValueError(f"--digits: expected 0 or more; got {digits}.")
    results = read_results(summaries, names=names)
    print(
        write_table(
            results, table, form=format, voxels=voxels, intervals=not no_intervals, digits=digits
        ),
        end="",
    )
    return 0


def plot(
    kind: Literal["reliability", "tradeoff", "radar", "ranks"],
    summaries: Sequence[str],
    *,
    voxels: VoxelSet | None = None,
    o: str | None = None,
) -> int:
    """Draw a plot of the report as SVG, PDF or PNG.

    Args:
        kind: tradeoff: Dice against calibration error
        o: FILE that ends with .svg, .pdf or .png, replaced if it exists (default: KIND.svg)
    """
    from nnunet_nacl.report import read_results, write_plot

    file = o or f"{kind}.svg"
    write_plot(read_results(summaries), kind, file, voxels=voxels)
    print(f"Wrote {file}")
    return 0
