"""Images of confidence, entropy, a structure's probability, or what members disagree on."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import CaseFiles, DataSet, LabelMeaning, PredictionFolder, write_image
from nnunet_nacl.use._folders import Written, write_cases
from nnunet_nacl.use._members import check_same_labels, read_mean
from nnunet_nacl.use._quantities import class_entropy, region_entropy

MAPS_NAME = "maps.json"
"""In a folder of maps: what they show, and their scale."""


@dataclass(frozen=True)
class Map:
    """A map: its name in files, the largest value possible, and the channel of a structure's probability."""

    name: str
    largest: float
    channel: int | None = None


def write_maps(
    pred_folder: str | Path,
    output: str | Path,
    *,
    what: Sequence[str] = ("confidence",),
    members: Sequence[str | Path] = (),
    dtype: str | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> Written[None]:
    """Write images ``CASE_MAP<file_ending>`` where each case's segmentation lies, and ``maps.json``.

    A case that cannot be mapped is not in the folder, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        what: ``confidence``, max_k p_k, of regions the smallest max(p, 1 − p); ``entropy`` in nats, of regions the
            largest; ``structure:NAME``, the probability of a structure by its name or label; ``mutual_information`` in
            nats, what the members disagree on, of regions the largest.
        members: folders of predictions of the same cases by other folds or seeds, for ``mutual_information``.
        dtype: ``float32``, ``uint16`` or ``uint8``, scaled so that the largest number stands for the largest value
            possible; by default the finest that the file format can have.
        num_processes: how many cases are mapped at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
        ignore_geometry: take members as they are, though their spacing, origin or direction differ.

    Raises:
        OSError: a file is missing, the output is not empty or among the inputs, or it cannot be written.
        ValueError: there is no such map, the format cannot have the dtype, members have other labels, or no case can
            be mapped.
    """
    predictions = PredictionFolder.read(pred_folder)
    others = [PredictionFolder.read(folder) for folder in members]
    data_set = predictions.data_set
    maps = _maps_of(what, data_set.meaning, len(others))
    possible = data_set.image_dtypes
    chosen = dtype or possible[0]
    if chosen not in possible:
        raise ValueError(f"dtype: {data_set.file_ending} files can have {' or '.join(possible)}; got {chosen}.")
    check_same_labels(others, like=predictions)
    largest = {one.name: one.largest for one in maps}

    def describe(written: Written[None], folder: Path) -> None:
        content = {
            "pred_folder": str(pred_folder),
            "members": [str(other.folder) for other in others],
            "dtype": chosen,
            "largest_stands_for": None if chosen == "float32" else largest,
            "cases": list(written.results),
        }
        written.write_mark(folder / MAPS_NAME, content)
        if chosen != "float32":
            scales = ", ".join(f"{name} {value:.6g}" for name, value in largest.items())
            written.notes.append(f"Scaled to {chosen}: {np.iinfo(chosen).max} stands for {scales}.")

    return write_cases(
        predictions.cases,
        partial(
            _write_case, maps=maps, members=others, data_set=data_set, dtype=chosen, ignore_geometry=ignore_geometry
        ),
        output,
        inputs=[predictions, *others],
        describe=describe,
        doing="mapping",
        done="mapped",
        num_processes=num_processes,
        overwrite=overwrite,
        predictions=False,
    )


def _maps_of(what: Sequence[str], meaning: LabelMeaning, num_members: int) -> list[Map]:
    """The maps that are asked for; raises a ValueError for one that there is not."""
    outcomes = meaning.num_channels if meaning.regions is None else 2
    known = {"confidence": Map("confidence", 1.0), "entropy": Map("entropy", math.log(outcomes))}
    if (num_members >= 2) != ("mutual_information" in what) or num_members == 1:
        raise ValueError(
            f"the map mutual_information shows what 2 members or more disagree on, and only it does; got {num_members} "
            f"members for the maps {', '.join(what)}."
        )
    if num_members:
        known["mutual_information"] = Map("mutual_information", math.log(min(outcomes, num_members)))
    names = [meaning.name_of(structure) for structure in meaning.structures]
    for number, (name, structure) in enumerate(zip(names, meaning.structures, strict=True)):
        shown = Map("structure_" + re.sub(r"[^\w.-]+", "_", name), 1.0, number + int(meaning.has_background))
        for called in (name, str(structure)):
            known.setdefault(f"structure:{called}", shown)
    for one in what:
        if one not in known:
            raise ValueError(
                f"There is no map {one}; expected confidence, entropy, mutual_information or structure:NAME with one "
                f"of the names {', '.join(names)}."
            )
    maps = [known[one] for one in dict.fromkeys(what)]
    if len({one.name for one in maps}) < len(maps):
        raise ValueError(f"Two of the maps {', '.join(what)} would have the same file; ask for one of them at a time.")
    return maps


def _write_case(
    files: CaseFiles,
    folder: Path,
    *,
    maps: Sequence[Map],
    members: Sequence[PredictionFolder],
    data_set: DataSet,
    dtype: str,
    ignore_geometry: bool,
) -> None:
    case = SavedCase(files, data_set)
    regions = data_set.meaning.regions is not None
    values: dict[str, NDArray[np.float32]] = {one.name: np.zeros(case.labels.size, np.float32) for one in maps}
    if regions and "confidence" in values:
        values["confidence"][:] = 1
    for channel, part, p in case.blocks():
        for one in maps:
            block = values[one.name][part]
            if one.channel == channel:
                block[:] = p
            elif one.name == "confidence" and regions:
                np.minimum(block, np.maximum(p, 1 - p), out=block)
            elif one.name == "confidence":
                np.maximum(block, p, out=block)
            elif one.name == "entropy" and regions:
                np.maximum(block, region_entropy(p), out=block, casting="same_kind")
            elif one.name == "entropy":
                np.add(block, class_entropy(p[None]), out=block, casting="same_kind")
    if "mutual_information" in values:
        together = read_mean(files, members, disagreement=True, ignore_geometry=ignore_geometry, like=case)
        assert together.disagreement is not None
        values["mutual_information"] = together.disagreement.reshape(-1)
    for one in maps:
        image = _scaled(values.pop(one.name), one.largest, dtype).reshape(case.shape[1:])
        write_image(image, files.prediction, data_set.reader, folder / f"{files.name}_{one.name}{data_set.file_ending}")


def _scaled(values: NDArray[np.float32], largest: float, dtype: str) -> NDArray[Any]:
    if dtype == "float32":
        return values
    whole = np.iinfo(dtype).max
    return np.rint(values.astype(np.float64) * (whole / largest)).clip(0, whole).astype(dtype)
