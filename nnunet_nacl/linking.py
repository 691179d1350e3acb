"""Make nnU-Net find our trainers in this Python environment, and undo it.

nnU-Net looks for trainers in the folders of the environment variable ``nnUNet_extTrainer``. ``link`` sets it at every
start of this environment's Python with a one-line ``.pth`` file in site-packages; ``unlink`` removes that file.
"""

import os
import shlex
import sysconfig
from pathlib import Path

PTH_NAME = "nnunet_nacl_trainers.pth"


def trainers_path() -> Path:
    """Return the folder to put into ``nnUNet_extTrainer``."""
    return Path(__file__).resolve().parent / "trainers" / "ext"


def search_path(current: str | None) -> str:
    """Return the new ``nnUNet_extTrainer``: the folders that it holds, by their absolute paths, and ours."""
    users = filter(None, (current or "").split(os.pathsep))
    folders = [*map(os.path.abspath, users), str(trainers_path())]
    return os.pathsep.join(dict.fromkeys(folders))


def link() -> str:
    """Write the ``.pth`` file; returns what was done.

    At start-up it appends our folder to whatever ``nnUNet_extTrainer`` holds by then, so that a value set by the user
    stays in force, and does nothing once the package is gone. Raises an OSError if site-packages cannot be written to.
    """
    folder = str(trainers_path())
    try:
        file = unlink()  # a link to another file would be written through
        file.write_text(
            f"import os; f = {folder!a}; v = os.environ.get('nnUNet_extTrainer', ''); "
            "os.path.isdir(f) and f not in v.split(os.pathsep) and "
            "os.environ.__setitem__('nnUNet_extTrainer', v + os.pathsep + f if v else f)\n"
        )
    except OSError as error:
        line = f'export nnUNet_extTrainer="${{nnUNet_extTrainer:+$nnUNet_extTrainer:}}"{shlex.quote(folder)}'
        raise OSError(f"{error}. Put this into your shell's start-up file: {line}") from error
    return (
        f"Wrote {file}: nnU-Net now finds nnUNetTrainerNACL and the other trainers in {folder}. "
        "Undo with: nnunet_nacl link --remove"
    )


def unlink() -> Path:
    """Remove the ``.pth`` file from the site-packages of this Python environment."""
    file = Path(sysconfig.get_path("purelib")) / PTH_NAME
    file.unlink(missing_ok=True)
    return file
