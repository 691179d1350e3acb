"""The command ``evaluate``."""

import shlex
from typing import Literal

from nnunet_nacl.commands._arguments import Chosen, num_processes
from nnunet_nacl.commands._output import print_skipped
from nnunet_nacl.paths import unresolved


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
    whole = o or chosen.pred_folder or str(result.file)
    report = f"nnunet_nacl report {shlex.quote(whole)}"
    print(f"Next:\n    {report}    # add other folders to compare them")
    return 0
