"""What the benchmarks of trained models share."""

import re
import subprocess
from argparse import ArgumentParser, Namespace
from pathlib import Path


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


def revision() -> str:
    """The commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


SIGNS = {"weight": "λ", "sigma": "σ", "gamma": "γ", "alpha": "α", "margin": "m"}
"""Of the losses' settings."""


def loss_name(trainer: str) -> str:
    """How tables name a trainer's loss: as the study ``main``, whose ECP is that of the class mean."""
    loss = re.sub(r"_(paperSchedule|\d+epochs|\d+iterations)", "", trainer)
    loss = loss.removeprefix("nnUNetTrainer")
    setting = re.search(r"_(weight|sigma|gamma|alpha|margin)([\dp]+)$", loss)
    loss = loss[: setting.start()] if setting else loss
    loss = {
        "ECP": "ECP (sum)",
        "ECP_classMean": "ECP",
        "NACL_gaussian": "NACL Gaussian" if setting else "NACL Gaussian, σ = 1",
        "NACL_l2": "NACL l2",
        "NACL_softmax": "NACL softmax",
        "DiceACECE_hardBins": "DiceACECE, hard bins",
        "NACL_classSum": "NACL, equation 9 as printed",
        "NACL_borderBackground": "NACL, background around the image",
    }.get(loss, loss)
    return f"{loss}, {SIGNS[setting[1]]} = {setting[2].replace('p', '.')}" if setting else loss
