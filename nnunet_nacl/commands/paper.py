"""The commands ``paper …``: what repeating the paper needs beside experiments."""

import argparse
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from nnunet_nacl.commands._shared import Positive, find_device, wrong_usage


def _sizes(text: str) -> tuple[int, ...]:
    """A patch size such as 64x48."""
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected sizes such as 64x48 or 32x64x64, got {text!r}")
    return tuple(map(int, parts))


def convert(
    name: Literal["brats19", "brats19_regions", "flare21", "kits19", "mrbrains18", "mrbrains18_structures"],
    source: str,
    *,
    d: int,
    overwrite: bool = False,
) -> int:
    """Convert a published data set to nnU-Net's raw format, in nnUNet_raw.

    Args:
        name: brats19 (exclusive classes), brats19_regions (nnU-Net's regions), flare21, kits19, mrbrains18 (three
            tissues) or mrbrains18_structures (eight)
        source: folder of the data set as downloaded and unpacked
        d: ID of the new data set, 1 to 999
        overwrite: replace an earlier conversion, once the new one is whole

    Examples:
        nnunet_nacl paper convert flare21 FLARE21 -d 21
    """
    from nnunet_nacl import datasets

    print(f"Wrote {datasets.convert(name, source, dataset_id=d, overwrite=overwrite)}")
    return 0


def split(
    *,
    d: str,
    test: str | None = None,
    o: int | None = None,
    val: str | None = None,
    folds: int | None = None,
    by_patient: str | bool = False,
    overwrite: bool = False,
) -> int:
    """Make a labelled test set, and fixed training and validation cases.

    Args:
        test: N labelled test cases, or a share such as 20%, in a new data set; needs -o
        o: ID of that new data set; the other is left alone
        val: N validation cases of the one fold in splits_final.json, or a share such as 20%
        folds: K folds of a cross-validation in splits_final.json
        by_patient: REGEX: N counts patients, none in two sets; the patient is the case's name up to the last
            underscore, or REGEX's first group
        overwrite: replace an earlier split, once the new one is whole

    Examples:
        nnunet_nacl paper split -d 21 -o 121 --test 80 --val 40    # a new data set, with a test set and one fold
        nnunet_nacl paper split -d 18 --folds 7                    # a cross-validation, for the data set as it is
    """
    if test is None and val is None and folds is None:
        raise wrong_usage("expected --test, --val or --folds.")
    if val is not None and folds is not None:
        raise wrong_usage("--val and --folds do not go together.")
    from nnunet_nacl.datasets import split_folds, split_test, splits_file

    if test is None or o is None:
        if test is not None or o is not None:
            raise wrong_usage("--test and -o go together: the split is a new data set.")
        file = split_folds(d, val=val, folds=folds, by_patient=by_patient, overwrite=overwrite)
        print(f"Wrote {file}")
        return 0
    folder = split_test(d, test=test, output_id=o, val=val, folds=folds, by_patient=by_patient, overwrite=overwrite)
    print(f"Wrote {folder}")
    if val is not None or folds is not None:
        print(f"Wrote {splits_file(folder)}")
    return 0


def networks(
    network: str | None = None,
    *,
    d: str | None = None,
    c: str | None = None,
    p: str = "nnUNetPlans",
    patch_size: Annotated[tuple[int, ...], _sizes] | None = None,
    batch_size: Positive | None = None,
    weights: str | None = None,
) -> int:
    """List networks beside nnU-Net's own, or add one to a data set's plans.

    It adds the configuration CONFIGURATION_NETWORK, which inherits all but the network from CONFIGURATION, and the
    batch size where that would not fit. nnU-Net trains and predicts with it as with any configuration.

    Args:
        network: to add, as listed without it
        c: CONFIGURATION to inherit from, such as 2d
        patch_size: SIZES such as 64x48 (default: that of CONFIGURATION)
        batch_size: N samples (default: that of CONFIGURATION, or as many as fit)
        weights: FILE for transunet: pretrained weights of timm's vit_base_r50_s16

    Examples:
        nnunet_nacl paper networks
        nnunet_nacl paper networks attention_unet -d 4 -c 2d
    """
    if network is None:
        from nnunet_nacl.networks import NETWORKS

        for name, one in NETWORKS.items():
            dimensions = " and ".join(f"{number}D" for number in one.dimensions)
            print(f"{name:15} {one.summary}\n{'':15} {dimensions}, patch sizes in multiples of {one.multiple}")
        return 0
    if d is None or c is None:
        raise wrong_usage("NETWORK goes with -d DATASET -c CONFIGURATION.")
    from nnunet_nacl.networks import add_network

    added = add_network(network, d, c, plans=p, patch_size=patch_size, batch_size=batch_size, weights=weights)
    print(
        f"Added the configuration {added.name} to {added.file}:\n"
        f"    inherits from {added.parent}\n"
        f"    network       {added.class_name}, {added.num_parameters / 1e6:.2f} million parameters\n"
        f"    patch size    {'x'.join(map(str, added.patch_size))}\n"
        f"    batch size    {added.batch_size}, for which about {added.memory_gb:.1f} GB of GPU memory are needed"
    )
    return 0


def logits(
    *model_folders: str,
    f: str = "0",
    chk: Literal["checkpoint_final.pth", "checkpoint_best.pth"] = "checkpoint_final.pth",
    i: str | None = None,
    gt: str | None = None,
    names: Sequence[str] | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    o: str = "logits",
    overwrite: bool = False,
) -> int:
    """Plot what losses do to the logits, of one model or several.

    Args:
        model_folders: RESULTS/DATASET/TRAINER__PLANS__CONFIG
        f: FOLD of each model
        i: IMAGES with labels (default: the fold's validation cases)
        gt: LABELS of those images
        names: NAME of each method, one for each model (default: trainers)
        o: FOLDER of the plots

    Examples:
        nnunet_nacl paper logits RESULTS/DATASET/nnUNetTrainerCE__nnUNetPlans__2d -f 0 -o logits
    """
    from nnunet_nacl.logits import compare_logits

    without = compare_logits(
        model_folders,
        o,
        fold=f,
        names=names,
        images=i,
        labels=gt,
        device=find_device(device),
        checkpoint="best" if chk == "checkpoint_best.pth" else "final",
        overwrite=overwrite,
    )
    for name, reason in without.items():
        print(f"{name} is not in max_logits: {reason}", file=sys.stderr)
    print(f"Wrote {o}")
    return 0
