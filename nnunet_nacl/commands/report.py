"""The commands ``report``, ``table`` and ``plot``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nnunet_nacl.report import Comparison

VoxelSet = Literal["foreground", "union", "near", "image"]
Table = Literal[
    "methods", "differences", "ece", "expected", "published", "structures", "scores", "ranks", "sum-rank",
    "mean-case-rank", "cases",
]  # fmt: skip


def report(
    summaries: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    o: str | None = None,
    i: str | None = None,
    by_patient: str | bool = False,
    overwrite: bool = False,
) -> int:
    """Compare methods on one page.

    Write one self-contained HTML page from what evaluate wrote for methods, folds or data sets: verdicts, tables,
    reliability diagrams, rankings, cases. The first method is the baseline.

    Args:
        o: FILE.html (default: report.html here)
        i: IMAGES: folder of the cases' images (default: imagesTs beside labelsTs, and so on)

    Examples:
        nnunet_nacl report predictions/DiceCE predictions/CE -o comparison.html
    """
    from nnunet_nacl.paper.report import page_parts
    from nnunet_nacl.report import is_page, write_report

    page = Path(o or "report.html")
    if o is None and page.exists() and not is_page(page):
        raise FileExistsError(
            f"{page} exists and is not one of our pages. Choose another name with -o FILE.html."
        )
    comparisons = _compared(summaries, names, by_patient)
    may_replace = overwrite or o is None
    write_report(comparisons, page, images=i, parts=page_parts(), overwrite=may_replace)
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
    by_patient: str | bool = False,
) -> int:
    """Print a table of the report as Markdown, LaTeX or CSV.

    The first method is the baseline.

    Args:
        table: ece: Dice, HD95, ECE and CECE over foreground and union, as in papers; expected: the same beside the
            values under perfect calibration; published: the same beside the paper's values
        format: format of the table; LaTeX needs the package booktabs
        no_intervals: omit intervals and p-values
        digits: N digits after the decimal point (default: the metric's own)

    Examples:
        nnunet_nacl table predictions/DiceCE predictions/CE --table ece --format latex --no_intervals > table.tex
    """
    from nnunet_nacl.paper.report import TABLES
    from nnunet_nacl.report import table_text

    comparisons = _compared(summaries, names, by_patient)
    print(
        table_text(
            comparisons,
            table,
            form=format,
            voxels=voxels,
            intervals=not no_intervals,
            digits=digits,
            tables=TABLES,
        ),
        end="",
    )
    return 0


def plot(
    kind: Literal["reliability", "tradeoff", "radar", "ranks"],
    summaries: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    voxels: VoxelSet | None = None,
    by_patient: str | bool = False,
    o: str | None = None,
) -> int:
    """Draw a plot of the report as SVG, PDF or PNG.

    Args:
        kind: KIND: reliability (confidence against accuracy), tradeoff (Dice against calibration error), radar, ranks
        o: FILE ending in .svg, .pdf or .png, replaced if it exists (default: KIND.svg)
    """
    from nnunet_nacl.paper.report import PLOTS
    from nnunet_nacl.report import write_plot

    file = o or f"{kind}.svg"
    comparisons = _compared(summaries, names, by_patient)
    write_plot(comparisons, kind, file, voxels=voxels, plots=PLOTS)
    print(f"Wrote {file}")
    return 0


def _compared(
    summaries: Sequence[str], names: Sequence[str] | None, by_patient: str | bool
) -> "list[Comparison]":
    """Compare the methods on each data set, and print the notes."""
    from nnunet_nacl.report import compare_all, read_results

    comparisons = compare_all(read_results(summaries, names=names), by_patient=by_patient)
    for comparison in comparisons:
        where = f"{comparison.dataset}: " if comparison.dataset else ""
        for note in comparison.notes:
            print(f"Note: {where}{note}", file=sys.stderr)
    return comparisons
