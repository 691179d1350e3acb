"""Images of confidence, entropy or a structure's probability, and pictures of a case's most doubtful slices."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.folders import NewFolder, new_folder, write_cases
from nnunet_nacl.metrics import CORE_PROBABILITY, MARGIN_MM, Activation, LabelMeaning, near_core
from nnunet_nacl.nnunet import CaseFiles, DataSet, LabelMap, Predictions
from nnunet_nacl.pictures import Picture, png, smaller, window_around
from nnunet_nacl.typing import Floats, Mask, Singles

Dtype = Literal["uint8", "uint16", "float32"]
_ALL = "structures"
_NOT_IN_FILES = re.compile(r"[^\w.-]+")
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
    as_one: bool = False,
    dtype: Dtype | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[None]:
    """Write images ``CASE_MAP<file_ending>`` where each case's segmentation lies, and their scale in ``maps.json``.

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
    names = meaning.names
    for kind in what:
        if kind not in {"confidence", "entropy", _ALL, *(f"structure:{name}" for name in names)}:
            raise ValueError(
                f"There is no map {kind}; expected confidence, entropy, {_ALL} or structure:NAME with one of the "
                f"names {', '.join(names)}."
            )
    if as_one and data_set.reader.name in {"NaturalImage2DIO", "Tiff3DIO"}:
        raise ValueError(f"{data_set.file_ending} files have no fourth axis; omit --as_one.")
    files = [
        f"{case}_{_NOT_IN_FILES.sub('_', name)}"
        for case in predictions.by_name
        for kind in dict.fromkeys(what)
        for name in (names if kind == _ALL and not as_one else [kind])
    ]
    if len(files) > len(set(files)):
        twice = next(name for name in files if files.count(name) > 1)
        raise ValueError(f"Two maps would be {twice}{data_set.file_ending}; rename a structure.")
    default = {_ALL: "uint8"} if data_set.holds_step else {}
    dtypes = {kind: dtype or default.get(kind, data_set.image_dtype) for kind in what}
    folder = new_folder(predictions, output, overwrite=overwrite)
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
        "structures": names,
        "cases": list(written.results),
    }
    written.write_mark("maps.json", content)
    if not data_set.holds_step:
        written.notes.extend(
            f"Scaled to {dtypes[kind]}: {np.iinfo(dtypes[kind]).max} stands for {kind} {value:.6g}."
            for kind, value in scaled.items()
        )
    return written


def _largest(kind: str, meaning: LabelMeaning) -> float:
    return math.log(meaning.num_outcomes) if kind == "entropy" else 1.0


def _write_case(
    files: CaseFiles, *, folder: Path, dtypes: Mapping[str, str], as_one: bool, data_set: DataSet
) -> None:
    case = SavedCase(files, data_set)
    for kind, dtype in dtypes.items():
        step = 1.0
        maps: dict[str, NDArray[Any]] = {}
        for name, values in _values(case, kind, data_set.meaning):
            maps[name] = values.reshape(case.labels.shape)
            if dtype != "float32":
                whole = np.iinfo(dtype).max
                largest = _largest(kind, data_set.meaning)
                step = largest / whole
                scaled = np.rint(maps[name].astype(np.float64) * (whole / largest))
                maps[name] = scaled.clip(0, whole).astype(dtype)
        if kind == _ALL and as_one:
            maps = {kind: np.stack(list(maps.values()))}
        for name, image in maps.items():
            file = folder / f"{files.name}_{_NOT_IN_FILES.sub('_', name)}{data_set.file_ending}"
            data_set.reader.write_image(image, case.geometry, file, step=step)


def _values(case: SavedCase, kind: str, meaning: LabelMeaning) -> Iterator[tuple[str, Singles]]:
    """Yield name and values (n,) of each map; the channels are read once. Entropy is −Σ_k p_k ln p_k."""
    activation = meaning.activation
    values: Floats
    if kind == "confidence":
        values = activation.lowest_confidence(p for _, p in case.whole_channels())
        yield kind, values.astype(np.float32, copy=False)
    elif kind == "entropy":
        values = np.zeros(1, np.float32)
        for _, p in case.whole_channels():
            exact = p.astype(np.float64)
            if activation.exclusive:
                # In single precision, which is half of the memory
                values = (values + entr(exact)).astype(np.float32)
            else:
                values = np.maximum(values, entr(exact) + entr(1 - exact))
        yield kind, values.astype(np.float32, copy=False)
    else:
        named = dict(enumerate(meaning.names, activation.first_structure))
        for channel, p in case.whole_channels():
            if channel in named and kind in {_ALL, f"structure:{named[channel]}"}:
                name = named[channel] if kind == _ALL else kind
                yield name, p.astype(np.float32, copy=False)


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
