"""The commands ``calibrate`` and ``apply``."""

import argparse
import shlex
import sys

from nnunet_nacl.commands._shared import (
    Commands,
    add_ignore_geometry,
    add_overwrite,
    add_predictions,
    add_processes,
    find_device,
    num_processes,
    say_next,
)


def add(commands: Commands) -> None:
    """Add them to the command line."""
    calibrate = commands.add_parser(
        "calibrate",
        help="calibrate a trained nnU-Net, in a checkpoint of its own or in its predictions",
        description="Calibrate a trained model (-d -c -f): each fold by its validation cases, in a checkpoint for "
        "nnUNetv2_predict -chk. Or, without the model, fit to predictions made with --save_probabilities and "
        "their ground truth (GT_FOLDER PRED_FOLDER -o FIT.json), for 'nnunet_nacl apply'. All methods are judged on "
        "held-out cases; the one with the lowest NLL is written.",
    )
    add_predictions(calibrate)
    calibrate.add_argument("-chk", metavar="CHECKPOINT", default="checkpoint_final.pth", help="default: %(default)s")
    calibrate.add_argument("-device", default="auto", help="cuda, cpu or mps (default: cuda if there is one)")
    calibrate.add_argument(
        "--disable_tta", action="store_true", help="calibrate for predictions with --disable_tta, without mirroring"
    )
    calibrate.add_argument(
        "--method",
        choices=("temperature", "vector", "head"),
        help="instead of the best: temperature keeps each voxel's label, head (models only) fits the last layer anew",
    )
    calibrate.add_argument(
        "--npz",
        action="store_true",
        help="predict the validation cases, too, each by a fit without it, into fold_X/validation_calibrated",
    )
    calibrate.add_argument(
        "-i", metavar="IMAGES", help="cases that no fold has seen, to calibrate the folds' ensemble (with -gt)"
    )
    calibrate.add_argument("-gt", "-l", metavar="LABELS", dest="labels", help="their ground truth")
    calibrate.add_argument("-o", metavar="FIT.json", help="of GT_FOLDER PRED_FOLDER: the file to write")
    add_processes(calibrate)
    add_ignore_geometry(calibrate)
    add_overwrite(calibrate)
    calibrate.set_defaults(run=_calibrate, usage_error=calibrate.error)
    calibrate.add_section(
        "examples",
        [
            "nnunet_nacl calibrate -d 4 -c 2d -f 0 1 2 3 4",
            "nnUNetv2_predict -d 4 -c 2d -i IMAGES -o predictions -chk checkpoint_calibrated.pth --save_probabilities",
            "nnunet_nacl calibrate labelsVal validation_predictions -o fit.json",
        ],
    )
    apply = commands.add_parser("apply", help="write a calibrated copy of a folder of predictions")
    apply.add_argument("fit", metavar="FIT.json", help="file that calibrate wrote")
    apply.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    apply.add_argument("-o", required=True, metavar="FOLDER", help="the calibrated copy")
    add_processes(apply)
    apply.add_argument("--force", action="store_true", help="apply it even to cases that it was fitted to")
    add_overwrite(apply, "replace files of the same names")
    apply.set_defaults(run=_apply)
    apply.add_section("example", ["nnunet_nacl apply fit.json predictions -o calibrated"])


def _calibrate(options: argparse.Namespace) -> int:
    return _calibrate_folder(options) if options.d is None else _calibrate_model(options)


