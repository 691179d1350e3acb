"""One module for each group of commands: its options, and what they call, imported when it runs."""

from nnunet_nacl.commands._parser import Commands, Parser
from nnunet_nacl.commands._shared import FIRST_COMMANDS

__all__ = ["FIRST_COMMANDS", "Commands", "Parser"]
