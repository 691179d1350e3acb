"""What a review counts of a case, in one pass over its probabilities; finished cases are kept in a journal."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.cases import Journal, Skipped, each_case
from nnunet_nacl.evaluation import CORE_PROBABILITY, SavedCase, canonical_labels, near_core
from nnunet_nacl.files import file_state, read_json
from nnunet_nacl.nnunet import CaseFiles, DataSet, Labels, check_geometry, read_labels
from nnunet_nacl.use._conformal import THRESHOLDS, missed_voxels
from nnunet_nacl.use._pictures import Doubt, SlicePicture, doubtful_slices
from nnunet_nacl.use._quantities import (
    DoubtSums,
    StructureSums,
    class_entropy,
    label_confusion,
    labels_of,
    mean_pairwise_dice,
    region_entropy,
)

COUNTING = 1
"""To be raised if the way in which cases are counted changes: kept ones are then counted again."""
_THICK = 999
"""How many times the pixel spacing nnU-Net makes the slice spacing of an image of two dimensions."""

Blocks = Iterator[tuple[int, slice, NDArray[np.floating]]]


@dataclass(frozen=True)
class CountSettings:
    """What is counted of a case, beside its probabilities and its segmentation.

    Attributes:
        members: folders of other predictions of the same cases, for their agreement; two or more, or none.
        truth: whether to compare with the ground truth.
        curves: whether to count what masks of p ≥ threshold miss, too.
        slices: how many pictures of doubtful slices are made.
        images: folder of the images, for the pictures.
        margin_mm: of the voxel set near.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.
    """

    members: tuple[str, ...] = ()
    truth: bool = False
    curves: bool = False
    slices: int = 0
    images: str | None = None
    margin_mm: float = 5.0
    ignore_geometry: bool = False


def basis_of(data_set: DataSet, settings: CountSettings) -> dict[str, Any]:
    """What counts depend on, beside the files: those of another basis are not taken up."""
    return {
        "settings": {**asdict(settings), "members": list(settings.members)},
        "labels": json.dumps(data_set.labels),
        "regions_class_order": list(data_set.meaning.written),
        "reader": type(data_set.reader).__name__,
        "counting": COUNTING,
    }


@dataclass(frozen=True)
class TruthCounts:
    """What the ground truth says of a structure in a case, over the voxels that are not ignored."""

    sums: StructureSums
    voxels: int
    shared: int
    missed: tuple[int, ...] = ()

    @property
    def dice(self) -> float:
        """Dice of the segmentation; 1 where the structure is in neither."""
        size = self.voxels + self.sums.segmented
        return 2 * self.shared / size if size else 1.0

    def rates(self) -> NDArray[np.float64]:
        """(T,) share of the structure that masks of p ≥ threshold miss; it must be in the ground truth."""
        return np.array(self.missed, np.float64) / self.voxels


@dataclass(frozen=True)
class StructureCounts:
    """What is counted of a structure in a case: over all voxels, of doubt over near, which classes share."""

    sums: StructureSums
    doubt: DoubtSums
    agreement: float | None = None
    truth: TruthCounts | None = None


@dataclass(frozen=True)
class CaseCounts:
    """What is counted of a case."""

    voxel_ml: float
    structures: dict[str, StructureCounts]
    pictures: list[SlicePicture] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CountedCase:
    """A case, the state of its files before they were read, and what was counted of it."""

    case: str
    states: dict[str, list[str | int] | None]
    counts: CaseCounts


@dataclass(frozen=True)
class _Kept:
    basis: dict[str, Any]
    case: CountedCase


def count_cases(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    settings: CountSettings,
    *,
    beside: Path,
    known: Mapping[str, CountedCase],
    num_processes: int,
) -> tuple[list[CountedCase], list[Skipped], Journal[CountedCase]]:
    """Count each case, but for those that are known, or that a process which was killed has counted."""
    basis = basis_of(data_set, settings)
    journal = Journal.beside(beside, partial(_save, basis=basis), partial(_load, basis=basis))
    known = {**known, **{case.case: case for case in journal.finished()}}
    current = [case for case in cases if case.name in known and known[case.name].states == _states(case, settings)]
    done = {case.name: known[case.name] for case in current}
    left = [case for case in cases if case.name not in done]
    work = partial(_count, data_set=data_set, settings=settings)
    new, skipped = each_case(
        left, work, doing="reviewing", num_processes=num_processes, journal=journal, finished=len(done)
    )
    done |= new
    return [done[name] for name in sorted(done)], skipped, journal


def _save(file: Path, case: CountedCase, basis: dict[str, Any]) -> None:
    file.write_text(json.dumps(asdict(_Kept(basis, case)), allow_nan=False))


def _load(file: Path, basis: dict[str, Any]) -> CountedCase:
    kept = read_json(file, _Kept)
    if kept.basis != basis:
        raise ValueError(f"{file} was counted otherwise.")
    return kept.case


def _states(files: CaseFiles, settings: CountSettings) -> dict[str, list[str | int] | None]:
    """The state of everything that is read of a case."""
    states: dict[str, list[str | int] | None] = dict(files.states())
    for number, folder in enumerate(settings.members):
        states[f"member {number}"] = file_state(Path(folder) / files.prediction.name)
    if settings.images is not None:
        states["image"] = file_state(first_channel(files, Path(settings.images)))
    return states


def first_channel(files: CaseFiles, images: Path) -> Path:
    """A case's image, or of several channels the first."""
    return images / f"{files.name}_0000{files.prediction.name.removeprefix(files.name)}"


