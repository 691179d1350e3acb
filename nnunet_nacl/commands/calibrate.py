"""The commands ``calibrate`` and ``apply``."""

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Literal

from nnunet_nacl.commands._arguments import Chosen, Device, find_device, num_processes
from nnunet_nacl.commands._output import print_skipped

if TYPE_CHECKING:
    from nnunet_nacl.calibrate import Fit

_USAGE = (
    "-d DATASET -c CONFIGURATION [-i IMAGES -gt LABELS] or, without head, GT_FOLDER PRED_FOLDER "
    "-o FIT.json"
)


def calibrate(
    chosen: Chosen,
    *,
    chk: str = "checkpoint_final.pth",
    device: Device = "auto",
    disable_tta: bool = False,
    method: Literal["temperature", "head"] | None = None,
    npz: bool = False,
    by_patient: str | bool = False,
    i: str | None = None,
    gt: str | None = None,
    o: str | None = None,
    overwrite: bool = False,
) -> int:
    """Calibrate a trained nnU-Net, in a separate checkpoint or in its predictions.

    With -d -c -f, calibrate each fold of a trained model on its validation cases and write a checkpoint for
    nnUNetv2_predict -chk. With GT_FOLDER PRED_FOLDER -o FIT.json, fit without the model to predictions made with
    --save_probabilities and their ground truth, for 'nnunet_nacl apply'. Calibration changes how sure nnU-Net is, but
    hardly what it segments. All methods are judged on held-out cases. The best of those that lower the NLL, with a 95 %
    interval below 0, and keep the Dice is written; if there is none, the checkpoint holds the layer as trained.

    Args:
        chk: file name of the checkpoint to calibrate
        disable_tta: calibrate for predictions with --disable_tta, without mirroring
        method: force this method; temperature keeps the labels up to rounding, head (models only) refits the last layer
        npz: also predict each validation case with a fit that excluded it; writes fold_X/validation_calibrated
        i: IMAGES of cases that no fold has seen, in place of validation cases (with -gt); needed for fold all
        gt: LABELS of these cases
        o: FIT.json, the file to write, with GT_FOLDER PRED_FOLDER
        overwrite: replace all that an earlier calibration wrote

    Examples:
        nnunet_nacl calibrate -d 4 -c 2d -f 0 1 2
        nnUNetv2_predict -d 4 -c 2d -f 0 1 2 -i IMAGES -o OUTPUT -chk checkpoint_calibrated.pth --save_probabilities
        nnunet_nacl calibrate labelsVal validation_predictions -o fit.json
    """
    if chosen.pred_folder is not None and o is not None:
        from nnunet_nacl.calibrate import AS_TRAINED, calibrate_folder

        fit = calibrate_folder(
            chosen.predictions(), o, method=method, by_patient=by_patient,
            num_processes=num_processes(), overwrite=overwrite,
        )  # fmt: skip
        _print_fit("predictions", fit, o)
        if fit.calibration.method != AS_TRAINED.method:
            print(f"Next:\n    nnunet_nacl apply {shlex.quote(o)} PREDICTIONS -o CALIBRATED")
        return print_skipped(fit.skipped)
    if o is not None or (i is None) != (gt is None):
        raise argparse.ArgumentError(None, f"expected either {_USAGE}.")
    chosen.check_model(_USAGE)
    from nnunet_nacl.calibrate import calibrate_model
    from nnunet_nacl.nnunet import FOLD_CHECKPOINT

    on_device = find_device(device)
    fits = calibrate_model(
        chosen.model, chosen.f, images=i, gt_folder=gt, checkpoint=chk, device=on_device, use_mirroring=not disable_tta,
        method=method, by_patient=by_patient, save_probabilities=npz, overwrite=overwrite,
    )  # fmt: skip
    status = 0
    done = []
    for fold in dict.fromkeys(chosen.f):
        try:
            fit, file = next(fits)
        except (OSError, RuntimeError, ValueError) as error:  # PyTorch's, as of a GPU's memory
            print(f"fold {fold} was not calibrated: {error}", file=sys.stderr)
            status = 1
            continue
        _print_fit(f"fold {fold}", fit, file)
        status |= print_skipped(fit.skipped)
        done.append(fold)
    if done:
        words = ["-d", chosen.d, "-c", chosen.c, "-tr", chosen.tr, "-p", chosen.p, "-f", *done]
        model = shlex.join(words)
        how = f"-device {on_device}{' --disable_tta' if disable_tta else ''}"
        print(
            f"Next:\n    nnUNetv2_predict {model} -chk {FOLD_CHECKPOINT} {how} --save_probabilities -i IMAGES "
            "-o PREDICTIONS"
        )
        if npz:
            print(f"    nnunet_nacl evaluate {model} --calibrated")
    return status


def _print_fit(what: str, fit: "Fit", written: object) -> None:
    """Print what was tried and written."""
    from nnunet_nacl.calibrate import AS_TRAINED

    print(f"{what}, {len(fit.provenance.cases)} cases\n{fit.table()}")
    if fit.calibration.method == AS_TRAINED.method:
        print(
            "No method lowered the held-out NLL, with a 95 % interval below 0, and kept the Dice: the logits stay as "
            "they are."
        )
    else:
        for problem in fit.tried[fit.calibration.method].shortcomings(fit.tried[AS_TRAINED.method]):
            print(f"{what}: {fit.calibration.method} {problem}.", file=sys.stderr)
    print(f"Wrote {written}")


def apply(fit: str, pred_folder: str, *, o: str, overwrite: bool = False) -> int:
    """Write a calibrated copy of a folder of predictions.

    Args:
        fit: file that calibrate wrote
        o: FOLDER of the calibrated copy
        overwrite: write into an existing folder, and replace these cases there
    """
    from nnunet_nacl.calibrate import apply_folder

    done = apply_folder(fit, pred_folder, o, num_processes=num_processes(), overwrite=overwrite)
    print(done.summary())
    print(f"Next:\n    nnunet_nacl evaluate GT_FOLDER {shlex.quote(o)}")
    return print_skipped(done.skipped)
