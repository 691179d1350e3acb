"""nnU-Net's checkpoints, read without running anything in them."""

import hashlib
import json
import pickle
import re
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from nnunet_nacl.files import attributed_to, check_input
from nnunet_nacl.typing import ByName

CHECKPOINTS = {name: f"checkpoint_{name}.pth" for name in ("final", "latest", "best")}
"""In a fold's folder."""


def read_checkpoint(file: Path) -> ByName:
    """Read a checkpoint of nnU-Net without running anything in it.

    One slimmed for publication will do: ``network_weights``, ``trainer_name`` and ``init_args`` are what nnU-Net's
    predictor needs, too.

    Raises:
        OSError: there is no such file.
        ValueError: it is damaged, not nnU-Net's, or holds objects other than numbers, text, paths and arrays of them.
    """
    import torch

    check_input(file)
    unreadable = " cannot be read as a checkpoint of nnU-Net"
    with attributed_to(file, problem=unreadable):
        with zipfile.ZipFile(file) as archive:  # of which PyTorch checks no checksum
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(
                f"the checksum of {damaged} in it is wrong. Copy or download it again."
            )
        try:
            with torch.serialization.safe_globals(allowed_in_checkpoints()):
                content: ByName = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:  # its message recommends weights_only=False
            refused = re.search(r"GLOBAL (\S+)|got <class '(\S+)'>", str(error))
            found = refused[1] or refused[2] if refused else "another kind of pickle"
            raise ValueError(
                f"{file}{unreadable}: it holds {found}; only numbers, text, paths and arrays of them are read, other "
                "objects could run foreign code. If you trust its source, copy it, since a training needs all of it, "
                "and keep what predictions need:\n"
                f"    import torch; c = torch.load({str(file)!r}, 'cpu', weights_only=False)\n"
                '    torch.save({"network_weights": c["network_weights"], "trainer_name": c["trainer_name"], '
                '"init_args": {"configuration": c["init_args"]["configuration"]}, "inference_allowed_mirroring_axes": '
                f'c.get("inference_allowed_mirroring_axes")}}, {str(file)!r})'
            ) from error
    return content


def checkpoint_checksum(file: Path) -> str:
    """Return a checksum of what a checkpoint holds, made of those in its archive, so that none of it is read."""
    with attributed_to(file), zipfile.ZipFile(file) as archive:
        checksums = [entry.CRC for entry in archive.infolist()]
    return hashlib.sha256(json.dumps(checksums).encode()).hexdigest()


def allowed_in_checkpoints() -> list[Any]:
    """Return the types in nnU-Net's checkpoints that PyTorch does not allow by itself: NumPy's, and paths."""
    # Objects and structures are left out: NumPy would rebuild more than numbers, text and times.
    dtypes = [np.dtype(code) for code in np.typecodes["All"] if code not in "OV"]
    allowed: list[Any] = [np.ndarray, np.dtype, *{type(dtype) for dtype in dtypes}]
    allowed += {dtype.type for dtype in dtypes}
    array = np.zeros(0).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    for core in ("core", "_core"):  # of NumPy 1, of NumPy 2
        allowed.append((array, f"numpy.{core}.multiarray._reconstruct"))
        allowed.append((scalar, f"numpy.{core}.multiarray.scalar"))
    for pure in (PurePosixPath, PureWindowsPath):
        # A path of another system is a path without files here.
        path = type(Path()) if issubclass(type(Path()), pure) else pure
        for module in ("pathlib", "pathlib._local"):  # the latter in Python 3.13
            allowed.append((pure, f"{module}.{pure.__name__}"))
            allowed.append((path, f"{module}.{pure.__name__.removeprefix('Pure')}"))
    return allowed
