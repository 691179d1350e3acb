"""The commands: typed functions, of which docstring and signature make help and parser. Each imports what it runs."""

from nnunet_nacl.commands._bridge import Command
from nnunet_nacl.commands._output import MAIN_PATH

__all__ = ["MAIN_PATH", "Command"]
