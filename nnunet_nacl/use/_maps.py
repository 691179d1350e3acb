"""Images of confidence, entropy or a structure's probability."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.folders import NewFolder, write_folder
from nnunet_nacl.metrics import Activation, LabelMeaning
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import Floats, Labels, Singles


def write_maps(
    pred_folder: str | Path,
    output: str | Path,
    *,
    what: Sequence[str] = ("confidence",),
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[None]:
    """Write images ``CASE_MAP<file_ending>`` where each case's segmentation lies, and their scale in ``maps.json``.

    They are float32; in integer formats they are scaled, so that the largest number stands for the largest possible
    value. A case that cannot be mapped is not in the folder, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        what: ``confidence``, max_k p_k, for regions the smallest max(p, 1 − p); ``entropy`` in nats, for regions the
            largest; ``structure:NAME``, the probability of a structure.
        num_processes: how many cases are mapped at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    predictions = Predictions.of_folder(None, pred_folder)
    data_set = predictions.data_set
    meaning = data_set.meaning
    names = meaning.names
    for kind in what:
        if kind not in {"confidence", "entropy", *map(structure_map, names)}:
            raise ValueError(
                f"There is no map {kind}; expected confidence, entropy or structure:NAME with one of the names "
                f"{', '.join(names)}."
            )
    if len(set(map(_name, what))) < len(set(what)):
        raise ValueError(
            f"maps: two of {', '.join(what)} have one file name; write them to two folders."
        )
    largest = {kind: math.log(meaning.num_outcomes) if kind == "entropy" else 1.0 for kind in what}
    dtype = data_set.image_dtype
    with write_folder(
        [predictions],
        output,
        "mapped",
        partial(_write_case, largest=largest, data_set=data_set),
        of_predictions=False,
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        content = {
            "pred_folder": str(pred_folder),
            "dtype": dtype,
            "largest_stands_for": None if dtype == "float32" else largest,
            "cases": list(written.results),
        }
        written.write_mark("maps.json", content)
    if dtype != "float32":
        scales = ", ".join(f"{name} {value:.6g}" for name, value in largest.items())
        written.notes.append(f"Scaled to {dtype}: {np.iinfo(dtype).max} stands for {scales}.")
    return written


def structure_map(name: str) -> str:
    """The map of a structure's probability, as ``write_maps`` takes it."""
    return f"structure:{name}"


def _name(of_map: str) -> str:
    """Its name in files."""
    return re.sub(r"[^\w.-]+", "_", of_map)


def _write_case(
    files: CaseFiles, folder: Path, *, largest: Mapping[str, float], data_set: DataSet
) -> None:
    case = SavedCase(files, data_set)
    for name in largest:
        values: Floats | Labels = _values(case, name, data_set.meaning).reshape(case.labels.shape)
        if data_set.image_dtype != "float32":
            whole = np.iinfo(data_set.image_dtype).max
            scaled = np.rint(values.astype(np.float64) * (whole / largest[name]))
            values = scaled.clip(0, whole).astype(data_set.image_dtype)
        data_set.reader.write_image(
            values, case.geometry, folder / f"{files.name}_{_name(name)}{data_set.file_ending}"
        )


def _values(case: SavedCase, name: str, meaning: LabelMeaning) -> Singles:
    """(n,) of a map, for which the channels of the case are read once."""
    activation = meaning.activation
    values: Floats
    if name == "confidence":
        values = activation.lowest_confidence(p for _, p in case.whole_channels())
    elif name == "entropy":
        values = _entropy(activation, (p for _, p in case.whole_channels()))
    else:
        structures = list(map(structure_map, meaning.names))
        number = activation.first_structure + structures.index(name)
        (values,) = (p for channel, p in case.whole_channels() if channel == number)
    return values.astype(np.float32, copy=False)


def _entropy(activation: Activation, channels: Iterable[Floats]) -> Floats:
    """(n,) ``-Σ_k p_k ln p_k`` in nats of the channels (n,) of classes; of regions the largest, of both sides."""
    entropy: Floats = np.zeros(1, np.float32)
    for p in channels:
        exact = p.astype(np.float64)
        if activation.exclusive:
            # In single precision, which is half of the memory
            entropy = (entropy + entr(exact)).astype(np.float32)
        else:
            entropy = np.maximum(entropy, entr(exact) + entr(1 - exact))
    return entropy