def _count(files: CaseFiles, *, data_set: DataSet, settings: CountSettings) -> CountedCase:
    reason = files.missing(truth=settings.truth)
    if reason is not None:
        raise FileNotFoundError(reason)
    states = _states(files, settings)
    try:
        return CountedCase(files.name, states, count_case(files, data_set=data_set, settings=settings))
    except (ValueError, OSError):
        raise
    except Exception as error:  # damaged files make readers raise nearly anything
        raise ValueError(f"{files.probabilities}: {type(error).__name__}: {error}") from error


def voxel_volume_ml(shape: Sequence[int], spacing_mm: Sequence[float]) -> float:
    """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

    >>> voxel_volume_ml((10, 64, 64), (5.0, 1.0, 1.0)), voxel_volume_ml((1, 64, 64), (999.0, 1.0, 1.0))
    (0.005, 0.001)
    """
    steps = list(spacing_mm)
    if shape[0] == 1 and math.isclose(steps[0], _THICK * max(steps[1:]), rel_tol=1e-5):
        steps[0] = 1.0
    return math.prod(steps) / 1000


def count_case(files: CaseFiles, *, data_set: DataSet, settings: CountSettings) -> CaseCounts:
    """Count one case; raises an OSError or a ValueError if a file is missing, damaged, or does not fit the others."""
    meaning = data_set.meaning
    case = SavedCase(files, data_set)
    truth = confusion = None
    if settings.truth:
        truth = _read_like(files.ground_truth, case, data_set, data_set.ignore_label, settings)
        confusion = label_confusion(truth, case.labels, meaning)
        confusion[meaning.ignored] = 0
    members = [Path(folder) / files.prediction.name for folder in settings.members]
    maps = [_read_like(file, case, data_set, None, settings) for file in members]
    agreement = mean_pairwise_dice(maps, meaning) if maps else [None] * len(meaning.structures)
    counters = [
        _Counter(labels_of(structure), case.labels, truth, meaning.ignored, settings.curves)
        for structure in meaning.structures
    ]
    count_doubt = _class_doubt if meaning.regions is None else _region_doubt
    doubts, doubt = count_doubt(_counted(case, counters, int(meaning.has_background)), case, settings)
    structures = {
        meaning.name_of(structure): StructureCounts(counter.all, of_near, members_agree, counter.truth(confusion))
        for structure, counter, of_near, members_agree in zip(
            meaning.structures, counters, doubts, agreement, strict=True
        )
    }
    pictures: list[SlicePicture] = []
    problems: list[str] = []
    if settings.slices:
        image = None if settings.images is None else first_channel(files, Path(settings.images))
        pictures, problems = doubtful_slices(
            doubt, case, image, data_set.reader, number=settings.slices, ignore_geometry=settings.ignore_geometry
        )
    return CaseCounts(voxel_volume_ml(case.labels.shape, case.geometry.spacing), structures, pictures, problems)


def _read_like(
    file: Path, case: SavedCase, data_set: DataSet, ignore_label: int | None, settings: CountSettings
) -> Labels:
    """Canonical labels of another label map of the case, which must lie where its segmentation does."""
    read = read_labels(file, data_set.reader)
    if read.labels.shape != case.labels.shape:
        raise ValueError(f"{file}: the shape {read.labels.shape} is not the segmentation's, {case.labels.shape}.")
    if not settings.ignore_geometry:
        check_geometry(file, read.geometry, case.files.prediction, case.geometry)
    return canonical_labels(read.labels, data_set.meaning, ignore_label, str(file))


