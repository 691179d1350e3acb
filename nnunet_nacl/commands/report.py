"""The commands ``report``, ``table`` and ``plot``."""

import argparse
import shlex
import sys
from pathlib import Path

from nnunet_nacl.commands._shared import (
    VOXELS,
    Commands,
    Parser,
    add_ignore_geometry,
    add_overwrite,
    explain_voxels,
    say_next,
)

_TABLES = (
    "methods", "differences", "paper", "expected", "published", "structures", "scores", "ranks", "sum-rank",
    "mean-case-rank", "cases",
)  # fmt: skip
_PAGE = "report.html"


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    report = commands.add_parser(
        "report",
        help="one page that compares methods: verdict, tables, reliability diagrams, rankings, cases",
        description="Make one self-contained HTML page from what evaluate has written for methods, folds or data sets.",
    )
    _add_summaries(report)
    report.add_argument("-o", default=_PAGE, metavar="FILE.html", help="default: %(default)s")
    report.add_argument("--images", metavar="FOLDER", help="the images (default: imagesTs beside labelsTs, and so on)")
    add_ignore_geometry(report)
    report.add_argument("--paper", action="store_true", help="show the paper's published values beside yours")
    add_overwrite(report)
    report.set_defaults(run=_report)
    report.add_section(
        "examples",
        [
            "nnunet_nacl report predictions",
            "nnunet_nacl report predictions/DiceCE predictions/CE --baseline DiceCE -o report.html",
        ],
    )

    table = commands.add_parser("table", help="a table of the report as Markdown, LaTeX or CSV")
    _add_summaries(table)
    table.add_argument(
        "--table",
        default="methods",
        choices=_TABLES,
        help="default: %(default)s",
    )
    table.add_argument(
        "--format", default="markdown", choices=("markdown", "latex", "csv"), help="default: %(default)s"
    )
    table.add_argument("--voxels", choices=VOXELS, help="voxel set, where the table has one (default: near)")
    table.add_argument("--no_intervals", action="store_true", help="without intervals and p-values")
    table.add_argument("--digits", type=int, metavar="N", help="after the decimal point (default: the metric's own)")
    table.add_argument("-o", metavar="FILE", help="write it there (default: print it)")
    add_overwrite(table)
    table.set_defaults(run=_table)
    explain_voxels(table)
    table.add_section(
        "examples",
        [
            "nnunet_nacl table predictions/DiceCE predictions/CE",
            "nnunet_nacl table predictions/DiceCE predictions/CE --table differences --format latex -o differences.tex",
        ],
    )

    plot = commands.add_parser("plot", help="a plot of the report as SVG, PDF or PNG")
    plot.add_argument(
        "kind",
        metavar="KIND",
        choices=("reliability", "classes", "tradeoff", "radar", "ranks", "case"),
        help="reliability, classes (reliability of each class), tradeoff, radar, ranks or case",
    )
    _add_summaries(plot)
    plot.add_argument("-o", metavar="FILE", help="ends with .svg, .pdf or .png (default: KIND.svg)")
    plot.add_argument("--voxels", choices=VOXELS, help="voxel set (default: near, where the plot has one)")
    plot.add_argument("--classes", nargs="+", metavar="NAME", help="for classes: names (default: the worst calibrated)")
    plot.add_argument("--case", metavar="NAME", help="for case: its name (default: the one of median ECE)")
    plot.add_argument("--images", metavar="FOLDER", help="for case: the images (default: as for report)")
    add_overwrite(plot)
    add_ignore_geometry(plot)
    plot.set_defaults(run=_plot)
    explain_voxels(plot)
    plot.add_section(
        "examples",
        [
            "nnunet_nacl plot reliability predictions/DiceCE predictions/CE -o reliability.pdf",
            "nnunet_nacl plot case predictions/DiceCE predictions/CE --case hippocampus_017 -o case.png",
        ],
    )


def _add_summaries(command: Parser) -> None:
    command.add_argument(
        "summaries", nargs="+", metavar="SUMMARY", help="calibration_summary.json, or the folder that holds it"
    )
    command.add_argument(
        "--names", nargs="+", metavar="NAME", help="of the methods, one for each summary (default: trainer or folder)"
    )
    command.add_argument(
        "--datasets", nargs="+", metavar="NAME", help="of the data sets, one for each summary (default: nnU-Net's)"
    )
    command.add_argument("--baseline", metavar="NAME", help="method to compare the others with (default: the first)")


def _report(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import read_results, write_report

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    command = shlex.join(["nnunet_nacl", *options.arguments])
    write_report(
        results,
        options.o,
        baseline=options.baseline,
        images=options.images,
        command=command,
        paper=options.paper,
        overwrite=options.overwrite or options.o == _PAGE,
        ignore_geometry=options.ignore_geometry,
    )
    print(f"Wrote {options.o}")
    say_next(
        f"open {Path(options.o).resolve().as_uri()} in a browser",
        "nnunet_nacl table SUMMARY ... --format latex, and nnunet_nacl plot KIND SUMMARY ..., for a paper",
    )
    return 0


def _table(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import read_results, write_table

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    text = write_table(
        results,
        options.table,
        output=options.o,
        form=options.format,
        baseline=options.baseline,
        voxels=options.voxels,
        intervals=not options.no_intervals,
        digits=options.digits,
        overwrite=options.overwrite,
        show=_note,
    )
    print(f"Wrote {options.o}" if options.o else text, end="\n" if options.o else "")
    say_next(f"nnunet_nacl plot reliability {shlex.join(options.summaries)}", aside=options.o is None)
    return 0


def _plot(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import read_results, write_plot

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    file = options.o or f"{options.kind}.svg"
    write_plot(
        results,
        options.kind,
        file,
        baseline=options.baseline,
        voxels=options.voxels,
        classes=options.classes,
        case=options.case,
        images=options.images,
        overwrite=options.overwrite,
        show=_note,
        ignore_geometry=options.ignore_geometry,
    )
    print(f"Wrote {file}")
    say_next(f"nnunet_nacl table {shlex.join(options.summaries)}")
    return 0


def _note(text: str) -> None:
    print(f"Note: {text}", file=sys.stderr)
