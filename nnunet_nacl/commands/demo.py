"""The command ``demo``."""

import argparse

from nnunet_nacl.commands._shared import FIRST_COMMANDS, Commands, allow_interrupts, find_device, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    demo = commands.add_parser("demo", help="train, predict and evaluate on a built-in data set, in minutes")
    demo.add_argument("-o", default="nnunet_nacl_demo", metavar="FOLDER", help="working folder (default: %(default)s)")
    demo.add_argument("-device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    demo.set_defaults(run=_demo)
    demo.add_section("example", ["nnunet_nacl demo -o my_demo"])


def _demo(options: argparse.Namespace) -> int:
    from nnunet_nacl.demo import run_demo

    allow_interrupts()
    run_demo(options.o, device=find_device(options.device))
    say_next("the same with a data set of your own that nnU-Net has planned and preprocessed:", *FIRST_COMMANDS)
    return 0
