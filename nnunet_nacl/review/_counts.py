"""What a review counts of a case, in one pass over its probabilities."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.confidence import (
    DoubtSums,
    MemberOverlap,
    MissedVoxels,
    StructureSums,
    class_entropy,
    region_entropy,
)
from nnunet_nacl.evaluation import (
    CORE_PROBABILITY,
    SavedCase,
    canonical_labels,
    near_core,
)
from nnunet_nacl.metrics import confusion_matrix
from nnunet_nacl.nnunet import (
    BLOCK,
    CaseFiles,
    DataSet,
    LabelMeaning,
    Region,
    check_geometry,
    declared_shape,
    read_labels,
)
from nnunet_nacl.review._pictures import Doubt, SlicePicture, doubtful_slices

Labels = NDArray[np.unsignedinteger]
_THICK = 999
"""How many times the pixel spacing nnU-Net makes the slice spacing of an image of two dimensions."""


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


@dataclass(frozen=True)
class TruthCounts:
    """What the ground truth says of a structure in a case.

    Attributes:
        sums: over the voxels that are not ignored.
        voxels: of the structure, in the ground truth.
        shared: those of them that are segmented.
        missed: how many have p below each of the thresholds of ``MissedVoxels``; empty if that was not counted.
    """

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
    """What is counted of a structure in a case.

    Attributes:
        sums: over all voxels.
        doubt: over near. Classes share it, regions have their own.
        agreement: mean pairwise Dice of the members' segmentations; None without members.
        truth: None without ground truth.
    """

    sums: StructureSums
    doubt: DoubtSums
    agreement: float | None = None
    truth: TruthCounts | None = None


@dataclass(frozen=True)
class CaseCounts:
    """What is counted of a case.

    Attributes:
        voxel_ml: volume of a voxel in ml.
        structures: by name in ``dataset.json``.
        pictures: of its most doubtful slices.
        problems: what of the pictures could not be made, and why.
    """

    voxel_ml: float
    structures: dict[str, StructureCounts]
    pictures: list[SlicePicture] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def voxel_volume_ml(shape: Sequence[int], spacing_mm: Sequence[float]) -> float:
    """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

    Args:
        shape: (Z, Y, X).
        spacing_mm: as nnU-Net's readers give it: 999 times the pixels' for the axis that two dimensions lack.

    >>> voxel_volume_ml((10, 64, 64), (5.0, 1.0, 1.0)), voxel_volume_ml((1, 64, 64), (999.0, 1.0, 1.0))
    (0.005, 0.001)
    """
    steps = list(spacing_mm)
    if shape[0] == 1 and math.isclose(steps[0], _THICK * max(steps[1:]), rel_tol=1e-5):
        steps[0] = 1.0
    return math.prod(steps) / 1000


def count_case(files: CaseFiles, *, data_set: DataSet, settings: CountSettings) -> CaseCounts:
    """Count one case.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    case = SavedCase(files, data_set)
    segmentation, spacing = case.labels, case.geometry.spacing
    truth = None
    if settings.truth:
        truth = _read_like(files.ground_truth, case, data_set, data_set.ignore_label, settings)
    agreement = _agreement(case, data_set, settings)
    counting = _Counting(case, truth, meaning, curves=settings.curves)
    if meaning.regions is None:
        doubts, doubt = _count_classes(counting, spacing, settings)
    else:
        doubts, doubt = _count_regions(counting, meaning.regions, spacing, settings)
    names = [meaning.name_of(structure) for structure in meaning.structures]
    structures = {
        name: StructureCounts(sums, doubts[number], agreement[number] if agreement else None, of_truth)
        for number, (name, sums, of_truth) in enumerate(zip(names, counting.sums(), counting.truths(), strict=True))
    }
    pictures: list[SlicePicture] = []
    problems: list[str] = []
    if doubt is not None and settings.slices:
        pictures, problems = doubtful_slices(
            doubt,
            case,
            images=None if settings.images is None else Path(settings.images),
            reader=data_set.reader,
            number=settings.slices,
            ignore_geometry=settings.ignore_geometry,
        )
    return CaseCounts(voxel_volume_ml(segmentation.shape, spacing), structures, pictures, problems)


def _read_like(
    file: Path, case: SavedCase, data_set: DataSet, ignore_label: int | None, settings: CountSettings
) -> Labels:
    """Canonical labels of another label map of the case, which must lie where its segmentation does."""
    declared = declared_shape(file)
    if declared is None or math.prod(declared) == case.labels.size:  # what is too large is not read
        read = read_labels(file, data_set.reader)
        declared = read.labels.shape
    if declared != case.labels.shape:
        raise ValueError(f"{file}: the shape {declared} does not match the segmentation's, {case.labels.shape}.")
    if not settings.ignore_geometry:
        check_geometry(file, read.geometry, case.files.prediction, case.geometry)
    return canonical_labels(read.labels, data_set.meaning, ignore_label, str(file))


def _labels_of(structure: int | Region) -> list[int]:
    return [structure] if isinstance(structure, int) else list(structure)


def _confusion(first: Labels, second: Labels, meaning: LabelMeaning) -> NDArray[np.int64]:
    highest = max(meaning.ignored, *(max(_labels_of(structure)) for structure in meaning.structures))
    return confusion_matrix(first, second, highest + 1)


def _agreement(case: SavedCase, data_set: DataSet, settings: CountSettings) -> list[float] | None:
    """The members' mean pairwise Dice of each structure."""
    members, meaning = settings.members, data_set.meaning
    if not members:
        return None
    name = case.files.prediction.name
    segmentations = [_read_like(Path(folder) / name, case, data_set, None, settings) for folder in members]
    shared = np.zeros((len(meaning.structures), len(members), len(members)), np.int64)
    for a, first in enumerate(segmentations):
        for b, second in enumerate(segmentations[: a + 1]):
            confusion = _confusion(first, second, meaning)
            for number, structure in enumerate(meaning.structures):
                labels = _labels_of(structure)
                shared[number, a, b] = shared[number, b, a] = confusion[np.ix_(labels, labels)].sum()
    return [MemberOverlap(one).mean_pairwise_dice for one in shared]


