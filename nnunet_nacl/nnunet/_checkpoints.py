"""A fold's checkpoints: found, read without running what is in them, and written whole."""

import io
import pickle
import re
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.nnunet._names import listed
from nnunet_nacl.typing import ByName

# In a fold's folder
CHECKPOINTS = {name: f"checkpoint_{name}.pth" for name in ("final", "latest", "best")}


def find_checkpoint(model: Path, fold: int | str, checkpoint: str) -> Path:
    """The checkpoint of a fold; if it is missing, a FileNotFoundError lists the existing ones."""
    folder = model / f"fold_{fold}"
    file = folder / checkpoint
    if not model.is_dir():
        raise FileNotFoundError(
            f"{model} does not exist; {model.parent} has {listed(model.parent, '*__*')}."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"{model} has no fold {fold}; there are {listed(model, 'fold_*')}.")
    if not file.is_file():
        there = listed(folder, "checkpoint_*.pth")
        unfinished = (
            ": the training has not ended"
            if checkpoint == CHECKPOINTS["final"] and there != "none"
            else ""
        )
        raise FileNotFoundError(
            f"{file} does not exist{unfinished}; expected the file name of a checkpoint; there are {there}."
        )
    return file


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
    unreadable = f"{file} cannot be read as a checkpoint of nnU-Net"
    try:
        _check_archive(file)
        with torch.serialization.safe_globals(allowed_in_checkpoints()):
            content: ByName = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        _check_content(content)
    except pickle.UnpicklingError as error:  # its message recommends weights_only=False
        refused = re.search(r"GLOBAL (\S+)|got <class '(\S+)'>", str(error))
        found = refused[1] or refused[2] if refused else "a pickle that is not torch.save's default"
        raise ValueError(
            f"{unreadable}: it holds {found}; only numbers, text, paths and arrays of them are read, other objects "
            f"could run foreign code. {_how_to_slim(file)}"
        ) from error
    except Exception as error:  # PyTorch raises nearly anything for what is not a checkpoint
        raise ValueError(f"{unreadable}: {str(error) or repr(error)}") from error
    return content


def _check_archive(file: Path) -> None:
    """Check what PyTorch does not: the checksums of its zip archive, and that nothing in it is compressed."""
    again = "Copy or download it again."
    with file.open("rb") as stream:
        start = stream.read(20)
    if start[:1] == pickle.PROTO:
        raise ValueError(
            f"it is a bare pickle without checksums, PyTorch's format before version 1.6. {_how_to_slim(file)}"
        )
    if start[:4] != b"PK\3\4":
        raise ValueError(f"expected an archive of torch.save; it starts with {start!r}. {again}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            compressed = [one for one in members if one.compress_type != zipfile.ZIP_STORED]
            damaged = None if compressed else archive.testzip()
    except Exception as error:  # a damaged one makes zipfile raise nearly anything
        raise ValueError(f"it is cut short or damaged ({error}). {again}") from error
    if compressed:
        raise ValueError(
            f"{compressed[0].filename} in it is compressed, which torch.save never does. {_how_to_slim(file)}"
        )
    if damaged is not None:
        raise ValueError(f"it is damaged: the checksum of {damaged} in it is wrong. {again}")


def allowed_in_checkpoints() -> list[Any]:
    """What nnU-Net's checkpoints may hold and PyTorch does not allow by itself: NumPy's types and arrays, and paths."""
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


def _check_content(content: Any) -> None:
    """Check that it is a dictionary with what predictions need."""
    if not isinstance(content, dict):
        raise ValueError(f"expected a dictionary; it holds a {type(content).__name__}.")
    needed = ("network_weights", "trainer_name", "init_args")
    if missing := [key for key in needed if key not in content]:
        raise ValueError(f"it lacks {', '.join(missing)}; it has {', '.join(map(str, content))}.")
    if "configuration" not in content["init_args"]:
        raise ValueError("its init_args lack configuration.")


def _how_to_slim(file: Path) -> str:
    """Two lines of Python that leave what nnU-Net's predictor needs."""
    return (
        "If you trust its source, copy it, since a training needs all of it, and keep what predictions need:\n"
        f"    import torch; c = torch.load({str(file)!r}, 'cpu', weights_only=False)\n"
        '    torch.save({"network_weights": c["network_weights"], "trainer_name": c["trainer_name"], '
        '"init_args": {"configuration": c["init_args"]["configuration"]}, "inference_allowed_mirroring_axes": '
        f'c.get("inference_allowed_mirroring_axes")}}, {str(file)!r})'
    )


def write_checkpoint(content: ByName, file: Path) -> None:
    """Write a checkpoint, completely or not at all; PyTorch's own error would not say that the disk is full."""
    import torch

    buffer = io.BytesIO()
    torch.save(content, buffer)
    with whole_file(file) as partial:
        partial.write_bytes(buffer.getvalue())
