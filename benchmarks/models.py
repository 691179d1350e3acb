"""What the benchmarks of trained models share."""

import re
from argparse import ArgumentParser, Namespace


def add_model(parser: ArgumentParser, *, several_folds: bool = False) -> None:
    """The arguments that name a trained model."""
    for name in ("data_set", "configuration", "trainer"):
        parser.add_argument(name)
    parser.add_argument("fold", nargs="+" if several_folds else None)
    parser.add_argument(
        "--training", default="1", help="a number that tells repeated trainings apart"
    )


def of_model(options: Namespace) -> list[str]:
    """The options by which nnU-Net's commands and ours name a model's fold, or folds."""
    folds = [options.fold] if isinstance(options.fold, str) else options.fold
    names = ["-d", options.data_set, "-c", options.configuration, "-tr", options.trainer]
    return [*names, "-f", *folds]


def loss_name(trainer: str) -> str:
    """How tables name a trainer's loss: as the study ``main``, whose ECP is that of the class mean."""
    loss = re.sub(r"_(paperSchedule|\d+epochs|\d+iterations)", "", trainer)
    loss = loss.removeprefix("nnUNetTrainer")
    loss = {
        "ECP": "ECP (sum)",
        "ECP_classMean": "ECP",
        "NACL_gaussian": "NACL Gaussian, σ = 1",
        "NACL_l2": "NACL l2",
        "NACL_softmax": "NACL softmax",
    }.get(loss, loss)
    loss = re.sub(r"^NACL_gaussian_sigma(\d)$", r"NACL Gaussian, σ = \1", loss)
    loss = re.sub(r"^SVLS_sigma(\d)$", r"SVLS, σ = \1", loss)
    return re.sub(r"^NACL_weight(\d)p(\d+)$", r"NACL, λ = \1.\2", loss)
