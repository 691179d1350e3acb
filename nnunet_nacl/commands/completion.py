"""The command ``completion``."""

import argparse

from nnunet_nacl.commands._shared import Commands


def add(commands: Commands) -> None:
    """Add it to the command line."""
    completion = commands.add_parser("completion", help="print a script that completes our commands in your shell")
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    completion.set_defaults(run=_completion)
    completion.add_section(
        "examples",
        [
            "pip install shtab                                       # which writes the script",
            "nnunet_nacl completion bash > ~/.local/share/bash-completion/completions/nnunet_nacl",
            "nnunet_nacl completion zsh > ~/.zfunc/_nnunet_nacl      # a folder of your fpath",
        ],
    )


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise RuntimeError("completion needs shtab: pip install shtab") from error

    script: str = shtab.complete(options.top_parser, options.shell)
    print(script)
    return 0
