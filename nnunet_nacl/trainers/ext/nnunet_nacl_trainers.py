"""The module that nnU-Net's trainer search finds: point ``nnUNet_extTrainer`` at this folder.

It holds this one module, which only re-exports classes of the installed package: nnU-Net drops modules found in an
external folder right after the search, and a class whose module is gone can be neither compiled nor pickled.
"""

import sys
from pathlib import Path
from typing import Any

from nnunet_nacl import trainers


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(trainers, name)
    except ValueError as error:  # our name with a wrong suffix
        command = Path(sys.argv[0]).stem
        if command.startswith("nnUNetv2_"):  # which would show a traceback
            raise SystemExit(f"{command}: error: {error}") from None
        raise
