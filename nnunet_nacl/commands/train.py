"""The commands ``link``, ``export``, ``experiment`` and ``demo``."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Literal

from nnunet_nacl.commands._shared import MAIN_PATH, find_device, say_next


def link(*, remove: bool = False, list: bool = False) -> int:  # noqa: A002 - the option's name
    """Make nnU-Net's commands find NACL and our other trainers, in this Python environment.

    Once is enough. Then nnU-Net's own commands train and predict with nnUNetTrainerNACL, the baselines
    nnUNetTrainerCE, FL, ECP, LS, SVLS and MbLS, and each of them with nnU-Net's Dice loss (nnUNetTrainerDiceNACL).

    Args:
        remove: undo it
        list: only list the trainers and the settings that their names can carry

    Examples:
        nnunet_nacl link
        nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_paperSchedule
        nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_weight0p01_paperSchedule --npz
    """
    from nnunet_nacl import linking

    if list:
        _list_trainers()
    elif remove:
        print(f"Removed {linking.unlink()}")
    else:
        print(linking.link())
        say_next("nnUNetv2_train DATASET 2d 0 -tr nnUNetTrainerNACL_paperSchedule")
    return 0


def _list_trainers() -> None:
    from nnunet_nacl.trainers import LOSSES, SCHEDULE, default_of, trainer_names

    print(
        "Trainers (nnUNetTrainerDice... add nnU-Net's Dice loss; nnUNetTrainerDiceCE has nnU-Net's default loss):"
    )
    print(*(f"    {name}" for name in trainer_names()), sep="\n")
    print("\nSettings are suffixes of the name, in any order, with p as the decimal point, as in")
    print("nnUNetTrainerNACL_weight0p2_gaussian_sigma2_100epochs:\n")
    for name, loss in LOSSES.items():
        print(f"{name}: {loss.summary}")
        for setting in loss.settings:
            default = str(default_of(name, setting.name))
            print(f"    _{setting.shown():<44} default {default:<8} paper: {setting.about}")
    print("all of them")
    for setting in SCHEDULE:
        print(f"    _{setting.shown():<44} {setting.about}")


def export(model_folder: str) -> int:
    """Copy a trained model to MODEL_FOLDER_stock, which a stock nnU-Net can run.

    Args:
        model_folder: RESULTS/DATASET/TRAINER__PLANS__CONFIG
    """
    from nnunet_nacl.export import NOTE_NAME, export_model

    print(
        f"Wrote {export_model(model_folder)}. {NOTE_NAME} in it explains how to use it and what it needs."
    )
    return 0


def experiment(
    study: str,
    *,
    d: Sequence[str] | None = None,
    c: str | None = None,
    p: str = "nnUNetPlans",
    f: Sequence[int] = (0,),
    methods: Sequence[str] | None = None,
    epochs: int | None = None,
    iterations: int | None = None,
    paper_schedule: bool = False,
    batch_size: int | None = None,
    normalization: Literal["rescale_to_0_1"] | None = None,
    checkpoint: Literal["final", "best"] = "final",
    by_patient: str | bool = False,
    o: str = "nnunet_nacl_experiments",
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    no_surface: bool = False,
    dry_run: bool = False,
    command_line: Sequence[str],
) -> int:
    """Train, predict, evaluate and report a comparison of methods on one nnU-Net data set or several.

    It trains each method of the study on each fold with nnU-Net's own commands, then predicts and evaluates the test
    cases, if there are any. Several data sets follow one another and end in one report, with ranks over them. After an
    interruption, the same command resumes where it stopped. Without any option it prints the study's table, to read
    or to copy.

    Args:
        study: main, hyperparameters, prior, sigma, penalty, constraint, samples, all of them (all), backbones, or
            FILE.yaml
        d: DATASET or data sets, by name or number
        methods: METHOD or methods, by name or group, instead of all
        epochs: N epochs of each training (default: nnU-Net's 1000)
        iterations: N iterations per epoch (default: nnU-Net's 250)
        paper_schedule: the paper's Adam schedule, 100 epochs by default: adds the suffix _paperSchedule to all
            trainers, which must be ours
        batch_size: N images in a batch (the paper: 16); adds the configuration CONFIGURATION_bsN to the plans
        normalization: scale images to 0 ... 1 like the paper, by nnU-Net's scheme of that name; adds the configuration
            CONFIGURATION_rescale_to_0_1, to be preprocessed
        checkpoint: predict test cases with the last epoch, or with nnU-Net's best by its validation patches' Dice, much
            as in the paper
        by_patient: REGEX: the report resamples patients, not cases, and a share of the training cases (study samples)
            counts them; they are told from the cases' names as in 'paper split'
        o: FOLDER, parent of predictions, logs and reports
        dry_run: only print what is done, running and left to do, as shell commands; folds and configurations that
            are added go into splits_final.json and the plans all the same

    Examples:
        nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule --dry_run
        nnunet_nacl experiment main -d 4 27 51 -c 2d -f 0 1 2 3 4
        nnunet_nacl experiment sigma > mine.yaml
        nnunet_nacl experiment mine.yaml -d 4 -c 3d_fullres
    """
    from nnunet_nacl.paper.studies import studies_called

    studies = studies_called(study)
    if list(command_line[2:]) == [study]:
        print(*(one.text for one in studies), sep="\n", end="")
        return 0
    if d is None or c is None:
        raise argparse.ArgumentError(None, "the following arguments are required: -d, -c")
    if study == "all" and methods:
        raise argparse.ArgumentError(
            None, "--methods does not go with all: methods differ between studies."
        )
    from nnunet_nacl.paper import experiments
    from nnunet_nacl.trainers import schedule_suffix

    suffix = schedule_suffix(epochs=epochs, iterations=iterations, paper_schedule=paper_schedule)
    # What is printed may be for another machine
    where = device if dry_run and device != "auto" else find_device(device)
    options = experiments.Options(
        plans=p, folds=f, suffix=suffix, output=o, by_patient=by_patient, checkpoint=checkpoint,
        surface=not no_surface, device=where,
    )  # fmt: skip
    if methods:
        studies = [one.chosen(methods) for one in studies]
    planned, left_out = experiments.plan_on_data_sets(
        studies, d, c, options, batch_size=batch_size, normalization=normalization
    )
    for dataset, error in left_out.items():
        print(f"{dataset} is left out: {error}", file=sys.stderr)
    words = [word for word in command_line if word != "--dry_run"]
    if dry_run:
        failures = experiments.print_commands(planned, words)
    else:
        failures = experiments.run_experiments(planned)
        experiments.report_experiments(planned, shlex.join(words))
    for job, failure in failures.items():
        print(f"\nfailed: {job}: {failure}", file=sys.stderr)
    if failures and not dry_run:
        print(
            "Look into the logs named above; the same command runs what is left to do.",
            file=sys.stderr,
        )
    return 1 if failures or left_out else 0


def demo() -> int:
    """Compare nnU-Net's default loss and NACL on a built-in data set, in minutes, in the folder nnunet_nacl_demo.

    Both are trained side by side, predict, are evaluated and calibrated, and share one report.
    """
    from nnunet_nacl.demo import run_demo

    run_demo("nnunet_nacl_demo", device=find_device("auto"))
    say_next("do the same with your own data, here data set 4:", *MAIN_PATH)
    return 0
