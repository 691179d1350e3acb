"""The commands ``experiment`` and ``demo``."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nnunet_nacl.commands._shared import MAIN_PATH, Positive, allow_interrupts, find_device, say_next, wrong_usage


def experiment(
    study: str,
    *,
    d: str | None = None,
    c: str | None = None,
    p: str = "nnUNetPlans",
    f: Sequence[int] = (0,),
    methods: Sequence[str] | None = None,
    epochs: Positive | None = None,
    iterations: Positive | None = None,
    paper_schedule: bool = False,
    o: str = "nnunet_nacl_experiments",
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    np: Positive = 2,
    surface: bool = False,
    disable_tta: bool = False,
    chk: Literal["checkpoint_final.pth", "checkpoint_best.pth"] = "checkpoint_final.pth",
    keep: Literal["probabilities", "summaries"] = "probabilities",
    dry_run: bool = False,
    slurm: Sequence[str] | None = None,
    command_line: Sequence[str],
) -> int:
    """Train, predict, evaluate and report a comparison of methods on a data set of nnU-Net.

    Each method of the study is trained on each fold with nnU-Net's own commands; the test cases are predicted, if there
    are any, and evaluated. Run again, it goes on where it stopped. Without -d and -c it prints the study's table, to
    read or to copy.

    Args:
        study: main, hyperparameters, prior, sigma, penalty, constraint, samples, all of them (all), backbones, or
            FILE.yaml
        methods: METHOD or methods, by name or group, in place of all
        epochs: N epochs of each training (default: nnU-Net's 1000)
        iterations: N iterations of an epoch (default: nnU-Net's 250)
        paper_schedule: the paper's Adam, 100 epochs by default: the suffix _paperSchedule of all trainers
        o: FOLDER in which that of predictions, logs and reports is made
        np: N processes of predicting and evaluating
        disable_tta: predict test cases without mirroring
        keep: summaries: delete each run's probabilities once they are evaluated
        dry_run: only print what is done, running and left, as shell commands
        slurm: KEY=VALUE parameters of submitit, such as partition=gpu time=1440 gpus_per_node=1: submit to Slurm

    Examples:
        nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule
        nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule --dry_run
        nnunet_nacl experiment sigma > mine.yaml
        nnunet_nacl experiment mine.yaml -d 4 -c 3d_fullres --slurm partition=gpu
    """
    from nnunet_nacl import experiments

    own = study.endswith(".yaml")
    if d is None and c is None and not dry_run:
        print(Path(study if own else experiments.study_file(study)).read_text(encoding="utf-8"), end="")
        return 0
    if d is None or c is None:
        raise wrong_usage("the following arguments are required: -d, -c")
    if dry_run and slurm is not None:
        raise wrong_usage("--dry_run and --slurm do not go together.")
    if study == "all" and methods:
        raise wrong_usage("--methods does not go with all: methods differ between studies.")
    # "all" lacks the one that needs configurations which the plans may not have.
    names = [name for name in experiments.STUDIES if name != "backbones"] if study == "all" else [study]
    if slurm is None and (device == "auto" or not dry_run):
        where = find_device(device)
    else:  # that of another machine
        where = "cuda" if device == "auto" else device
    planned = [
        experiments.plan_experiment(
            experiments.read_study(name if own else experiments.study_file(name)).chosen(methods),
            d,
            c,
            plans=p,
            folds=f,
            budget=experiments.Budget(epochs, iterations, paper_schedule),
            options=experiments.Options(
                device=where,
                keep=keep,
                surface=surface,
                disable_tta=disable_tta,
                num_processes=np,
                checkpoint="best" if chk == "checkpoint_best.pth" else "final",
            ),
            output=o,
            skip_unsuitable=methods is None and not own,  # what users choose themselves is theirs
            command=shlex.join(command_line),
        )
        for name in names
    ]
    for note in dict.fromkeys(note for one in planned for note in one.notes):
        print(note, file=sys.stderr)
    if dry_run:
        experiments.print_commands(planned, [word for word in command_line if word != "--dry_run"])
        return 0
    if slurm is not None:
        pairs = [text.partition("=") for text in slurm]
        experiments.submit_experiments(
            planned, {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
        )
        print("The same command with --dry_run shows what is left; without --slurm it writes the reports.")
        return 0
    allow_interrupts()
    failures = experiments.run_experiments(planned)
    pages = [page for one in planned for page in experiments.report_experiment(one)]
    for job, failure in failures.items():
        print(f"\nfailed: {job.run}: {failure}", file=sys.stderr)
    if failures:
        print("Look into the logs named above; the same command does again what is left.", file=sys.stderr)
        return 1
    print(*(f"Open {page.resolve().as_uri()} in a browser" for page in pages), sep="\n")
    return 0


def demo(*, o: str = "nnunet_nacl_demo", device: Literal["auto", "cpu", "cuda"] = "auto") -> int:
    """Train, calibrate, predict and evaluate on a built-in data set, in minutes.

    Args:
        o: FOLDER to work in

    Examples:
        nnunet_nacl demo -o my_demo
    """
    from nnunet_nacl.demo import run_demo

    allow_interrupts()
    run_demo(o, device=find_device(device))
    say_next("the same with a model and data of your own:", *MAIN_PATH)
    return 0
