"""nnU-Net's trainer classes, found by their names."""

import io
import os
import re
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from nnunet_nacl.linking import trainers_path


def defines_trainer(name: str) -> bool:
    """Whether a file in which nnU-Net searches for trainers has a class of this name; imports none of them."""
    import nnunetv2
    from nnunetv2.paths import nnUNet_extTrainer

    folders = [Path(nnunetv2.__path__[0], "training", "nnUNetTrainer")]
    if nnUNet_extTrainer.is_set():
        folders += map(Path, filter(str.strip, nnUNet_extTrainer.get().split(os.pathsep)))
    pattern = re.compile(rf"^class {re.escape(name)}\b", re.MULTILINE)
    files = [file for folder in folders for file in folder.rglob("*.py")]
    return any(pattern.search(file.read_text(errors="replace")) for file in files)


def find_trainer(name: str) -> Any:
    """Return the class that nnU-Net finds by this name, or ours even without ``nnunet_nacl link``; prints nothing."""
    from nnunetv2.utilities.find_class_by_name import recursive_find_python_class
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        # nnU-Net imports timm, which uses an old part of PyTorch.
        warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)
        try:
            return recursive_find_trainer_class_by_name(name)
        except RuntimeError:
            ours = recursive_find_python_class(str(trainers_path()), name, None)
            if ours is None:
                raise
            return ours
