"""The commands ``evaluate`` and ``merge``."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nnunet_nacl.commands._shared import (
    VOXELS,
    Commands,
    add_ignore_geometry,
    add_overwrite,
    add_predictions,
    add_processes,
    chosen_predictions,
    explain_voxels,
    num_processes,
    say_next,
)

if TYPE_CHECKING:
    from nnunet_nacl.evaluation import FolderResult

_SHOWN = 10
"""So many skipped cases are printed; the summary has all."""


def add(commands: Commands) -> None:
    """Add it to the command line."""
    evaluate = commands.add_parser(
        "evaluate",
        help="calibration and segmentation metrics of predictions made with --save_probabilities",
        description="Calibration and segmentation metrics: of a folder of predictions made with --save_probabilities "
        "(GT_FOLDER PRED_FOLDER), or of the validation cases of a model trained with --npz (-d -c -tr -p -f). "
        "Run again, it goes on where it was interrupted.",
    )
    add_predictions(evaluate)
    evaluate.add_argument(
        "-o", metavar="SUMMARY.json", help="summary; the other files go beside it (default: in PRED_FOLDER)"
    )
    add_processes(evaluate)
    evaluate.add_argument("--chill", action="store_true", help="cases without a prediction are no failure")
    add_overwrite(evaluate, "evaluate every case anew, and replace what is there, whatever it is")
    evaluate.add_argument(
        "--voxels",
        nargs="+",
        default=["foreground", "union", "near", "image"],
        choices=VOXELS,
        help="voxel sets (default: foreground union near image)",
    )
    evaluate.add_argument("--bins", type=int, default=15, metavar="M", help="confidence bins (default: %(default)s)")
    evaluate.add_argument(
        "--margin_mm",
        type=float,
        default=5.0,
        metavar="MM",
        help="how far the set near reaches beyond what the model may take for a structure (default: %(default)s)",
    )
    evaluate.add_argument("--surface", action="store_true", help="HD95, ASSD and normalized surface distance, too")
    evaluate.add_argument(
        "--tolerance_mm", type=float, default=1.0, metavar="MM", help="of the surface distance (default: %(default)s)"
    )
    evaluate.add_argument(
        "--protocol",
        choices=("standard", "paper"),
        default="standard",
        help="paper: as the code that the paper's numbers come from (default: %(default)s)",
    )
    add_ignore_geometry(evaluate)
    evaluate.add_argument(
        "--num_parts", type=int, default=1, metavar="N", help="divide the cases into N parts: SUMMARY_partIofN.json"
    )
    evaluate.add_argument("--part_id", type=int, default=0, metavar="I", help="and evaluate part I, from 0")
    evaluate.set_defaults(run=_evaluate, usage_error=evaluate.error)
    explain_voxels(evaluate)
    evaluate.add_section(
        "examples",
        [
            "nnunet_nacl evaluate labelsTs predictions",
            "nnunet_nacl evaluate labelsTs predictions --voxels near image --surface -np 4",
            "nnunet_nacl evaluate -d 4 -c 2d -tr nnUNetTrainerCE -f 0 1 2 3 4",
            "nnunet_nacl evaluate labelsTs predictions -o all.json --num_parts 2 --part_id 0    # all_part0of2.json",
        ],
    )

    merge = commands.add_parser("merge", help="put the results of parts or folders together")
    merge.add_argument(
        "summaries",
        nargs="+",
        metavar="SUMMARY",
        help="what evaluate has written; of parts, also the name without _partIofN",
    )
    merge.add_argument("-o", required=True, metavar="SUMMARY.json", help="the merged one; other files go beside it")
    merge.add_argument("--chill", action="store_true", help="cases without a prediction are no failure")
    add_overwrite(merge)
    merge.set_defaults(run=_merge)
    merge.add_section(
        "examples",
        [
            "nnunet_nacl merge all.json -o all.json              # all_part0of2.json and so on",
            "nnunet_nacl merge fold_0 fold_1 -o cross_validation.json",
        ],
    )


def _evaluate(options: argparse.Namespace) -> int:
    from nnunet_nacl.evaluation import SUMMARY_NAME, Settings, evaluate

    predictions = chosen_predictions(options)
    settings = Settings(
        voxels=tuple(options.voxels),
        num_bins=options.bins,
        margin_mm=options.margin_mm,
        surface=options.surface,
        tolerance_mm=options.tolerance_mm,
        protocol=options.protocol,
        ignore_geometry=options.ignore_geometry,
    )
    result = evaluate(
        predictions,
        settings,
        output=options.o,
        num_processes=num_processes(options),
        num_parts=options.num_parts,
        part_id=options.part_id,
        overwrite=options.overwrite,
    )
    name = Path(options.pred_folder).resolve().name if options.pred_folder else options.tr or "nnUNetTrainer"
    status = _print_result(name, result, result.file, forgive_missing=options.chill)
    if status == 0 and options.num_parts > 1:
        summary = shlex.quote(str(Path(options.o) if options.o else Path(str(result.file)).with_name(SUMMARY_NAME)))
        say_next(f"the other parts with the same -o, then nnunet_nacl merge {summary} -o {summary}")
    elif status == 0:
        evaluated = options.pred_folder if options.pred_folder and not options.o else str(result.file)
        say_next(f"nnunet_nacl report {shlex.quote(evaluated)}    # and further ones, to compare them")
    return status


def _merge(options: argparse.Namespace) -> int:
    from nnunet_nacl.evaluation import check_summary, merge_results, read_summary_or_parts

    check_summary(Path(options.o), overwrite=options.overwrite)
    result = merge_results([one for summary in options.summaries for one in read_summary_or_parts(summary)])
    result.write(options.o)
    status = _print_result(Path(options.o).stem, result, options.o, forgive_missing=options.chill)
    if status == 0:
        say_next(f"nnunet_nacl report {shlex.quote(options.o)}")
    return status


def _print_result(name: str, result: "FolderResult", file: "str | Path | None", *, forgive_missing: bool) -> int:
    """Print the table and what was skipped; returns the exit status."""
    from nnunet_nacl.evaluation import format_table

    if result.cases:
        print(format_table({name: result}))
    total = len(result.cases) + len(result.skipped)
    print(f"Evaluated {len(result.cases)} of {total} cases; all numbers are in {file}")
    for entry in result.skipped[:_SHOWN]:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    if len(result.skipped) > _SHOWN:
        print(f"skipped {len(result.skipped) - _SHOWN} more: all are in {file}", file=sys.stderr)
    failed = any(not (entry.missing and forgive_missing) for entry in result.skipped)
    return 1 if failed or not result.cases else 0
