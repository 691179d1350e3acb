"""The command ``nnunet_nacl``. Each subcommand imports what it needs when it runs, so that ``--help`` is instant."""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnunet_nacl import __version__
from nnunet_nacl.commands import (
    calibrate,
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

_GROUPS = (
    demo,
    evaluate,
    report,
    review,
    experiment,
    data_sets,
    calibrate,
    decode,
    maps,
    members,
    logits,
    networks,
    trainers,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted, 143 terminated.
    """
    options = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nnunet_nacl", description="Calibrated nnU-Net: NACL and baseline trainers, and calibration metrics."
    )
    parser.add_argument("--version", action="version", version=f"nnunet_nacl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    for group in _GROUPS:
        group.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
