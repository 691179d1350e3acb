"""The command ``logits``."""

import argparse
import sys

from nnunet_nacl.commands._shared import Commands, add_checkpoint, add_overwrite, find_device


def add(commands: Commands) -> None:
    """Add it to the command line."""
    logits = commands.add_parser("logits", help="plots of what losses do to the logits, of one model or several")
    logits.add_argument(
        "model_folders", nargs="+", metavar="MODEL_FOLDER", help="RESULTS/DATASET/TRAINER__PLANS__CONFIG"
    )
    logits.add_argument("-f", default="0", metavar="FOLD", help="of each model (default: %(default)s)")
    add_checkpoint(logits)
    logits.add_argument("-i", metavar="IMAGES", help="labelled images (default: the fold's validation cases)")
    logits.add_argument("-gt", metavar="LABELS", help="their ground truth")
    logits.add_argument("--names", nargs="+", metavar="NAME", help="of the methods, one a model (default: trainers)")
    logits.add_argument("-device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="default: auto")
    logits.add_argument("-o", default="logits", metavar="FOLDER", help="default: %(default)s")
    add_overwrite(logits, "replace an earlier folder of plots, once the new one is whole")
    logits.set_defaults(run=_logits)
    logits.add_section(
        "example", ["nnunet_nacl logits RESULTS/DATASET/nnUNetTrainerCE__nnUNetPlans__2d -f 0 -o logits"]
    )


def _logits(options: argparse.Namespace) -> int:
    from nnunet_nacl.logits import compare_logits

    without = compare_logits(
        options.model_folders,
        options.o,
        fold=options.f,
        names=options.names,
        images=options.i,
        labels=options.gt,
        device=find_device(options.device),
        checkpoint=options.checkpoint,
        overwrite=options.overwrite,
    )
    for name, reason in without.items():
        print(f"{name} is not in max_logits: {reason}", file=sys.stderr)
    print(f"Wrote {options.o}")
    return 0
