"""The commands ``calibrate`` and ``apply``."""

import shlex
import sys
from collections.abc import Sequence
from typing import Literal

from nnunet_nacl.commands._shared import (
    chosen_predictions,
    find_device,
    num_processes,
    print_skipped,
    say_next,
    wrong_usage,
)


def calibrate(
    gt_folder: str | None = None,
    pred_folder: str | None = None,
    *,
    d: str | None = None,
    c: str | None = None,
    tr: str = "nnUNetTrainer",
    p: str = "nnUNetPlans",
    f: Sequence[str] = ("0", "1", "2", "3", "4"),
    chk: str = "checkpoint_final.pth",
    device: str = "auto",
    disable_tta: bool = False,
    method: Literal["temperature", "vector", "head"] | None = None,
    npz: bool = False,
    i: str | None = None,
    gt: str | None = None,
    o: str | None = None,
    overwrite: bool = False,
) -> int:
    """Calibrate a trained nnU-Net, in a checkpoint of its own or in its predictions.

    Calibrate a trained model (-d -c -f): each fold by its validation cases, in a checkpoint for nnUNetv2_predict -chk.
    Or, without the model, fit to predictions made with --save_probabilities and their ground truth (GT_FOLDER
    PRED_FOLDER -o FIT.json), for 'nnunet_nacl apply'. All methods are judged on held-out cases; the one with the lowest
    NLL is written.

    Args:
        disable_tta: calibrate for predictions with --disable_tta, without mirroring
        method: instead of the best: temperature keeps each voxel's label, head (models only) fits the last layer anew
        npz: predict the validation cases, too, each by a fit without it, into fold_X/validation_calibrated
        i: IMAGES of cases that no fold has seen, to calibrate the folds' ensemble (with -gt)
        gt: LABELS of those cases
        o: FIT.json, the file to write, for GT_FOLDER PRED_FOLDER

    Examples:
        nnunet_nacl calibrate -d 4 -c 2d -f 0 1 2 3 4
        nnUNetv2_predict -d 4 -c 2d -i IMAGES -o predictions -chk checkpoint_calibrated.pth --save_probabilities
        nnunet_nacl calibrate labelsVal validation_predictions -o fit.json
    """
    if d is None:
        if pred_folder is None or o is None:
            raise wrong_usage("expected either -d DATASET -c CONFIGURATION or GT_FOLDER PRED_FOLDER -o FIT.json.")
        if method == "head":
            raise wrong_usage("--method head needs the network: give the model (-d -c), not its predictions.")
        from nnunet_nacl.calibrate import calibrate_folder

        fit = calibrate_folder(
            chosen_predictions(gt_folder, pred_folder, d=d, c=c),
            o,
            method=method,
            num_processes=num_processes(),
            overwrite=overwrite,
        )
        print(f"{fit.table()}\n{fit.method.method}: {fit.method}\nWrote {o}")
        status = print_skipped(fit.skipped)
        if not fit.improves:
            print(f"{fit.method.method} does NOT improve the NLL on held-out cases.", file=sys.stderr)
            return 1
        say_next(shlex.join(["nnunet_nacl", "apply", o]) + " PREDICTIONS -o CALIBRATED")
        return status

    if c is None or gt_folder is not None or o is not None:
        raise wrong_usage("-d DATASET goes with -c CONFIGURATION, and not with folders of predictions or -o.")
    if (i is None) != (gt is None):
        raise wrong_usage("-i IMAGES and -gt LABELS go together.")
    from nnunet_nacl.calibrate import ENSEMBLE_CHECKPOINT, calibrate_ensemble, calibrate_fold
    from nnunet_nacl.nnunet import model_folder

    model, where = model_folder(d, c, trainer=tr, plans=p), find_device(device)
    status, name = 0, "checkpoint_calibrated.pth"
    for fold in f:
        fitted, written = calibrate_fold(
            model,
            fold,
            checkpoint=chk,
            device=where,
            method=method,
            use_mirroring=not disable_tta,
            save_probabilities=npz,
            overwrite=overwrite,
        )
        print(f"fold {fold}, {len(fitted.cases)} cases\n{fitted.table()}")
        if not fitted.improves:
            print(f"fold {fold}: {fitted.method.method} does NOT improve the NLL on held-out cases.", file=sys.stderr)
            status = 1
        print(f"Wrote {written}" if written else "Wrote no checkpoint.")
    if i is not None and gt is not None:
        together, checkpoints = calibrate_ensemble(
            model, f, i, gt, checkpoint=chk, device=where, use_mirroring=not disable_tta, overwrite=overwrite
        )
        print(f"folds {' '.join(f)} together\n{together.table()}")
        if checkpoints:
            name = ENSEMBLE_CHECKPOINT
            print(f"Wrote {name} of each fold.")
        else:
            print("The calibrated folds need no further calibration together.")
    elif len(f) > 1:
        print("The folds' ensemble was not measured: give cases that no fold has seen (-i IMAGES -gt LABELS).")
    if status == 0:
        command = ["nnUNetv2_predict", "-d", d, "-c", c, "-f", *f]
        command += ["-tr", tr] if tr != "nnUNetTrainer" else []
        command += ["-p", p] if p != "nnUNetPlans" else []
        command += ["--disable_tta"] if disable_tta else []
        command += ["-chk", name] + (["-device", where] if where != "cuda" else [])
        say_next(shlex.join(command) + " -i IMAGES -o PREDICTIONS --save_probabilities")
    return status


def apply(fit: str, pred_folder: str, *, o: str, overwrite: bool = False) -> int:
    """Write a calibrated copy of a folder of predictions.

    Args:
        fit: file that calibrate has written
        o: FOLDER of the calibrated copy

    Examples:
        nnunet_nacl apply fit.json predictions -o calibrated
    """
    from nnunet_nacl.calibrate import apply_folder

    cases, skipped = apply_folder(fit, pred_folder, o, num_processes=num_processes(), overwrite=overwrite)
    print(f"Calibrated {len(cases)} cases into {o}.")
    if skipped:
        return print_skipped(skipped)
    say_next(f"nnunet_nacl evaluate GT_FOLDER {shlex.quote(o)}")
    return 0