def _calibrate_folder(options: argparse.Namespace) -> int:
    from nnunet_nacl.calibrate import calibrate_folder
    from nnunet_nacl.nnunet import Predictions

    if options.pred_folder is None or options.o is None:
        options.usage_error("expected either -d DATASET -c CONFIGURATION or GT_FOLDER PRED_FOLDER -o FIT.json.")
    if options.method == "head":
        options.usage_error("--method head needs the network: give the model (-d -c), not its predictions.")
    predictions = Predictions.of_folder(
        options.gt_folder, options.pred_folder, dataset_json=options.djfile, plans=options.pfile
    )
    fit = calibrate_folder(
        predictions,
        options.o,
        method=options.method,
        num_processes=num_processes(options),
        overwrite=options.overwrite,
        ignore_geometry=options.ignore_geometry,
    )
    print(f"{fit.table()}\n{fit.method.method}: {fit.method}\nWrote {options.o}")
    for entry in fit.skipped:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    if not fit.improves:
        print(f"{fit.method.method} does NOT improve the NLL on held-out cases.", file=sys.stderr)
        return 1
    say_next(shlex.join(["nnunet_nacl", "apply", options.o]) + " PREDICTIONS -o CALIBRATED")
    return 1 if fit.skipped else 0


def _calibrate_model(options: argparse.Namespace) -> int:
    from nnunet_nacl.calibrate import CALIBRATED_CHECKPOINT, ENSEMBLE_CHECKPOINT, calibrate_ensemble, calibrate_fold
    from nnunet_nacl.nnunet import model_folder

    if options.c is None or options.pred_folder is not None or options.o is not None:
        options.usage_error("-d DATASET goes with -c CONFIGURATION, and not with folders of predictions or -o.")
    if (options.i is None) != (options.labels is None):
        options.usage_error("-i IMAGES and -gt LABELS go together.")
    folds = options.f or ["0", "1", "2", "3", "4"]
    trainer, plans = options.tr or "nnUNetTrainer", options.p or "nnUNetPlans"
    model = model_folder(options.d, options.c, trainer=trainer, plans=plans)
    shared = {"checkpoint": options.chk, "device": find_device(options.device), "overwrite": options.overwrite,
              "use_mirroring": not options.disable_tta}  # fmt: skip
    status = 0
    for fold in folds:
        done = calibrate_fold(model, fold, method=options.method, save_probabilities=options.npz, **shared)
        print(f"fold {fold}, {len(done.fit.cases)} cases\n{done.fit.table()}")
        if not done.fit.improves:
            print(f"fold {fold}: {done.fit.method.method} does NOT improve the NLL on held-out cases.", file=sys.stderr)
            status = 1
        print(f"Wrote {done.checkpoint}" if done.checkpoint else "Wrote no checkpoint.")
    name = CALIBRATED_CHECKPOINT
    if options.i is not None:
        ensemble = calibrate_ensemble(model, folds, options.i, options.labels, **shared)
        print(f"folds {' '.join(folds)} together\n{ensemble.fit.table()}")
        if ensemble.checkpoints:
            name = ENSEMBLE_CHECKPOINT
            print(f"Wrote {name} of each fold.")
        else:
            print("The calibrated folds need no further calibration together.")
    elif len(folds) > 1:
        print("The folds' ensemble was not measured: give cases that no fold has seen (-i IMAGES -gt LABELS).")
    if status == 0:
        command = ["nnUNetv2_predict", "-d", options.d, "-c", options.c, "-f", *folds]
        command += ["-tr", trainer] if trainer != "nnUNetTrainer" else []
        command += ["-p", plans] if plans != "nnUNetPlans" else []
        command += ["--disable_tta"] if options.disable_tta else []
        say_next(shlex.join([*command, "-chk", name]) + " -i IMAGES -o PREDICTIONS --save_probabilities")
    return status


def _apply(options: argparse.Namespace) -> int:
    from nnunet_nacl.calibrate import apply_folder

    applied = apply_folder(
        options.fit,
        options.pred_folder,
        options.o,
        num_processes=num_processes(options),
        force=options.force,
        overwrite=options.overwrite,
    )
    print(f"Calibrated {len(applied.cases)} cases into {applied.output}.")
    if applied.fitted_to:
        print(f"{len(applied.fitted_to)} of them are cases that it was fitted to: they do not test it.")
    for entry in applied.skipped:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    if applied.skipped:
        return 1
    say_next(f"nnunet_nacl evaluate GT_FOLDER {shlex.quote(options.o)}")
    return 0
