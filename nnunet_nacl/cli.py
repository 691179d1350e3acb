"""The command ``nnunet_nacl``. Each command imports what it needs when it runs, so ``--help`` is instant."""

import io
import sys
from collections.abc import Callable, Sequence

from nnunet_nacl import __version__
from nnunet_nacl.commands import MAIN_PATH, Command
from nnunet_nacl.commands.benchmark import (
    experiment,
    paper_convert,
    paper_logits,
    paper_networks,
    paper_split,
)
from nnunet_nacl.commands.calibrate import apply, calibrate
from nnunet_nacl.commands.measure import evaluate, plot, report, table
from nnunet_nacl.commands.train import demo, export, link
from nnunet_nacl.commands.use import decode, maps, review, review_fit

_GROUPS: dict[str, Sequence[Callable[..., int]]] = {
    "train with NACL and other losses": (link, export, demo),
    "measure": (evaluate, report, table, plot),
    "benchmark": (experiment, paper_convert, paper_split, paper_networks, paper_logits),
    "calibrate a trained nnU-Net, or its predictions": (calibrate, apply),
    "use the confidences": (review, review_fit, decode, maps),
}

COMMANDS = {command.name: command for group in _GROUPS.values() for command in map(Command, group)}
"""All commands by name, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = find_command(words)
    first = words[0] if words else ""
    if first in {"-h", "--help", "--version"}:
        print(f"nnunet_nacl {__version__}\n" if first == "--version" else overview(), end="")
        return 0
    if command is None:
        problem = f"there is no command {' '.join(words[:2])!r}" if words else "expected a command"
        print(f"nnunet_nacl: error: {problem}; nnunet_nacl --help lists them.", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a σ in a method's name must not stop the command
    try:
        return command.run(words[len(command.name.split()) :])
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        print(f"nnunet_nacl {command.name}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nnnunet_nacl {command.name}: interrupted.", file=sys.stderr)
        return 130


def find_command(words: Sequence[str]) -> Command | None:
    """Return the command that a command line begins with; None if there is none."""
    return COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(" ".join(words[:1]))


def overview() -> str:
    """Return the help of all commands."""
    lines = [
        "usage: nnunet_nacl COMMAND ... [--help] [--version]",
        "",
        "Train nnU-Net with neighbor-aware calibration (NACL); measure, compare, calibrate:",
        "",
        *(f"  {line}" for line in MAIN_PATH),
    ]
    for title, group in _GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {command.name:<14} {command.summary}" for command in map(Command, group)]
    return "\n".join(
        [*lines, "", "nnunet_nacl COMMAND --help shows options and examples of a command.", ""]
    )
