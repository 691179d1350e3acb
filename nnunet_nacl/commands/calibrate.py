"""The commands ``calibrate fit`` and ``calibrate apply``."""

import argparse
import shlex

from nnunet_nacl.commands._shared import (
    Commands,
    add_ignore_geometry,
    add_overwrite,
    add_predictions,
    add_reading,
    chosen_predictions,
    explain_voxels,
    positive,
    say_next,
)

_VOXELS = ("near", "image", "union", "foreground")


def add(commands: Commands) -> None:
    """Add them to the command line."""
    calibrate = commands.add_parser(
        "calibrate",
        help="calibration after training: temperature, class-wise, vector and local scaling, isotonic regression",
    )
    actions = calibrate.add_subparsers(dest="action", required=True, metavar="fit|apply")
    fit = actions.add_parser(
        "fit",
        help="fit a method to predictions with ground truth",
        description="Fit a method to the validation cases of a model (-d -c -tr -p -f), or to a folder of predictions "
        "made with --save_probabilities (GT_FOLDER PRED_FOLDER). A model's validation cases have probabilities if it "
        "was trained with nnUNetv2_train --npz; for one that was not, 'nnUNetv2_train ... --val --npz' writes them.",
    )
    add_predictions(fit, trainer=None)
    fit.add_argument(
        "--method",
        choices=("temperature", "classwise", "vector", "irm", "local"),
        default="temperature",
        help="default: %(default)s",
    )
    fit.add_argument(
        "--voxels",
        choices=_VOXELS,
        help="which voxels to fit to (default: near; vector: image). union and foreground give a biased fit: the "
        "command says how much",
    )
    fit.add_argument(
        "--margin_mm",
        type=float,
        default=5.0,
        metavar="MM",
        help="near: distance from where the prediction gives the foreground more than 0.05 (default: %(default)s)",
    )
    fit.add_argument(
        "--samples",
        type=positive,
        metavar="N",
        help="how many voxels to draw (default: 2,000,000 / channels; local: 200,000 / channels, images included)",
    )
    fit.add_argument(
        "-i", metavar="IMAGES", help="only for the method local: folder of the images, which it then looks at, too"
    )
    fit.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of the draw and of the split (default: %(default)s)"
    )
    add_ignore_geometry(fit)
    fit.add_argument("-o", metavar="FILE.json", help="default: posthoc_METHOD.json beside the model or in PRED_FOLDER")
    add_overwrite(fit)
    fit.set_defaults(run=_calibrate_fit, usage_error=fit.error)
    explain_voxels(fit, *_VOXELS)
    fit.add_section(
        "examples",
        [
            "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerDiceCE --val --npz    # validation cases, with probabilities",
            "nnunet_nacl calibrate fit -d 4 -c 2d -tr nnUNetTrainerDiceCE -f 0",
            "nnunet_nacl calibrate fit labelsVal validation_predictions --method local -o local.json",
        ],
    )
    apply = actions.add_parser("apply", help="write a calibrated copy of a folder of predictions")
    apply.add_argument("fit", metavar="FIT.json", help="file that fit wrote")
    apply.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    apply.add_argument("-o", required=True, metavar="FOLDER", help="the calibrated copy")
    apply.add_argument("-i", metavar="IMAGES", help="folder of the images, if the fit looks at them")
    add_reading(apply)
    add_ignore_geometry(apply)
    apply.add_argument(
        "--force", action="store_true", help="apply it even to cases that it was fitted to, and mark the copy"
    )
    add_overwrite(apply, "replace a calibrated copy that is there, once the new one is whole")
    apply.set_defaults(run=_calibrate_apply)
    apply.add_section("example", ["nnunet_nacl calibrate apply posthoc_temperature.json predictions -o calibrated"])


def _calibrate_fit(options: argparse.Namespace) -> int:
    from nnunet_nacl.posthoc import fit

    result = fit(
        chosen_predictions(options),
        method=options.method,
        voxels=options.voxels,
        margin_mm=options.margin_mm,
        images=options.i,
        output=options.o,
        num_voxels=options.samples,
        seed=options.seed,
        overwrite=options.overwrite,
        ignore_geometry=options.ignore_geometry,
    )
    print(f"{result.summary()}\nWrote {result.file}")
    if result.skipped:
        return 1
    say_next(shlex.join(["nnunet_nacl", "calibrate", "apply", str(result.file)]) + " PREDICTIONS -o CALIBRATED")
    return 0


def _calibrate_apply(options: argparse.Namespace) -> int:
    from nnunet_nacl.posthoc import apply_folder

    applied = apply_folder(
        options.fit,
        options.pred_folder,
        options.o,
        images=options.i,
        dataset_json=options.djfile,
        plans=options.pfile,
        force=options.force,
        overwrite=options.overwrite,
        ignore_geometry=options.ignore_geometry,
    )
    print(applied.summary())
    if applied.skipped:
        return 1
    say_next(f"nnunet_nacl evaluate GT_FOLDER {shlex.quote(options.o)}")
    return 0
