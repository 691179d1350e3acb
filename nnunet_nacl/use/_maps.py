"""Images of confidence, entropy or a structure's probability."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import Activation
from nnunet_nacl.nnunet import CaseFiles, DataSet, PredictionFolder
from nnunet_nacl.use._folders import NewFolder, write_folder
from nnunet_nacl.use._quantities import entropy_term, region_entropy, whole_channels


def write_maps(
    pred_folder: str | Path,
    output: str | Path,
    *,
    what: Sequence[str] = ("confidence",),
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[None]:
    """Write images ``CASE_MAP<file_ending>`` where each case's segmentation lies, and their scale in ``maps.json``.

    They are float32, in formats of whole numbers scaled, so that the largest number stands for the largest value
    possible. A case that cannot be mapped is not in the folder, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        what: ``confidence``, max_k p_k, of regions the smallest max(p, 1 − p); ``entropy`` in nats, of regions the
            largest; ``structure:NAME``, the probability of a structure.
        num_processes: how many cases are mapped at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    predictions = PredictionFolder.read(pred_folder)
    data_set = predictions.data_set
    meaning = predictions.data_set.meaning
    names = [meaning.name_of(structure) for structure in meaning.structures]
    for kind in what:
        if kind not in {"confidence", "entropy", *(f"structure:{name}" for name in names)}:
            raise ValueError(
                f"There is no map {kind}; expected confidence, entropy or structure:NAME with one of the names "
                f"{', '.join(names)}."
            )
    dtype = data_set.image_dtype
    outcomes = meaning.num_channels if meaning.activation is Activation.SOFTMAX else 2
    largest = {_name(kind): math.log(outcomes) if kind == "entropy" else 1.0 for kind in what}
    work = partial(_write_case, largest=largest, names=names, data_set=data_set, dtype=dtype)
    with write_folder(
        output,
        predictions.cases,
        work,
        [predictions],
        "mapped",
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


def _name(of_map: str) -> str:
    """Its name in files."""
    return re.sub(r"[^\w.-]+", "_", of_map)


def _write_case(
    files: CaseFiles,
    folder: Path,
    *,
    largest: Mapping[str, float],
    names: Sequence[str],
    data_set: DataSet,
    dtype: str,
) -> None:
    case = SavedCase(files, data_set)
    activation = data_set.meaning.activation
    regions = activation is Activation.SIGMOID
    of_channel = [""] * activation.first_structure + [_name(f"structure:{name}") for name in names]
    images = {name: np.zeros(case.labels.size, np.float32) for name in largest}
    if regions and "confidence" in images:
        images["confidence"][:] = 1
    for channel, p in whole_channels(case):
        for name, image in images.items():
            if name == of_channel[channel]:
                image[:] = p
            elif name == "confidence":
                image[:] = (
                    np.minimum(image, np.maximum(p, 1 - p)) if regions else np.maximum(image, p)
                )
            elif name == "entropy":
                image[:] = (
                    np.maximum(image, region_entropy(p)) if regions else image + entropy_term(p)
                )
    for name, values in images.items():
        scaled: NDArray[Any] = values.reshape(case.labels.shape)
        if dtype != "float32":
            whole = np.iinfo(dtype).max
            scaled = (
                np.rint(scaled.astype(np.float64) * (whole / largest[name]))
                .clip(0, whole)
                .astype(dtype)
            )
        data_set.reader.write_image(
            scaled, files.prediction, folder / f"{files.name}_{name}{data_set.file_ending}"
        )
