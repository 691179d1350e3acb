"""The commands that measure and compare: ``evaluate``, ``report``, ``table`` and ``plot``."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nnunet_nacl.commands._arguments import Chosen, num_processes
from nnunet_nacl.commands._output import print_skipped
from nnunet_nacl.paths import unresolved

if TYPE_CHECKING:
    from nnunet_nacl.report import Comparison

VoxelSet = Literal["foreground", "union", "near", "image"]
Table = Literal[
    "methods", "differences", "ece", "expected", "published", "structures", "scores", "ranks", "sum-rank",
    "mean-case-rank", "cases",
]  # fmt: skip


def evaluate(
    chosen: Chosen,
    *,
    calibrated: bool = False,
    o: str | None = None,
    np: int | None = None,
    bins: int = 15,
    margin: float = 5.0,
    no_surface: bool = False,
    protocol: Literal["standard", "authors"] = "standard",
    ignore_geometry: bool = False,
    overwrite: bool = False,
) -> int:
    """Measure calibration and segmentation of predictions.

    Evaluate a folder of predictions made with --save_probabilities (GT_FOLDER PRED_FOLDER), or the validation cases of
    a model trained with --npz (-d -c -tr -p -f). After an interruption, the same command resumes where it stopped. It
    may also run on several machines at once.

    Args:
        o: SUMMARY.json; the other files go beside it (default: in PRED_FOLDER)
        bins: M confidence bins
        margin: MM that near extends around foreground probabilities above 0.05; or pixels, without spacing
        protocol: authors: bins and number of classes as in the paper's authors' code (not its Dice, HD or rounding)
        overwrite: evaluate every case again and replace existing files

    Examples:
        nnunet_nacl evaluate labelsTs predictions -np 4
        nnunet_nacl evaluate -d 4 -c 2d -tr nnUNetTrainerCE -f 0 1 2 3 4
    """
    predictions = chosen.predictions(calibrated=calibrated)
    from nnunet_nacl import evaluation
    from nnunet_nacl.metrics import Settings

    settings = Settings(
        num_bins=bins,
        margin_mm=margin,
        protocol=protocol,
        surface=not no_surface,
        ignore_geometry=ignore_geometry,
    )
    result = evaluation.evaluate(
        predictions,
        settings,
        output=o,
        num_processes=num_processes(np),
        overwrite=overwrite,
    )
    folder = chosen.pred_folder
    name = chosen.tr if folder is None else unresolved(folder).name
    print(evaluation.format_table({name: result}))
    for note in result.notes.values():
        print(f"Note: {note}")
    total = len(result.cases) + len(result.skipped)
    print(f"Evaluated {len(result.cases)} of {total} cases; all numbers are in {result.file}")
    if print_skipped(result.skipped):
        return 1
    whole = shlex.quote(o or folder or str(result.file))
    print(f"Next:\n    nnunet_nacl report {whole}    # add other folders to compare them")
    return 0


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
    may_replace = overwrite or (o is None and is_page(page))
    comparisons = _compared(summaries, names, by_patient)
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

    comparisons = _compared(summaries, names, by_patient, voxels)
    text = table_text(
        comparisons, table, form=format, intervals=not no_intervals, digits=digits, tables=TABLES
    )
    print(text, end="")
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
    comparisons = _compared(summaries, names, by_patient, voxels)
    write_plot(comparisons, kind, file, plots=PLOTS)
    print(f"Wrote {file}")
    return 0


def _compared(
    summaries: Sequence[str],
    names: Sequence[str] | None,
    by_patient: str | bool,
    voxels: VoxelSet | None = None,
) -> "list[Comparison]":
    """Compare the methods on each data set, over the voxel set that is asked for, and print the notes."""
    from nnunet_nacl.report import compare_all, read_results

    comparisons = compare_all(read_results(summaries, names=names), by_patient=by_patient)
    for comparison in comparisons:
        where = f"{comparison.dataset}: " if comparison.dataset else ""
        for note in comparison.notes:
            print(f"Note: {where}{note}", file=sys.stderr)
    return [comparison.over(voxels) for comparison in comparisons]
