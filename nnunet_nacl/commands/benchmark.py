"""The commands to benchmark losses and repeat the paper: ``experiment`` and ``paper …``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nnunet_nacl.commands._arguments import Device, find_device
from nnunet_nacl.commands._output import print_skipped
from nnunet_nacl.commands._parser import CommandLine

Converter = Literal[
    "brats19", "brats19_regions", "flare21", "kits19", "mrbrains18", "mrbrains18_structures",
]  # fmt: skip
Network = Literal["unet", "attention_unet", "unet_plus_plus", "transunet", "swin_unetr"]


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
    device: Device = "auto",
    no_surface: bool = False,
    dry_run: bool = False,
    command_line: CommandLine,
) -> int:
    """Train, predict, evaluate and report a comparison of methods on one nnU-Net data set or several.

    It trains each method of the study on each fold with nnU-Net's own commands, then predicts and evaluates the test
    cases, if there are any. Several data sets follow one another and end in one report, with ranks over them. After an
    interruption, the same command resumes where it stopped. With no option but STUDY it prints the study's YAML file,
    to read or to copy (not of all, which is several studies).

    Args:
        study: main, hyperparameters, prior, sigma, penalty, constraint, samples, all of them (all), backbones, since,
            or FILE.yaml
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
            counts them; the cases' names give them as in 'paper split'
        o: FOLDER, parent of predictions, logs and reports
        dry_run: only print what is done and left to do, as shell commands; folds and configurations that are added go
            into splits_final.json and the plans all the same

    Examples:
        nnunet_nacl experiment main -d 4 -c 2d -f 0 --methods DiceCE CE NACL --paper_schedule --dry_run
        nnunet_nacl experiment main -d 4 27 51 -c 2d -f 0 1 2 3 4
        nnunet_nacl experiment sigma > mine.yaml
        nnunet_nacl experiment mine.yaml -d 4 -c 3d_fullres
    """
    from nnunet_nacl.paper.studies import STUDIES_OF_ALL, read_study, study_file

    if command_line[2:] == [study]:
        print(study_file(study).read_text(encoding="utf-8"), end="")
        return 0
    if d is None or c is None:
        raise argparse.ArgumentError(None, "the following arguments are required: -d, -c")
    studies = [read_study(name) for name in (STUDIES_OF_ALL if study == "all" else (study,))]
    if methods:
        studies = [one.chosen(methods) for one in studies]
    from nnunet_nacl.paper import experiments

    suffix = "_paperSchedule" if paper_schedule else ""
    suffix += "" if epochs is None else f"_{epochs}epochs"
    suffix += "" if iterations is None else f"_{iterations}iterations"
    options = experiments.Options(
        output=Path(o).absolute(), plans=p, folds=f, suffix=suffix, by_patient=by_patient,
        checkpoint=checkpoint, surface=not no_surface, device=find_device(device),
        batch_size=batch_size, normalization=normalization,
    )  # fmt: skip
    planned, left_out = experiments.plan_on_data_sets(studies, d, c, options)
    for dataset, error in left_out.items():
        print(f"{dataset} is left out: {error}", file=sys.stderr)
    if dry_run:
        words = [word for word in command_line if word != "--dry_run"]
        experiments.print_commands(planned, words)
        return 1 if left_out else 0
    failures = experiments.run_experiments(planned)
    experiments.report_experiments(planned)
    for job, failure in failures.items():
        print(f"\nfailed: {job}: {failure}", file=sys.stderr)
    if failures:
        print("The same command runs what is left to do.", file=sys.stderr)
    return 1 if failures or left_out else 0


def paper_convert(name: Converter, source: str, *, d: int) -> int:
    """Convert a published data set to nnU-Net's raw format, in nnUNet_raw.

    Args:
        name: brats19 has exclusive classes, brats19_regions nnU-Net's regions; mrbrains18 three tissues,
            mrbrains18_structures eight structures
        source: folder of the data set as downloaded and unpacked
        d: ID of the new data set
    """
    from nnunet_nacl.paper import datasets

    print(f"Wrote {datasets.convert(name, source, dataset_id=d)}")
    return 0


def paper_split(
    *,
    d: str,
    test: str | None = None,
    o: int | None = None,
    val: str | None = None,
    folds: int | None = None,
    by_patient: str | bool = False,
) -> int:
    """Make a labeled test set, and fixed training and validation cases.

    Args:
        test: N labeled test cases, or a share such as 20%, in a new data set; needs -o
        o: ID of the new data set; the old one stays unchanged
        val: N validation cases of the one fold in splits_final.json, or a share such as 20%
        folds: K folds of a cross-validation, instead; as many as there are cases leave one out
        by_patient: REGEX: N counts patients, and no patient is in two sets; the patient is the case's name up to the
            last underscore, or REGEX's first group

    Examples:
        nnunet_nacl paper split -d 21 -o 121 --test 80 --val 40    # a new data set, with a test set and one fold
        nnunet_nacl paper split -d 18 --folds 7                    # seven cases: each fold leaves one out
    """
    from nnunet_nacl.paper import datasets

    written = datasets.split(d, test=test, output_id=o, val=val, folds=folds, by_patient=by_patient)
    print(*(f"Wrote {path}" for path in written), sep="\n")
    return 0


def paper_networks(
    network: Network | None = None,
    *,
    d: str | None = None,
    c: str | None = None,
    p: str = "nnUNetPlans",
    patch_size: Sequence[int] | None = None,
    batch_size: int | None = None,
) -> int:
    """List networks other than nnU-Net's own, or add one to a data set's plans.

    It adds the configuration CONFIGURATION_NETWORK, which inherits everything from CONFIGURATION except the network.
    nnU-Net trains and predicts with it as with any configuration.

    Args:
        network: network to add; omit it to list them
        c: CONFIGURATION to inherit from, such as 2d
        patch_size: SIZES such as 64 48 (default: that of CONFIGURATION)
        batch_size: N images in a batch (default: that of CONFIGURATION)

    Examples:
        nnunet_nacl paper networks attention_unet -d 4 -c 2d
    """
    if network is None:
        from nnunet_nacl.paper.networks import NETWORKS

        for name, entry in NETWORKS.items():
            dimensions = " and ".join(f"{number}D" for number in entry.dimensions)
            print(
                f"{name:15} {entry.summary}\n{'':15} {dimensions}, patch sizes in multiples of {entry.multiple}"
            )
        return 0
    if d is None or c is None:
        raise argparse.ArgumentError(None, "NETWORK goes with -d DATASET -c CONFIGURATION.")
    from nnunet_nacl.paper.networks import add_network

    print(add_network(network, d, c, plans=p, patch_size=patch_size, batch_size=batch_size))
    return 0


def paper_logits(
    model_folders: Sequence[str],
    *,
    f: Sequence[str] = ("0",),
    i: str | None = None,
    gt: str | None = None,
    o: str = "logits",
    device: Device = "auto",
) -> int:
    """Plot the logits of one model or several: of the folds' validation cases, or of labeled test images.

    Args:
        model_folders: RESULTS/DATASET/TRAINER__PLANS__CONFIG
        i: IMAGES: their folder, instead of the validation cases (with -gt)
        gt: LABELS: folder with their ground truth
        o: FOLDER of the plots

    Examples:
        nnunet_nacl paper logits RESULTS/DATASET/nnUNetTrainerNACL__nnUNetPlans__2d -i imagesTs -gt labelsTs
    """
    from nnunet_nacl.paper.logits import compare_logits

    without, skipped = compare_logits(
        model_folders, o, folds=f, images=i, labels=gt, device=find_device(device)
    )
    for name, reason in without.items():
        print(f"{name} is not in max_logits: {reason}", file=sys.stderr)
    print(f"Wrote {o}")
    return print_skipped(skipped)