class _Counter:
    """Adds up the blocks of a structure's channel."""

    def __init__(
        self, labels: list[int], segmentation: Labels, truth: Labels | None, ignored: int, curves: bool
    ) -> None:
        self._labels, self._segmentation = labels, segmentation.reshape(-1)
        self._truth = None if truth is None else truth.reshape(-1)
        self._ignored = ignored if truth is not None and (truth == ignored).any() else None
        self.all = self.counted = StructureSums()
        self.missed = np.zeros(THRESHOLDS.size if curves else 0, np.int64)

    def add(self, part: slice, p: NDArray[np.floating]) -> None:
        """Add a block of probabilities (n,)."""
        mask = np.isin(self._segmentation[part], self._labels)
        self.all += StructureSums.of(p, mask)
        if self._truth is None:
            return
        truth = self._truth[part]
        if self._ignored is not None:
            counted = truth != self._ignored
            self.counted += StructureSums.of(p[counted], mask[counted])
        if self.missed.size:
            self.missed += missed_voxels(p, np.isin(truth, self._labels))

    def truth(self, confusion: NDArray[np.int64] | None) -> TruthCounts | None:
        """What the ground truth says, with the labels' confusion without what is ignored."""
        if confusion is None:
            return None
        sums = self.all if self._ignored is None else self.counted
        shared = int(confusion[np.ix_(self._labels, self._labels)].sum())
        return TruthCounts(sums, int(confusion[self._labels].sum()), shared, tuple(self.missed.tolist()))


def _counted(case: SavedCase, counters: Sequence[_Counter], background: int) -> Blocks:
    """All blocks, checked and counted; a channel of the background is none of a structure."""
    for channel, part, p in case.blocks():
        if channel >= background:
            counters[channel - background].add(part, p)
        yield channel, part, p


def _class_doubt(blocks: Blocks, case: SavedCase, settings: CountSettings) -> tuple[list[DoubtSums], Doubt]:
    """Doubt over near, which the background's channel tells: of the others, only the voxels in it are kept."""
    size, dtype = case.labels.size, np.result_type(case.dtype, np.float32)
    near, core = np.empty(0, bool), np.empty(size, bool)
    top, entropy = np.empty(size, dtype), np.empty(0, dtype)
    for channel, parts in groupby(blocks, itemgetter(0)):
        start = 0
        for _, part, block in parts:
            if channel == 0:
                top[part] = block
                core[part] = 1 - block.astype(np.float64) > CORE_PROBABILITY
                continue
            p = block[near[part]].astype(dtype)
            within = slice(start, start := start + p.size)
            np.maximum(top[within], p, out=top[within])
            entropy[within] += class_entropy(p[None])
        if channel == 0:
            near = near_core(core.reshape(case.labels.shape), case.geometry.spacing, settings.margin_mm).reshape(-1)
            top = top[near]
            entropy = class_entropy(top[None]).astype(dtype)
    sums = [DoubtSums.of(entropy, top)] * (case.shape[0] - 1)
    return sums, Doubt(near.reshape(case.labels.shape), 1 - top)


def _region_doubt(blocks: Blocks, case: SavedCase, settings: CountSettings) -> tuple[list[DoubtSums], Doubt]:
    """Doubt over near each region, which is known when all of its channel has passed. Pictures show the largest."""
    shape, p = case.labels.shape, np.empty(case.labels.size, np.result_type(case.dtype, np.float32))
    sums: list[DoubtSums] = []
    shown, anywhere = np.zeros(p.size, np.float32), np.zeros(p.size, bool)
    for _, parts in groupby(blocks, itemgetter(0)):
        for _, part, block in parts:
            p[part] = block
        core = (p.astype(np.float64) > CORE_PROBABILITY).reshape(shape)
        near = near_core(core, case.geometry.spacing, settings.margin_mm).reshape(-1)
        inside = p[near]
        confidence = np.maximum(inside, 1 - inside)
        sums.append(DoubtSums.of(region_entropy(inside), confidence))
        shown[near] = np.maximum(shown[near], 1 - confidence)
        anywhere |= near
    return sums, Doubt(anywhere.reshape(shape), shown[anywhere])
