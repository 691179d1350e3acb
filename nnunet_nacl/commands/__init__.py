"""The commands: functions whose signature and docstring **declare** what the command line takes, and its help.

A positional parameter is an argument, a keyword-only one an option, and its entry in ``Args:`` the help; ``_parser.py``
makes the parser of them. Each module holds a group of the help, which ``cli.py`` lists. Each function imports what it
runs, so that ``--help`` is instant.
"""

from nnunet_nacl.commands._output import MAIN_PATH
from nnunet_nacl.commands._parser import Command

__all__ = ["MAIN_PATH", "Command"]
