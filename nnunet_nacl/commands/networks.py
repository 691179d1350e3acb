"""The command ``networks``."""

import argparse

from nnunet_nacl.commands._shared import Commands, positive, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    networks = commands.add_parser("networks", help="list networks beside nnU-Net's own, or add one to the plans")
    networks.set_defaults(run=_list)
    actions = networks.add_subparsers(metavar="add")
    adding = actions.add_parser(
        "add",
        help="add a configuration with another network to a data set's plans",
        description="Add the configuration CONFIGURATION_NETWORK to the plans. It inherits all but the network, "
        "and the batch size where that would not fit. nnU-Net trains and predicts with it as with any configuration.",
    )
    adding.add_argument("network", metavar="NETWORK", help="as listed by nnunet_nacl networks")
    adding.add_argument("-d", required=True, metavar="DATASET", help="name or number")
    adding.add_argument("-c", required=True, metavar="CONFIGURATION", help="which to inherit from, such as 2d")
    adding.add_argument("-p", metavar="PLANS", default="nnUNetPlans", help="default: %(default)s")
    adding.add_argument(
        "--patch_size", type=_sizes, metavar="NxN", help="such as 64x48 (default: that of CONFIGURATION)"
    )
    adding.add_argument(
        "--batch_size", type=positive, metavar="N", help="default: that of CONFIGURATION, or as many as fit"
    )
    adding.add_argument("--weights", metavar="FILE", help="transunet: pretrained weights of timm's vit_base_r50_s16")
    adding.set_defaults(run=_add)
    networks.add_section("examples", ["nnunet_nacl networks", "nnunet_nacl networks add -d 4 -c 2d attention_unet"])


def _sizes(text: str) -> tuple[int, ...]:
    """An option's sizes, such as 64x48."""
    try:
        return tuple(positive(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected sizes such as 64x48 or 32x64x64, got {text!r}") from None


def _list(_: argparse.Namespace) -> int:
    from nnunet_nacl.networks import NETWORKS

    print("Networks that a configuration of the plans can have, beside nnU-Net's own:\n")
    for name, network in NETWORKS.items():
        dimensions = " and ".join(f"{number}D" for number in network.dimensions)
        print(f"{name:15} {network.summary}\n{'':15} {dimensions}, patch sizes in multiples of {network.multiple}")
    print(
        "\nTo add the configuration 2d_attention_unet to the plans of data set 4:\n\n"
        "    nnunet_nacl networks add -d 4 -c 2d attention_unet"
    )
    return 0


def _add(options: argparse.Namespace) -> int:
    from nnunet_nacl.networks import add_network

    added = add_network(
        options.network,
        options.d,
        options.c,
        plans=options.p,
        patch_size=options.patch_size,
        batch_size=options.batch_size,
        weights=options.weights,
    )
    print(
        f"Added the configuration {added.name} to {added.file}:\n"
        f"    inherits from {added.parent}\n"
        f"    network       {added.class_name}, {added.num_parameters / 1e6:.2f} million parameters\n"
        f"    patch size    {'x'.join(map(str, added.patch_size))}\n"
        f"    batch size    {added.batch_size}, for which about {added.memory_gb:.1f} GB of GPU memory are needed"
    )
    say_next(f"train it as any other: nnUNetv2_train {options.d} {added.name} 0 -p {options.p} -tr nnUNetTrainerNACL")
    return 0
