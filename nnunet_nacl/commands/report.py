"""The commands ``report``, ``table`` and ``plot``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

VoxelSet = Literal["foreground", "union", "near", "image"]
_PAGE = "report.html"


def report(
    *summaries: str,
    names: Sequence[str] | None = None,
    o: str = _PAGE,
    i: str | None = None,
    published: bool = False,
    overwrite: bool = False,
    command_line: Sequence[str],
) -> int:
    """Show on one page how methods compare.

    One self-contained HTML page from what evaluate has written for methods, folds or data sets: what to believe,
    tables, reliability diagrams, rankings, cases. The methods are compared with the first.

    Args:
        o: FILE.html
        i: IMAGES: their folder, for the cases (default: imagesTs beside labelsTs, and so on)
        published: show the paper's published values beside yours

    Examples:
        nnunet_nacl report predictions
        nnunet_nacl report predictions/DiceCE predictions/CE -o comparison.html
    """
    import shlex

    from nnunet_nacl.report import read_results, write_report

    write_report(
        read_results(summaries, names=names),
        o,
        images=i,
        command=shlex.join(command_line),
        paper=published,
        overwrite=overwrite or o == _PAGE,
    )
    print(f"Wrote {o}\nOpen {Path(o).resolve().as_uri()} in a browser.")
    return 0


def table(
    *summaries: str,
    names: Sequence[str] | None = None,
    table: Literal[
        "methods",
        "differences",
        "ece",
        "expected",
        "published",
        "structures",
        "scores",
        "ranks",
        "sum-rank",
        "mean-case-rank",
        "cases",
    ] = "methods",
    format: Literal["markdown", "latex", "csv"] = "markdown",  # noqa: A002 - the option's name
    voxels: VoxelSet | None = None,
    no_intervals: bool = False,
    digits: int | None = None,
    o: str | None = None,
    overwrite: bool = False,
) -> int:
    """Print a table of the report as Markdown, LaTeX or CSV.

    The methods are compared with the first.

    Args:
        table: ece: Dice, HD95, ECE and CECE over the foreground and union, as papers have them; expected: beside what
            they would be if perfectly calibrated; published: beside the paper's values
        format: of the table
        no_intervals: without intervals and p-values
        digits: N digits after the decimal point (default: the metric's own)
        o: FILE to write it to (default: print it)

    Examples:
        nnunet_nacl table predictions/DiceCE predictions/CE
        nnunet_nacl table predictions/DiceCE predictions/CE --table ece --format latex --no_intervals --digits 3
    """  # fmt: skip
    from nnunet_nacl.report import read_results, write_table

    text = write_table(
        read_results(summaries, names=names),
        table,
        output=o,
        form=format,
        voxels=voxels,
        intervals=not no_intervals,
        digits=digits,
        overwrite=overwrite,
        show=_note,
    )
    print(f"Wrote {o}\n" if o else text, end="")
    return 0


def plot(
    kind: Literal["reliability", "classes", "tradeoff", "radar", "ranks", "case"],
    *summaries: str,
    names: Sequence[str] | None = None,
    voxels: VoxelSet | None = None,
    case: str | None = None,
    i: str | None = None,
    o: str | None = None,
    overwrite: bool = False,
) -> int:
    """Draw a plot of the report as SVG, PDF or PNG.

    Args:
        kind: classes: reliability of each of the worst calibrated classes
        case: NAME of the case to draw (default: that of median ECE)
        i: IMAGES: their folder, for case (default: imagesTs beside labelsTs, and so on)
        o: FILE that ends with .svg, .pdf or .png (default: KIND.svg)

    Examples:
        nnunet_nacl plot reliability predictions/DiceCE predictions/CE -o reliability.pdf
        nnunet_nacl plot case predictions/DiceCE predictions/CE --case hippocampus_017 -o case.png
    """
    from nnunet_nacl.report import read_results, write_plot

    file = o or f"{kind}.svg"
    write_plot(
        read_results(summaries, names=names),
        kind,
        file,
        voxels=voxels,
        case=case,
        images=i,
        overwrite=overwrite,
        show=_note,
    )
    print(f"Wrote {file}")
    return 0


def _note(text: str) -> None:
    print(f"Note: {text}", file=sys.stderr)
