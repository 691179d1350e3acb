"""Make nnU-Net find our trainers in this Python environment, and undo it.

nnU-Net looks for trainers in the folders of the environment variable ``nnUNet_extTrainer``. ``link`` sets it at every
start of this environment's Python with a one-line ``.pth`` file in site-packages; ``unlink`` removes that file.
"""

import os
import sysconfig
from pathlib import Path

from nnunet_nacl.files import whole_file

PTH_NAME = "nnunet_nacl_trainers.pth"


def trainers_path() -> Path:
    """The folder to put into ``nnUNet_extTrainer``."""
    return Path(__file__).resolve().parent / "trainers" / "ext"


def pth_file() -> Path:
    """The file that ``link`` writes, in the site-packages of this Python environment."""
    return Path(sysconfig.get_path("purelib")) / PTH_NAME


def link() -> str:
    """Write the ``.pth`` file; returns what was done.

    At start-up it appends our folder to whatever ``nnUNet_extTrainer`` holds by then, so that a value set by the user
    stays in force, and does nothing once the package is gone.

    Raises:
        OSError: site-packages cannot be written to.
    """
    file = pth_file()
    folder = ascii(str(trainers_path()))
    line = (
        f"import os; f = {folder}; v = os.environ.get('nnUNet_extTrainer', ''); "
        "os.path.isdir(f) and f not in v.split(os.pathsep) and "
        "os.environ.__setitem__('nnUNet_extTrainer', v + os.pathsep + f if v else f)\n"
    )
    try:
        if file.is_symlink():
            file.unlink()  # or what it points to would be written
        elif file.is_file() and file.read_text() == line:
            return f"Already linked by {file}."
        with whole_file(file) as partial:
            partial.write_text(line)
    except OSError as error:
        raise OSError(
            f"{file} cannot be written ({error}). Put this into your shell's start-up file instead: "
            f'export nnUNet_extTrainer="{trainers_path()}"'
        ) from error
    return (
        f"Wrote {file}:\n    {line}"
        "nnU-Net's commands of this Python environment now find the trainers of nnunet_nacl.\n"
        "A value of nnUNet_extTrainer that you have set stays in force. Undo with: nnunet_nacl link --remove"
    )


def unlink() -> str:
    """Remove the ``.pth`` file; returns what was done."""
    file = pth_file()
    if not os.path.lexists(file):
        return f"Not linked: {file} does not exist."
    file.unlink()
    return f"Removed {file}."
