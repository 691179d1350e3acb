"""The commands ``paper …``: what repeating the paper needs besides experiments."""

import argparse
import sys
from collections.abc import Sequence

from nnunet_nacl.commands._shared import find_device


def paper_convert(name: str, source: str, *, d: int) -> int:
    """Convert a published data set to nnU-Net's raw format, in nnUNet_raw.

    Args:
        name: brats19 (exclusive classes), brats19_regions (nnU-Net's regions), flare21, kits19, mrbrains18 (three
            tissues) or mrbrains18_structures (eight)
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
    network: str | None = None,
    *,
    d: str | None = None,
    c: str | None = None,
    p: str = "nnUNetPlans",
    patch_size: Sequence[int] | None = None,
) -> int:
    """List networks other than nnU-Net's own, or add one to a data set's plans.

    It adds the configuration CONFIGURATION_NETWORK, which inherits everything from CONFIGURATION except the network
    and, where it would not fit, the batch size. nnU-Net trains and predicts with it as with any configuration.

    Args:
        network: network to add; omit to list them
        c: CONFIGURATION to inherit from, such as 2d
        patch_size: SIZES such as 64 48 (default: that of CONFIGURATION)

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

    added = add_network(network, d, c, plans=p, patch_size=patch_size)
    patch = "x".join(map(str, added.patch_size))
    print(
        f"Added the configuration {added.name} to {added.file}: {added.num_parameters / 1e6:.2f} million parameters,\n"
        f"batches of {added.batch_size} patches of {patch}, which need about {added.memory_gb:.1f} GB of GPU memory"
    )
    return 0


def paper_logits(
    model_folders: Sequence[str],
    *,
    f: Sequence[str] = ("0",),
    i: str | None = None,
    gt: str | None = None,
    o: str = "logits",
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
    if (i is None) != (gt is None):
        raise argparse.ArgumentError(None, "-i IMAGES goes with -gt LABELS.")
    from nnunet_nacl.paper.logits import compare_logits

    without = compare_logits(
        model_folders, o, folds=f, images=i, labels=gt, device=find_device("auto")
    )
    for name, reason in without.items():
        print(f"{name} is not in max_logits: {reason}", file=sys.stderr)
    print(f"Wrote {o}")
    return 0