class _Counting:
    """Adds up blocks of the channels; one that is the background's is none of a structure.

    Attributes:
        case: with its probabilities.
        shape: (Z, Y, X).
    """

    def __init__(
        self,
        case: SavedCase,
        truth: Labels | None,
        meaning: LabelMeaning,
        *,
        curves: bool,
    ) -> None:
        self.case, self.shape = case, case.labels.shape
        self._segmentation = case.labels.reshape(-1)
        self._truth = None if truth is None else truth.reshape(-1)
        self._meaning, self._curves = meaning, curves
        self._ignores = truth is not None and bool((truth == meaning.ignored).any())
        number = len(meaning.structures)
        self._all = [StructureSums()] * number
        self._counted = [StructureSums()] * number
        none = np.empty(0, np.float32)
        self._missed = [MissedVoxels.of(none, none > 0)] * number

    def blocks(self) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
        """All blocks, checked and counted."""
        background = int(self._meaning.has_background)
        for channel, part, block in self.case.blocks():
            if channel >= background:
                self._add(channel - background, part, block)
            yield channel, part, block

    def _add(self, number: int, part: slice, block: NDArray[np.floating]) -> None:
        structure = self._meaning.structures[number]
        mask = _is_in(self._segmentation[part], structure)
        self._all[number] += StructureSums.of(block, mask)
        if self._truth is None:
            return
        truth = self._truth[part]
        if self._ignores:
            counted = truth != self._meaning.ignored
            self._counted[number] += StructureSums.of(block[counted], mask[counted])
        if self._curves:
            self._missed[number] += MissedVoxels.of(block, _is_in(truth, structure))

    def sums(self) -> list[StructureSums]:
        """Of each structure, over all voxels."""
        return self._all

    def truths(self) -> list[TruthCounts | None]:
        """Of each structure."""
        if self._truth is None:
            return [None] * len(self._all)
        confusion = _confusion(self._truth, self._segmentation, self._meaning)
        confusion[self._meaning.ignored] = 0
        found: list[TruthCounts | None] = []
        for number, structure in enumerate(self._meaning.structures):
            labels = _labels_of(structure)
            sums = self._counted[number] if self._ignores else self._all[number]
            missed = tuple(self._missed[number].missed.tolist()) if self._curves else ()
            shared = int(confusion[np.ix_(labels, labels)].sum())
            found.append(TruthCounts(sums, int(confusion[labels].sum()), shared, missed))
        return found


def _is_in(labels: Labels, structure: int | Region) -> NDArray[np.bool_]:
    return labels == structure if isinstance(structure, int) else np.isin(labels, structure)


def _count_classes(
    counting: _Counting, spacing: Sequence[float], settings: CountSettings
) -> tuple[list[DoubtSums], Doubt | None]:
    """Doubt over near, which the background's channel tells: of the others, only the voxels in it are kept."""
    size, dtype = math.prod(counting.shape), np.result_type(counting.case.dtype, np.float32)
    blocks = counting.blocks()
    background = np.empty(size, dtype)
    core = np.empty(size, bool)
    for _, part, block in islice(blocks, math.ceil(size / BLOCK)):
        background[part] = block
        core[part] = 1 - block.astype(np.float64) > CORE_PROBABILITY
    near = near_core(core.reshape(counting.shape), spacing, settings.margin_mm).reshape(-1)
    top = background[near]
    entropy = class_entropy(top[None]).astype(dtype)
    del background, core
    ends = np.cumsum([0, *(np.count_nonzero(near[start : start + BLOCK]) for start in range(0, size, BLOCK))])
    for _, part, block in blocks:
        number = part.start // BLOCK
        within = slice(ends[number], ends[number + 1])
        p = block[near[part]].astype(dtype)
        np.maximum(top[within], p, out=top[within])
        entropy[within] += class_entropy(p[None])
    doubt = DoubtSums.of(entropy, top)
    number_of_structures = counting.case.shape[0] - 1
    return [doubt] * number_of_structures, Doubt(near.reshape(counting.shape), 1 - top) if settings.slices else None


def _count_regions(
    counting: _Counting, regions: Sequence[Region], spacing: Sequence[float], settings: CountSettings
) -> tuple[list[DoubtSums], Doubt | None]:
    """Doubt over near each region, which is known when all of its channel has passed. Pictures show the largest."""
    size = math.prod(counting.shape)
    blocks = counting.blocks()
    doubts: list[DoubtSums] = []
    shown = np.zeros(size if settings.slices else 0, np.float32)
    anywhere = np.zeros(shown.size, bool)
    for _ in regions:
        p = np.empty(size, np.result_type(counting.case.dtype, np.float32))
        for _, part, block in islice(blocks, math.ceil(size / BLOCK)):
            p[part] = block
        core = (p.astype(np.float64) > CORE_PROBABILITY).reshape(counting.shape)
        near = near_core(core, spacing, settings.margin_mm).reshape(-1)
        inside = p[near]
        confidence = np.maximum(inside, 1 - inside)
        doubts.append(DoubtSums.of(region_entropy(inside), confidence))
        if settings.slices:
            shown[near] = np.maximum(shown[near], 1 - confidence)
            anywhere |= near
    for _ in blocks:  # reading to the end checks the file
        pass
    return doubts, Doubt(anywhere.reshape(counting.shape), shown[anywhere]) if settings.slices else None
