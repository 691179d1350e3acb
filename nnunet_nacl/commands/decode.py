"""The command ``decode``."""

import argparse
import shlex

from nnunet_nacl.commands._shared import Commands, add_overwrite, add_processes, add_reading, num_processes, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    decode = commands.add_parser(
        "decode",
        help="segmentations with the highest expected Dice, or with a guaranteed recall",
        description="Write a folder of predictions whose segmentations are chosen for the metric that you are judged "
        "by, from the probabilities that nnU-Net saved.",
    )
    decode.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    decode.add_argument("-o", required=True, metavar="FOLDER", help="the decoded copy; probabilities are hard links")
    decode.add_argument(
        "--metric",
        choices=("dice", "recall"),
        default="dice",
        help="recall: at most a share alpha of each structure is missed, on average (default: %(default)s)",
    )
    decode.add_argument("--alpha", type=float, metavar="SHARE", help="for recall (default: 0.1)")
    decode.add_argument("--fit", metavar="FIT.json", help="for recall: what nnunet_nacl review fit has written")
    decode.add_argument("--force", action="store_true", help="for recall: even of cases that the fit is of")
    add_reading(decode)
    add_processes(decode)
    add_overwrite(decode, "replace an earlier decoded copy, once the new one is whole")
    decode.set_defaults(run=_decode, usage_error=decode.error)
    decode.add_section(
        "examples",
        [
            "nnunet_nacl decode calibrated -o for_dice",
            "nnunet_nacl decode calibrated -o for_recall --metric recall --alpha 0.1 --fit review_fit.json",
        ],
    )


def _decode(options: argparse.Namespace) -> int:
    if options.metric == "recall" and options.fit is None:
        options.usage_error("--metric recall needs --fit FIT.json, which nnunet_nacl review fit writes.")
    if options.metric == "dice" and (options.fit is not None or options.alpha is not None or options.force):
        options.usage_error("--fit, --alpha and --force are for --metric recall.")

    from nnunet_nacl.nnunet import PredictionFolder
    from nnunet_nacl.use import ReviewFit, decode_folder

    predictions = PredictionFolder.read(options.pred_folder, dataset_json=options.djfile, plans=options.pfile)
    recall = None
    if options.metric == "recall":
        alpha = 0.1 if options.alpha is None else options.alpha
        recall = ReviewFit.read(options.fit).recall_thresholds(predictions, alpha, force=options.force)
    decoded = decode_folder(
        predictions,
        options.o,
        recall=recall,
        num_processes=num_processes(options),
        overwrite=options.overwrite,
    )
    print(decoded.summary())
    if decoded.skipped:
        return 1
    say_next(f"nnunet_nacl evaluate GT_FOLDER {shlex.quote(options.o)}")
    return 0
