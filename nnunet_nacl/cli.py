"""The command ``nnunet_nacl``. Each subcommand imports what it needs when it runs, so that ``--help`` is instant."""

import argparse
import os
import sys
from collections.abc import Sequence

from nnunet_nacl import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (head, say) has seen enough; Python would complain again while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        print(f"nnunet_nacl {options.command}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nnnunet_nacl {options.command}: interrupted.", file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nnunet_nacl", description="Calibrated nnU-Net: NACL and baseline trainers, and calibration metrics."
    )
    parser.add_argument("--version", action="version", version=f"nnunet_nacl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train, predict and evaluate on a built-in data set, in minutes")
    demo.add_argument("-o", default="nnunet_nacl_demo", metavar="FOLDER", help="working folder (default: %(default)s)")
    demo.add_argument("-device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    demo.set_defaults(run=_demo)

    evaluate = commands.add_parser(
        "evaluate", help="calibration and Dice of a folder of predictions made with --save_probabilities"
    )
    evaluate.add_argument("gt_folder", help="folder with the reference segmentations")
    evaluate.add_argument("pred_folder", help="folder with the predicted segmentations and their .npz files")
    evaluate.add_argument("-djfile", metavar="FILE", help="dataset.json (default: the one in pred_folder)")
    evaluate.add_argument("-pfile", metavar="FILE", help="plans.json (default: the one in pred_folder, if any)")
    evaluate.add_argument("-o", metavar="FILE", help="summary (default: pred_folder/calibration_summary.json)")
    evaluate.set_defaults(run=_evaluate)

    trainers = commands.add_parser("trainers", help="list the trainers and the settings their names can carry")
    trainers.add_argument("--path", action="store_true", help="print the folder to put into nnUNet_extTrainer")
    trainers.set_defaults(run=_trainers)

    link = commands.add_parser("link", help="make nnU-Net's commands find the trainers, in this Python environment")
    link.set_defaults(run=_link)
    unlink = commands.add_parser("unlink", help="undo link")
    unlink.set_defaults(run=_unlink)

    export = commands.add_parser("export", help="copy a trained model so that a stock nnU-Net runs it")
    export.add_argument("model_folder", help="RESULTS/DATASET/TRAINER__PLANS__CONFIG")
    export.add_argument("-o", metavar="FOLDER", help="the copy (default: MODEL_FOLDER_stock)")
    export.set_defaults(run=_export)
    return parser


def _demo(options: argparse.Namespace) -> int:
    import signal

    from nnunet_nacl.demo import run_demo

    # However it is ended, it must end the nnU-Net command that is running. Shells start background jobs without SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    run_demo(options.o, device=options.device)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from pathlib import Path

    from nnunet_nacl.evaluation import SUMMARY_NAME, evaluate_folder, format_table

    result = evaluate_folder(options.gt_folder, options.pred_folder, dataset_json=options.djfile, plans=options.pfile)
    summary = Path(options.o) if options.o else Path(options.pred_folder) / SUMMARY_NAME
    result.write(summary)
    print(format_table({Path(options.pred_folder).resolve().name: result}))
    total = len(result.cases) + len(result.skipped)
    print(f"Evaluated {len(result.cases)} of {total} cases; all figures are in {summary}")
    for case, reason in result.skipped.items():
        print(f"nnunet_nacl evaluate: skipped {case}: {reason}", file=sys.stderr)
    return 1 if result.skipped else 0


def _trainers(options: argparse.Namespace) -> int:
    from nnunet_nacl.linking import trainers_path

    if options.path:
        print(trainers_path())
        return 0
    from nnunet_nacl.trainers import LOSSES, SCHEDULE_SUFFIXES, trainer_names

    print("Trainers (nnUNetTrainerDice... add nnU-Net's own Dice; nnUNetTrainerDiceCE is nnU-Net's default loss):")
    for name in trainer_names():
        print(f"    {name}")
    print(
        "\nSettings are suffixes of the name, in any order, with p for the decimal point, as in\n"
        "nnUNetTrainerNACL_weight0p2_gaussian_sigma2_100epochs:\n"
    )
    for name, loss in LOSSES.items():
        print(f"{name}: {loss.summary}")
        for setting in loss.settings:
            print(f"    _{setting.shown():<44} default {setting.default:<8} paper: {setting.paper}")
    print("all of them")
    for suffix, meaning in SCHEDULE_SUFFIXES.items():
        print(f"    _{suffix:<44} {meaning}")
    return 0


def _link(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import link

    print(link())
    return 0


def _unlink(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import unlink

    print(unlink())
    return 0


def _export(options: argparse.Namespace) -> int:
    from nnunet_nacl.export import NOTE_NAME, export_model

    output = export_model(options.model_folder, options.o)
    print(f"Wrote {output}. A stock nnU-Net runs it: see {NOTE_NAME} there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
