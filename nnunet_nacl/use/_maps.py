"""Images of confidence, entropy or a structure's probability, and pictures of a case's most doubtful slices."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.folders import NewFolder, new_folder, write_cases
from nnunet_nacl.metrics import CORE_PROBABILITY, MARGIN_MM, Activation, LabelMeaning, near_core
from nnunet_nacl.nnunet import CaseFiles, DataSet, LabelMap, Predictions
from nnunet_nacl.pictures import Picture, png, smaller, window_around
from nnunet_nacl.typing import Floats, Labels, Mask, Singles

_APART = 16  # slices of one case are at least this share of the image's depth apart
_SEEN = 0.1  # a doubt that is kept within the picture
_COLOR = (255, 40, 40)  # of doubt
FULL_DOUBT = 0.5
"""The doubt that is drawn strongest; the image still shows through."""


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
        if kind not in {"confidence", "entropy", *(f"structure:{name}" for name in names)}:
            raise ValueError(
                f"There is no map {kind}; expected confidence, entropy or structure:NAME with one of the names "
                f"{', '.join(names)}."
            )
    largest = {kind: math.log(meaning.num_outcomes) if kind == "entropy" else 1.0 for kind in what}
    dtype = data_set.image_dtype
    folder = new_folder(predictions, output, overwrite=overwrite)
    written = write_cases(
        predictions,
        folder,
        "mapped",
        partial(_write_case, folder=folder, largest=largest, data_set=data_set),
        num_processes=num_processes,
    )
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


def _write_case(
    files: CaseFiles, *, folder: Path, largest: Mapping[str, float], data_set: DataSet
) -> None:
    case = SavedCase(files, data_set)
    for name in largest:
        values: Floats | Labels = _values(case, name, data_set.meaning).reshape(case.labels.shape)
        if data_set.image_dtype != "float32":
            whole = np.iinfo(data_set.image_dtype).max
            scaled = np.rint(values.astype(np.float64) * (whole / largest[name]))
            values = scaled.clip(0, whole).astype(data_set.image_dtype)
        map_name = re.sub(r"[^\w.-]+", "_", name)
        data_set.reader.write_image(
            values, case.geometry, folder / f"{files.name}_{map_name}{data_set.file_ending}"
        )


def _values(case: SavedCase, name: str, meaning: LabelMeaning) -> Singles:
    """Compute a map (n,), reading the channels of the case once; entropy is −Σ_k p_k ln p_k."""
    activation = meaning.activation
    values: Floats
    if name == "confidence":
        values = activation.lowest_confidence(p for _, p in case.whole_channels())
    elif name == "entropy":
        values = np.zeros(1, np.float32)
        for _, p in case.whole_channels():
            exact = p.astype(np.float64)
            if activation.exclusive:
                # In single precision, which is half of the memory
                values = (values + entr(exact)).astype(np.float32)
            else:
                values = np.maximum(values, entr(exact) + entr(1 - exact))
    else:
        structure = meaning.names.index(name.removeprefix("structure:"))
        number = activation.first_structure + structure
        (values,) = (p for channel, p in case.whole_channels() if channel == number)
    return values.astype(np.float32, copy=False)


@dataclass(frozen=True)
class DoubtfulSlice:
    """A slice as the page shows it, cropped to its structures.

    Attributes:
        number: of the slice in the image, from 0.
        num_slices: of the image.
        aspect: a voxel's height, as a share of its width.
        picture: the image, with outlines of the segmentation.
        doubt: as a ``data:`` address.
    """

    number: int
    num_slices: int
    aspect: float
    picture: Picture
    doubt: str


def doubtful_slices(
    case: SavedCase, data_set: DataSet, image_file: Path | None, *, number: int
) -> tuple[list[DoubtfulSlice], str | None]:
    """At most ``number`` slices with the most doubt, and why the image could not be shown."""
    doubt = _doubt(case, data_set.meaning.activation)
    slices = []
    problem = None
    image = None
    if image_file is not None:
        try:
            place = LabelMap(case.labels, case.geometry)
            image = data_set.reader.read_gray(image_file, place)
        except Exception as error:  # noqa: BLE001 - damaged images make readers raise nearly anything
            problem = f"image: {error}"
    for z in most_doubtful(doubt, number):
        window = window_around((case.labels[z] > 0) | (doubt[z] > _SEEN))
        shown = None if image is None else image[z][window]
        strength = np.clip(smaller(doubt[z][window]) / FULL_DOUBT, 0, 1)
        steps = np.round(strength * 15).astype(np.uint8)  # few steps make a smaller PNG
        doubtful = DoubtfulSlice(
            number=z,
            num_slices=len(case.labels),
            aspect=case.geometry.aspect,
            picture=Picture.of(case.labels[z][window], shown),
            doubt=png(steps, [(*_COLOR, 11 * step) for step in range(16)]),  # at most 165 of 255
        )
        slices.append(doubtful)
    return slices, problem


def _doubt(case: SavedCase, activation: Activation) -> Floats:
    """Return the doubt (Z, Y, X): 1 − confidence in near, 0 elsewhere; the largest over regions."""

    def near_of(p: Floats) -> Mask:
        core = (activation.foreground(p) > CORE_PROBABILITY).reshape(case.labels.shape)
        return near_core(core, case.geometry.spacing, MARGIN_MM).reshape(-1)

    channels = (p for _, p in case.whole_channels())
    if activation.exclusive:
        background = next(channels)
        near = near_of(background)
        doubt = (1 - activation.lowest_confidence(chain([background], channels))) * near
    else:
        doubt = np.zeros(case.labels.size, np.float32)
        for p in channels:
            doubt = np.maximum(doubt, (1 - activation.lowest_confidence([p])) * near_of(p))
    return doubt.reshape(case.labels.shape)


def most_doubtful(doubt: Floats, number: int) -> list[int]:
    """Up to this number of slices of (Z, Y, X): those with the most doubt, no two adjacent, in order."""
    sums = doubt.sum((1, 2), dtype=np.float64)
    apart = max(2, len(sums) // _APART)
    chosen: list[int] = []
    for z in np.argsort(-sums, kind="stable").tolist():
        if len(chosen) == number or (chosen and sums[z] == 0):
            break
        if all(abs(z - other) >= apart for other in chosen):
            chosen.append(z)
    return sorted(chosen)
