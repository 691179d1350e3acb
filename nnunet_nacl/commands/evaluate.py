"""The command ``evaluate``."""

import shlex
from typing import Literal

from nnunet_nacl.commands._chosen import Chosen
from nnunet_nacl.commands._machine import num_processes
from nnunet_nacl.commands._said import print_skipped, say_next
from nnunet_nacl.files import unresolved


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
    chill: bool = False,
    num_parts: int = 1,
    part_id: int = 0,
    ignore_geometry: bool = False,
    overwrite: bool = False,
) -> int:
    """Measure calibration and segmentation of predictions.

    Evaluate a folder of predictions made with --save_probabilities (GT_FOLDER PRED_FOLDER), or the validation cases of
    a model trained with --npz (-d -c -tr -p -f). After an interruption, the same command resumes where it stopped.

    Args:
        o: SUMMARY.json; the other files go beside it (default: in PRED_FOLDER)
        bins: M confidence bins
        margin: MM that near extends around foreground probabilities above 0.05; or pixels, without spacing
        protocol: authors: bins and number of classes as in the paper's authors' code (not its Dice, HD or rounding)
        chill: do not fail on cases without prediction or without ground truth
        num_parts: N parts of the cases, in SUMMARY_partIofN.json; report and table read them all as SUMMARY.json
        part_id: I, the part to evaluate, counted from 0
        overwrite: evaluate every case again and replace existing files

    Examples:
        nnunet_nacl evaluate labelsTs predictions -np 4
        nnunet_nacl evaluate -d 4 -c 2d -tr nnUNetTrainerCE -f 0 1 2 3 4
        nnunet_nacl evaluate labelsTs predictions -o all.json --num_parts 2 --part_id 0    # all_part0of2.json
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
        num_parts=num_parts,
        part_id=part_id,
        overwrite=overwrite,
    )
    if result.cases:
        folder = chosen.pred_folder
        name = chosen.tr if folder is None else unresolved(folder).name
        print(evaluation.format_table({name: result}))
        for note in result.notes:
            print(f"Note: {note}")
    total = len(result.cases) + len(result.skipped)
    print(f"Evaluated {len(result.cases)} of {total} cases; all numbers are in {result.file}")
    forgiven = [entry for entry in result.skipped if entry.missing and chill]
    if forgiven:
        print(f"{len(forgiven)} cases lack prediction or ground truth, such as {forgiven[0].case}.")
    status = print_skipped(entry for entry in result.skipped if entry not in forgiven)
    if status or (total and not result.cases):  # there may be fewer cases than parts
        return 1
    whole = o or chosen.pred_folder or str(evaluation.default_summary(predictions.pred_folders))
    then = "add other folders to compare them" if num_parts == 1 else "when all parts are there"
    say_next(f"nnunet_nacl report {shlex.quote(whole)}    # {then}")
    return 0
