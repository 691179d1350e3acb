"""Images of confidence, entropy or a structure's probability."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import LabelMeaning, whole_channels
from nnunet_nacl.new_folder import WrittenCases, new_folder, write_cases
from nnunet_nacl.nnunet import NIFTI, CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import Floats, Singles

Dtype = Literal["uint8", "uint16", "float32"]
_STRUCTURES = "structures"
"""The kind of map that is one map of each structure."""
_WITHOUT_FOURTH_AXIS = ("NaturalImage2DIO", "Tiff3DIO")
"""nnU-Net's readers of formats that cannot hold four axes."""
_FINEST = {".png": "uint16", ".bmp": "uint8"}
"""The finest dtype that images with a file ending can have; with another one, float32."""
_NOT_IN_FILES = re.compile(r"[^\w.-]+")


def write_maps(
    pred_folder: str | Path,
    output: str | Path,
    *,
    what: Sequence[str] = ("confidence",),
    as_one: bool = False,
    dtype: Dtype | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> WrittenCases[None]:
    """Write images ``CASE_MAP<file_ending>`` in the geometry of each segmentation, and their scale in ``maps.json``.

    In integer dtypes the largest number stands for the largest possible value; NIfTI's header says so, and viewers show
    the value. A case that cannot be mapped is not in the folder, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        what: ``confidence``, max_k p_k, for regions the smallest max(p, 1 − p); ``entropy`` in nats, for regions the
            largest; ``structures``, the probability of each structure as ``CASE_NAME<file_ending>``;
            ``structure:NAME``, that of one.
        as_one: write ``structures`` as one image of four axes, ``CASE_structures<file_ending>``, in the order of
            ``dataset.json`` and without the background.
        dtype: by default uint8 for ``structures`` in NIfTI, else the finest of the format.
        num_processes: how many cases are mapped at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    predictions = Predictions.of_folder(None, pred_folder)
    data_set = predictions.data_set
    meaning = data_set.meaning
    files = _all_file_names(predictions, what, as_one=as_one)
    holds_step = data_set.file_ending.endswith(NIFTI)
    default = {_STRUCTURES: "uint8"} if holds_step else {}
    finest = _FINEST.get(data_set.file_ending.lower(), "float32")
    dtypes = {kind: dtype or default.get(kind, finest) for kind in what}
    folder = new_folder(predictions, output, overwrite=overwrite)
    for name in files:  # of an earlier run, which a case that fails now would keep
        (folder / name).unlink(missing_ok=True)
    written = write_cases(
        predictions,
        folder,
        "mapped",
        partial(_write_case, folder=folder, dtypes=dtypes, as_one=as_one, data_set=data_set),
        num_processes=num_processes,
    )
    scaled = {kind: _largest(kind, meaning) for kind, one in dtypes.items() if one != "float32"}
    content = {
        "pred_folder": str(pred_folder),
        "dtype": dtypes,
        "largest_stands_for": scaled or None,
        "structures": meaning.names,
        "cases": list(written.results),
    }
    written.write_mark("maps.json", content)
    if not holds_step:
        written.notes.extend(
            f"Scaled to {dtypes[kind]}: {np.iinfo(dtypes[kind]).max} stands for {kind} {value:.6g}."
            for kind, value in scaled.items()
        )
    return written


def _all_file_names(predictions: Predictions, what: Sequence[str], *, as_one: bool) -> list[str]:
    """Return the names of all files; a ValueError for a map that there is not, or if two had the same name."""
    data_set = predictions.data_set
    names = data_set.meaning.names
    known = {"confidence", "entropy", _STRUCTURES, *(f"structure:{name}" for name in names)}
    if unknown := set(what) - known:
        raise ValueError(
            f"There is no map {min(unknown)}; expected confidence, entropy, {_STRUCTURES} or structure:NAME with one "
            f"of the names {', '.join(names)}."
        )
    if as_one and data_set.reader.name in _WITHOUT_FOURTH_AXIS:
        raise ValueError(f"{data_set.file_ending} files have no fourth axis; omit --as_one.")
    files = [
        _file_name(case, name, data_set)
        for case in predictions.by_name
        for kind in dict.fromkeys(what)
        for name in (names if kind == _STRUCTURES and not as_one else [kind])
    ]
    if len(files) > len(set(files)):
        twice = next(name for name in files if files.count(name) > 1)
        raise ValueError(f"Two maps would be {twice}; rename a structure.")
    return files


def _file_name(case: str, name: str, data_set: DataSet) -> str:
    return f"{case}_{_NOT_IN_FILES.sub('_', name)}{data_set.file_ending}"


def _largest(kind: str, meaning: LabelMeaning) -> float:
    """Return the largest possible value of a kind of map."""
    outcomes = 2 if meaning.regions else meaning.num_channels
    return math.log(outcomes) if kind == "entropy" else 1.0


def _write_case(
    files: CaseFiles, *, folder: Path, dtypes: Mapping[str, str], as_one: bool, data_set: DataSet
) -> None:
    case = SavedCase(files, data_set)
    for kind, dtype in dtypes.items():
        is_scaled = dtype != "float32"
        most = np.iinfo(dtype).max if is_scaled else 1
        largest = _largest(kind, data_set.meaning) if is_scaled else 1.0
        maps: dict[str, NDArray[Any]] = {}
        for name, values in _values(case, kind, data_set.meaning):
            maps[name] = values.reshape(case.labels.shape)
            if is_scaled:
                scaled = np.rint(maps[name].astype(np.float64) * (most / largest))
                maps[name] = scaled.clip(0, most).astype(dtype)
        if kind == _STRUCTURES and as_one:
            maps = {kind: np.stack(list(maps.values()))}
        for name, image in maps.items():
            file = folder / _file_name(files.name, name, data_set)
            data_set.reader.write_image(image, case.geometry, file, step=largest / most)


def _values(case: SavedCase, kind: str, meaning: LabelMeaning) -> Iterator[tuple[str, Singles]]:
    """Yield name and values (n,) of each map; the channels are read once. Entropy is −Σ_k p_k ln p_k."""
    activation = meaning.activation
    values: Floats
    if kind == "confidence":
        values = activation.lowest_confidence(p for _, p in whole_channels(case.blocks()))
        yield kind, values.astype(np.float32, copy=False)
    elif kind == "entropy":
        values = np.zeros(1, np.float32)
        for _, p in whole_channels(case.blocks()):
            exact = p.astype(np.float64)
            if activation.exclusive:
                # In single precision, which is half of the memory
                values = (values + entr(exact)).astype(np.float32)
            else:
                values = np.maximum(values, entr(exact) + entr(1 - exact))
        yield kind, values.astype(np.float32, copy=False)
    else:
        named = dict(enumerate(meaning.names, activation.first_structure))
        for channel, p in whole_channels(case.blocks()):
            if channel in named and kind in {_STRUCTURES, f"structure:{named[channel]}"}:
                name = named[channel] if kind == _STRUCTURES else kind
                yield name, p.astype(np.float32, copy=False)
