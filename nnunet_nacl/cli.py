"""The command ``nnunet_nacl``. Each subcommand imports what it needs when it runs, so that ``--help`` is instant."""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnunet_nacl import __version__
from nnunet_nacl.commands import (
    FIRST_COMMANDS,
    Commands,
    Parser,
    calibrate,
    completion,
    data_sets,
    decode,
    demo,
    evaluate,
    experiment,
    logits,
    maps,
    members,
    networks,
    report,
    review,
    trainers,
)

_MODULES = (
    demo, evaluate, report, review, experiment, data_sets, calibrate, decode, maps, members, logits, networks,
    trainers, completion,
)  # fmt: skip

_GROUPS = {
    "train and measure": ("link", "trainers", "evaluate", "report"),
    "compare": ("experiment", "table", "plot", "merge", "logits"),
    "use the confidences": ("review", "maps", "decode", "members"),
    "calibrate after training": ("calibrate", "apply"),
    "data sets and networks": ("convert", "split", "networks"),
    "this package": ("demo", "export", "unlink", "completion"),
}
"""What a user is about -> the commands for it, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted, 143 terminated.
    """
    parser = make_parser()
    options = parser.parse_all(arguments)
    options.top_parser = parser
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a σ in a method's name must not end anything
    try:
        _check_environment()
        with _orderly_end():
            status: int = options.run(options)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (head, say) has seen enough; Python would complain again while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        print(f"nnunet_nacl {options.command}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nnnunet_nacl {options.command}: interrupted.", file=sys.stderr)
        return 130
    except _Terminated:
        print(f"\nnnunet_nacl {options.command}: terminated.", file=sys.stderr)
        return 143
    return status


class _Terminated(BaseException):
    """SIGTERM has come. Whatever is being written is removed while this is on its way up."""


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Within, SIGTERM raises an exception, once: more of them do not disturb the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_environment() -> None:
    """Raise a ValueError that names the variable which nnU-Net cannot read; its own error does not."""
    for variable, lowest in (("nnUNet_def_n_proc", 1), ("nnUNet_n_proc_DA", 0)):
        if variable in os.environ:
            from nnunet_nacl.nnunet import environment_number

            environment_number(variable, lowest, lowest=lowest)


def command_help() -> dict[str, str]:
    """The help of each command, by its name as a user types it; first that of all."""
    return {one.prog: one.format_help() for one in make_parser().walk()}


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="nnunet_nacl",
        brief=True,
        usage="nnunet_nacl COMMAND ... [--help] [--version]",
        description="Calibrated nnU-Net: train with NACL and other losses, measure whether confidences are right.",
    )
    parser.add_argument("--version", action="version", version=f"nnunet_nacl {__version__}")
    commands = Commands(parser.add_subparsers(prog=parser.prog, dest="command", required=True, metavar="COMMAND"))
    for module in _MODULES:
        module.add(commands)
    parser.add_section("from a data set that nnU-Net has planned and preprocessed to a report", FIRST_COMMANDS)
    for title, names in _GROUPS.items():
        parser.add_section(title, [f"{name:<11} {commands.lines[name]}" for name in names])
    parser.add_section("more", ["COMMAND --help shows the options, voxel sets and examples of a command"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
