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

from nnunet_nacl.confidence import class_entropy, region_entropy
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import whole_folder
from nnunet_nacl.nnunet import CaseFiles, DataSet, LabelMeaning, image_dtypes, write_image
from nnunet_nacl.prediction_folders._folder import PredictionFolder, Written, write_cases, write_mark
from nnunet_nacl.prediction_folders._member_cases import check_same_labels, read_mean

MAPS_NAME = "maps.json"
"""In a folder of maps: what they show, and their scale."""

Values = NDArray[np.floating]


@dataclass(frozen=True)
class MapsWritten:
    """What :func:`write_maps` did.

    Attributes:
        output: the new folder.
        largest: of each map by its name, the value that the dtype's largest number stands for; 1 for float32.
        dtype: of the images.
        cases: which were written and which were not.
    """

    output: Path
    largest: dict[str, float]
    dtype: str
    cases: Written[None]

    def summary(self) -> str:
        """A few lines for people."""
        if self.dtype == "float32":
            return self.cases.summary(self.output)
        scales = ", ".join(f"{name} {value:.6g}" for name, value in self.largest.items())
        whole = np.iinfo(self.dtype).max
        return self.cases.summary(self.output, f"Scaled to {self.dtype}: {whole} stands for {scales}.")


@dataclass(frozen=True)
class Map:
    """A map that was asked for.

    Attributes:
        name: in the names of files.
        largest: that a value can be.
        channel: of a structure's probability; None for the others.
    """

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
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> MapsWritten:
    """Write images ``CASE_MAP<file_ending>`` where each case's segmentation lies, and ``maps.json``.

    The folder appears whole or not at all. A case that cannot be mapped is not in it, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to make.
        what: ``confidence``, max_k p_k, of regions the smallest max(p, 1 − p); ``entropy`` in nats, of regions the
            largest; ``structure:NAME``, the probability of a structure by its name or label; ``mutual_information`` in
            nats, what the members disagree on, of regions the largest.
        members: folders of predictions of the same cases by other folds or seeds, for ``mutual_information``.
        dtype: ``float32``, ``uint16`` or ``uint8``, scaled so that the largest number stands for the largest value
            possible; by default the finest that the file format can have.
        dataset_json: the data set's ``dataset.json``; by default the one in each folder.
        plans: the ``plans.json`` whose reader is used; by default the one in each folder.
        num_processes: how many cases are mapped at a time.
        overwrite: replace a folder of maps that is there, once the new one is whole.
        ignore_geometry: take members as they are, though their spacing, origin or direction differ.

    Raises:
        FileExistsError: ``output`` exists, or is to be replaced and is no folder of maps.
        FileNotFoundError: a file or folder is missing.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: there is no such map, the format cannot have the dtype, members have other labels, or no case can
            be mapped.
    """
    predictions = PredictionFolder.read(pred_folder, dataset_json=dataset_json, plans=plans)
    others = [PredictionFolder.read(folder, dataset_json=dataset_json, plans=plans) for folder in members]
    data_set = predictions.data_set
    maps = _maps_of(what, data_set.meaning, len(others))
    chosen = _dtype_of(dtype, data_set.file_ending)
    for other in others:
        check_same_labels(predictions, other)
    write = partial(
        _write_case, maps=maps, members=others, data_set=data_set, dtype=chosen, ignore_geometry=ignore_geometry
    )
    with whole_folder(Path(output), _is_ours, overwrite=overwrite) as folder:
        cases = write_cases(
            predictions.cases, write, folder, doing="mapping", done="mapped", num_processes=num_processes
        )
        written = MapsWritten(
            Path(output), {one.name: 1.0 if chosen == "float32" else one.largest for one in maps}, chosen, cases
        )
        content = {
            "pred_folder": str(pred_folder),
            "members": [str(other.folder) for other in others],
            "dtype": chosen,
            "largest_stands_for": None if chosen == "float32" else written.largest,
            "cases": list(cases.results),
        }
        write_mark(folder / MAPS_NAME, content, cases.skipped)
    return written


def _is_ours(folder: Path) -> bool:
    return (folder / MAPS_NAME).is_file()


def _maps_of(what: Sequence[str], meaning: LabelMeaning, num_members: int) -> list[Map]:
    """The maps that are asked for; raises a ValueError for one that there is not."""
    entropy = math.log(meaning.num_channels) if meaning.regions is None else math.log(2)
    known = {"confidence": Map("confidence", 1.0), "entropy": Map("entropy", entropy)}
    if num_members:
        outcomes = meaning.num_channels if meaning.regions is None else 2
        known["mutual_information"] = Map("mutual_information", math.log(min(outcomes, num_members)))
    if num_members == 1:
        raise ValueError("members: expected at least 2 folders; got 1.")
    if num_members and "mutual_information" not in what:
        raise ValueError("members: they are for the map mutual_information, which is not asked for.")
    names = {meaning.name_of(structure): number for number, structure in enumerate(meaning.structures)}
    first = 1 if meaning.has_background else 0
    for number, structure in enumerate(meaning.structures):
        for name in {meaning.name_of(structure), str(structure)}:
            shown = re.sub(r"[^\w.-]+", "_", meaning.name_of(structure))
            known.setdefault(f"structure:{name}", Map(f"structure_{shown}", 1.0, number + first))
    maps = []
    for one in dict.fromkeys(what):
        if one == "mutual_information" and not num_members:
            raise ValueError("mutual_information: expected folders of members, of which it shows the disagreement.")
        if one not in known:
            raise ValueError(
                f"There is no map {one}; expected confidence, entropy, mutual_information or structure:NAME with one "
                f"of the names {', '.join(names)}."
            )
        maps.append(known[one])
    if len({one.name for one in maps}) < len(maps):
        raise ValueError(f"Two of the maps {', '.join(what)} would have the same file; ask for one of them at a time.")
    return maps


def _dtype_of(dtype: str | None, ending: str) -> str:
    possible = image_dtypes(ending)
    if dtype is None:
        return possible[0]
    if dtype not in possible:
        raise ValueError(f"dtype: {ending} files can have {' or '.join(possible)}; got {dtype}.")
    return dtype


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
    values: dict[str, NDArray[np.float32]] = {one.name: np.zeros(math.prod(case.shape[1:]), np.float32) for one in maps}
    if regions and "confidence" in values:
        values["confidence"][:] = 1
    for channel, part, p in case.blocks():
        for one in maps:
            if one.channel == channel:
                values[one.name][part] = p
            elif one.name == "confidence":
                confidence = values[one.name][part]
                if regions:
                    np.minimum(confidence, np.maximum(p, 1 - p), out=confidence)
                else:
                    np.maximum(confidence, p, out=confidence)
            elif one.name == "entropy":
                entropy = values[one.name][part]
                if regions:
                    np.maximum(entropy, region_entropy(p), out=entropy, casting="same_kind")
                else:
                    np.add(entropy, class_entropy(p[None]), out=entropy, casting="same_kind")
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
