"""The command ``experiment``."""

import argparse
import shlex
import sys
from pathlib import Path

from nnunet_nacl.commands._shared import Commands, add_checkpoint, allow_interrupts, find_device, positive, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    experiment = commands.add_parser(
        "experiment",
        help="train, predict, evaluate and report a comparison of methods on a data set of nnU-Net",
        description="Carry out a study: train each of its methods on each fold with nnU-Net's own commands, predict "
        "the test cases if there are any, evaluate, and write the report. Run again, it goes on where it stopped.",
    )
    experiment.add_argument(
        "study",
        metavar="STUDY",
        help="main, hyperparameters, prior, sigma, penalty, constraint, samples, all of them (all), backbones, or "
        "FILE.yaml",
    )
    experiment.add_argument("-d", metavar="DATASET", help="name or number")
    experiment.add_argument("-c", metavar="CONFIGURATION", help="such as 2d or 3d_fullres")
    experiment.add_argument("-p", metavar="PLANS", default="nnUNetPlans", help="default: %(default)s")
    experiment.add_argument("-f", nargs="+", type=int, metavar="FOLD", default=[0], help="numbers; default: 0")
    experiment.add_argument("--methods", nargs="+", metavar="METHOD", help="only these, by name or group")
    experiment.add_argument("--epochs", type=positive, metavar="N", help="of each training (default: nnU-Net's 1000)")
    experiment.add_argument("--iterations", type=positive, metavar="N", help="of an epoch (default: nnU-Net's 250)")
    experiment.add_argument("--paper_schedule", action="store_true", help="the paper's Adam, 100 epochs by default")
    experiment.add_argument(
        "-o",
        metavar="FOLDER",
        default="nnunet_nacl_experiments",
        help="where the folder of predictions, logs, reports is made (default: nnunet_nacl_experiments)",
    )
    experiment.add_argument("-device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="default: auto")
    experiment.add_argument("-np", type=positive, default=2, metavar="N", help="processes of predicting, evaluating")
    experiment.add_argument("--surface", action="store_true", help="HD95, ASSD and normalized surface distance, too")
    experiment.add_argument("--disable_tta", action="store_true", help="predict test cases without mirroring")
    add_checkpoint(experiment)
    experiment.add_argument(
        "--keep",
        choices=("probabilities", "summaries"),
        default="probabilities",
        help="summaries: delete each run's probabilities once they are evaluated (default: %(default)s)",
    )
    experiment.add_argument("--show", action="store_true", help="only print the study's table, to read or to copy")
    executor = experiment.add_mutually_exclusive_group()
    executor.add_argument(
        "--dry_run", action="store_true", help="only print what is done, running and left, as shell commands"
    )
    executor.add_argument(
        "--slurm",
        nargs="*",
        metavar="KEY=VALUE",
        help="submit to Slurm, with parameters of submitit such as partition=gpu time=1440 gpus_per_node=1",
    )
    experiment.set_defaults(run=_experiment, usage_error=experiment.error)
    experiment.add_section(
        "examples",
        [
            "nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule",
            "nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule --dry_run",
            "nnunet_nacl experiment sigma --show > mine.yaml",
            "nnunet_nacl experiment mine.yaml -d 4 -c 3d_fullres --slurm partition=gpu",
        ],
    )


def _experiment(options: argparse.Namespace) -> int:
    from nnunet_nacl import experiments

    if options.show:
        file = options.study if options.study.endswith(".yaml") else experiments.study_file(options.study)
        print(Path(file).read_text(encoding="utf-8"), end="")
        return 0
    if options.d is None or options.c is None:
        options.usage_error("the following arguments are required: -d, -c")
    if options.study == "all" and options.methods:
        options.usage_error("--methods does not go with all: methods differ between studies.")
    names = [options.study]
    if options.study == "all":  # but the one that needs configurations which the plans may not have
        names = [name for name in experiments.STUDIES if name != "backbones"]
    files = [name if name.endswith(".yaml") else experiments.study_file(name) for name in names]
    # A table of the user's own, or --methods, is the user's choice; a built-in study is not.
    skip_unsuitable = options.methods is None and not options.study.endswith(".yaml")
    device = options.device
    if options.slurm is None and (device == "auto" or not options.dry_run):
        device = find_device(device)
    elif device == "auto":  # not this machine's
        device = "cuda"
    planned = [
        experiments.plan_experiment(
            experiments.read_study(file).chosen(options.methods),
            options.d,
            options.c,
            plans=options.p,
            folds=options.f,
            budget=experiments.Budget(options.epochs, options.iterations, options.paper_schedule),
            options=experiments.Options(
                device=device,
                keep=options.keep,
                surface=options.surface,
                disable_tta=options.disable_tta,
                num_processes=options.np,
                checkpoint=options.checkpoint,
            ),
            output=options.o,
            skip_unsuitable=skip_unsuitable,
            command=shlex.join(["nnunet_nacl", *options.arguments]),
        )
        for file in files
    ]
    for note in dict.fromkeys(note for experiment in planned for note in experiment.notes):
        print(note, file=sys.stderr)
    if options.dry_run:
        arguments = [argument for argument in options.arguments if argument != "--dry_run"]
        experiments.print_commands(planned, ["nnunet_nacl", *arguments])
        return 0
    if options.slurm is not None:
        pairs = [text.partition("=") for text in options.slurm]
        parameters = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
        experiments.submit_experiments(planned, parameters)
        say_next("the same command with --dry_run shows what is left; without --slurm it writes the reports")
        return 0
    allow_interrupts()
    failures = experiments.run_experiments(planned)
    pages = [page for experiment in planned for page in experiments.report_experiment(experiment)]
    for job, failure in failures.items():
        print(f"\nfailed: {job.run}: {failure}", file=sys.stderr)
    if failures:
        say_next("look into the logs named above; the same command does again what is left")
        return 1
    say_next(*(f"open {page.resolve().as_uri()} in a browser" for page in pages))
    return 0
