"""The one pass over a case's probabilities that counts.

Each voxel belongs to exactly one cell: the byte of its memberships. Sums are taken for each channel, cell and bin. A
voxel set is some of the cells, and its tables, its tables under perfect calibration and its scores are sums over them.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), background, largest probability and sum (four bytes each): 17 bytes a voxel, however many classes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._compiled import (
    CHANCE,
    CHANCE_CONFIDENCE,
    COLUMNS,
    CONFIDENCE,
    COUNT,
    HITS,
    SQUARES,
    count,
    count_fine,
)
from nnunet_nacl.evaluation._labels import Argmax, GivenLabels, Labels, check_drawn, checked_blocks, labels_given
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import NUM_FINE_BINS, BinCounts, bin_edges
from nnunet_nacl.nnunet import BLOCK, CaseFiles, Channels, LabelMeaning, Region

# Memberships. A voxel that is ignored has none, and is in cell 0.
IMAGE, FOREGROUND, NEAR, PREDICTED = 1, 2, 4, 8
_CELLS = 16
_COUNTED = [cell for cell in range(_CELLS) if cell & IMAGE]
_PREDICTED = [cell for cell in _COUNTED if cell & PREDICTED]
_MEMBERS: dict[Voxels, int] = {"foreground": FOREGROUND, "union": FOREGROUND | PREDICTED, "near": NEAR, "image": IMAGE}
_BY_LABEL = {"foreground", "union"}

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """A case to count.

    Attributes:
        channels: softmax (K, *spatial) or sigmoid (R, *spatial) probabilities.
        labels: (*spatial) canonical ground truth labels.
        meaning: of the labels.
        spacing: distance between voxel centers along each axis, in mm.
        settings: which tables, with which bins.
        saved: (*spatial) canonical labels of the segmentation.
        files: of which it is said that the segmentation is not what the probabilities give; None if it may be any.
    """

    channels: Channels
    labels: Labels
    meaning: LabelMeaning
    spacing: Sequence[float]
    settings: Settings
    saved: Labels
    files: CaseFiles | None = None

    @property
    def dtype(self) -> "np.dtype[np.floating]":
        return np.result_type(self.channels.dtype, np.float32)

    @property
    def edges(self) -> NDArray[np.floating]:
        """Of the bins of p_k, as they are in the file's dtype."""
        return bin_edges(self.settings.num_bins, self.channels.dtype).astype(self.dtype)

    def given(self) -> GivenLabels:
        assert self.files is not None
        name = str(self.files.prediction)
        return labels_given(self.saved.reshape(-1), self.meaning, self.files.thresholds, self.dtype, name)

    def check_saved(self, given: GivenLabels) -> None:
        assert self.files is not None
        check_drawn(given.labels(), self.saved.reshape(-1), self.files, is_empty=not self.saved.any())

    def near(self, probabilities: NDArray[np.floating], *, complement: bool) -> NDArray[np.bool_]:
        """(n,) where p (n,), or 1 − p, exceeds the core's probability, and around that."""
        core = np.empty(probabilities.size, bool)
        for part in _parts(core.size):
            exact = probabilities[part].astype(np.float64)
            core[part] = (1 - exact if complement else exact) > CORE_PROBABILITY
        return near_core(core.reshape(self.labels.shape), self.spacing, self.settings.margin_mm).reshape(-1)


def count_case(task: Task) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set.

    Raises:
        ValueError: values that are no probabilities, or that do not give the segmentation.
    """
    return _count_classes(task) if task.meaning.regions is None else _count_regions(task, task.meaning.regions)


def _count_classes(task: Task) -> dict[Voxels, CalibrationTables]:
    """Where a structure is predicted must be known from the start, but shows only when all channels have passed.

    So it is taken from the segmentation, and where that was wrong (postprocessing), the channels are read once more.
    """
    settings, labels = task.settings, task.labels.reshape(-1)
    predicted = task.saved.reshape(-1)
    while True:
        argmax, cells, background, sums = _count_channels(task, predicted)
        wrong = (argmax.label > 0) != (cells & PREDICTED > 0)
        wrong &= cells > 0
        if not _BY_LABEL & set(settings.voxels) or not wrong.any():
            break
        predicted, task = argmax.label, replace(task, files=None)
        del argmax, cells, background, sums
    for part in _parts(labels.size):
        right = argmax.label[part] == labels[part]
        sums.add_top(0, argmax.largest[part], right, cells[part], background[part], task.edges)
    num_classes = task.meaning.num_channels
    if settings.protocol == "authors":  # those up to the highest label of the case
        num_classes = int(labels[labels != task.meaning.ignored].max(initial=0)) + 1
    return sums.tables(settings, num_classes, has_background=True)


def _count_channels(task: Task, predicted: Labels) -> tuple[Argmax, NDArray[np.uint8], NDArray[np.floating], "_Sums"]:
    """One pass, structures being predicted where ``predicted`` (n,) is above 0.

    Returns:
        The argmax, (n,) cells, (n,) background, and the sums of each channel.
    """
    labels, edges, drop_zeros = task.labels.reshape(-1), task.edges, not task.settings.counts_all_voxels
    cells = (labels > 0).view(np.uint8) * np.uint8(FOREGROUND)
    cells |= (predicted > 0).view(np.uint8) * np.uint8(PREDICTED)
    cells |= np.uint8(IMAGE)
    cells *= labels != task.meaning.ignored
    sums = _Sums(task.channels.shape[0], 1, task.settings.num_bins)
    argmax = Argmax(task.saved.reshape(-1), task.dtype)
    given = argmax if task.files is None or task.files.thresholds is None else task.given()
    background = np.empty(labels.size, task.dtype)
    blocks = checked_blocks(task.channels, regions=False)
    for _, part, block in islice(blocks, len(_parts(labels.size))):
        background[part] = block
        argmax.add(0, part, block)
    if "near" in task.settings.voxels:
        near = task.near(background, complement=True).view(np.uint8)
        near &= cells  # of which IMAGE is the lowest bit, as of True
        near *= np.uint8(NEAR)
        cells |= near

    def add(channel: int, part: slice, values: NDArray[np.floating]) -> None:
        hits, table = labels[part] == channel, sums.classwise[channel]
        count(values, hits, cells[part], background[part], edges, drop_zeros, False, table, sums.logs[0])

    for part in _parts(labels.size):
        add(0, part, background[part])
    for channel, part, block in blocks:
        argmax.add(channel, part, block)
        if given is not argmax:
            given.add(channel, part, block)
        add(channel, part, block)
    if task.files is not None:
        task.check_saved(given)
    return argmax, cells, background, sums


def _count_regions(task: Task, regions: Sequence[Region]) -> dict[Voxels, CalibrationTables]:
    """Each region stands for itself.

    Of region r: foreground, y in r; union, y in r or p_r > 1/2; near, around p_r > 0.05; image, all.
    """
    labels, drop_zeros = task.labels.reshape(-1), not task.settings.counts_all_voxels
    counted = labels != task.meaning.ignored
    edges, top_edges = task.edges, bin_edges(task.settings.num_bins, task.dtype)
    sums = _Sums(len(regions), len(regions), task.settings.num_bins)
    given = None if task.files is None else task.given()
    blocks = checked_blocks(task.channels, regions=True)
    values, near = np.empty(labels.size, task.dtype), np.zeros(labels.size, bool)
    for number, region in enumerate(regions):
        for _, part, block in islice(blocks, len(_parts(labels.size))):
            values[part] = block
            if given is not None:
                given.add(number, part, block)
        if "near" in task.settings.voxels:  # known only when all of the channel has passed
            near = task.near(values, complement=False)
        for part in _parts(labels.size):
            p = values[part].astype(np.float64)
            inside, predicted = np.isin(labels[part], region), p > 0.5
            cells = np.full(p.size, IMAGE, np.uint8)
            for member, chosen in ((FOREGROUND, inside), (PREDICTED, predicted), (NEAR, near[part])):
                cells |= chosen.view(np.uint8) * np.uint8(member)
            cells *= counted[part]
            table, logs = sums.classwise[number], sums.logs[number]
            count(values[part], inside, cells, 1 - p, edges, drop_zeros, True, table, logs)
            # 1 - p is not rounded to the dtype of the file. Confidences are binned in it, where k/M is on an edge.
            sums.add_top(number, np.maximum(p, 1 - p), predicted == inside, cells, 1 - p, top_edges)
    for _ in blocks:  # reading to the end checks the file
        pass
    if given is not None:
        task.check_saved(given)
    return sums.tables(task.settings, len(regions), has_background=False)


class _Sums:
    """What the loops add to: of each channel, and of the T top-label tables (one, or one for each region)."""

    def __init__(self, channels: int, tops: int, num_bins: int) -> None:
        self.classwise = np.zeros((channels, _CELLS, num_bins + 1, COLUMNS))
        self.logs = np.tile([0.0, 1.0], (tops, _CELLS, 1))
        self._top = np.zeros((tops, _CELLS, num_bins + 1, COLUMNS))
        self._fine = np.zeros((tops, _CELLS, NUM_FINE_BINS, 3))

    def add_top(  # noqa: PLR0917 - as of the loop
        self,
        number: int,
        confidences: NDArray[np.floating],
        right: NDArray[np.bool_],
        cells: NDArray[np.uint8],
        background: NDArray[np.floating],
        edges: NDArray[np.floating],
    ) -> None:
        """Add top-label confidences (n,) to table ``number``; they are never 0."""
        unused = np.ones((_CELLS, 2))
        count(confidences, right, cells, background, edges, False, False, self._top[number], unused)
        count_fine(confidences, right, cells, self._fine[number])

    def tables(self, settings: Settings, num_classes: int, *, has_background: bool) -> dict[Voxels, CalibrationTables]:
        """The tables of each voxel set."""
        nll = -(self.logs[..., 0] + np.log(self.logs[..., 1]))
        brier = self.classwise[..., SQUARES].sum(-1)
        if has_background:
            brier = brier.sum(0, keepdims=True)
        found = {}
        for voxels in settings.voxels:
            inside = [cell for cell in _COUNTED if cell & _MEMBERS[voxels]]
            fine = self._fine[:, inside].sum(1)
            expected = settings.protocol == "standard" and voxels in _BY_LABEL
            found[voxels] = CalibrationTables(
                top=_counted(self._top[:, inside].sum(1)),
                classwise=_counted(self.classwise[:, inside].sum(1)),
                fine=BinCounts(_whole(fine[..., 0]), _whole(fine[..., 1]), fine[..., 2], np.zeros(len(fine), np.int64)),
                nll=nll[:, inside].sum(1),
                brier=brier[:, inside].sum(1),
                num_classes=num_classes,
                has_background=has_background,
                image_voxels=_whole(self._top[..., COUNT][:, _COUNTED].sum((1, 2))),
                expected_top=_expected(self._top, voxels, [_PREDICTED] * len(self._top)) if expected else None,
                expected_classwise=self._expected_classwise(voxels, has_background) if expected else None,
            )
        return found

    def _expected_classwise(self, voxels: Voxels, has_background: bool) -> BinCounts:
        """A hit of a structure lies in the foreground; the background's, in the union if a structure is predicted."""
        hits = [_COUNTED] * len(self.classwise)
        if has_background:
            hits[0] = _PREDICTED if voxels == "union" else []
        return _expected(self.classwise, voxels, hits)


def _counted(sums: Sums) -> BinCounts:
    """Tables (T, M) from sums (T, M + 1, COLUMNS), whose last row holds p = 0 where that is left out."""
    bins = sums[:, :-1]
    return BinCounts(
        _whole(bins[..., COUNT]), _whole(bins[..., HITS]), bins[..., CONFIDENCE], _whole(sums[:, -1, COUNT])
    )


def _expected(sums: Sums, voxels: Voxels, hit_cells: list[list[int]]) -> BinCounts:
    """Tables (T, M) that are expected if the labels are drawn from the probabilities.

    A voxel is in the foreground with probability q; in the union too, unless it is predicted and so surely there. In
    the cells given for each table, it is there and right with probability c.
    """
    surely = _PREDICTED if voxels == "union" else []
    sure = sums[:, surely, :-1].sum(1)
    perhaps = sums[:, [cell for cell in _COUNTED if cell not in surely], :-1].sum(1)
    return BinCounts(
        perhaps[..., CHANCE] + sure[..., COUNT],
        np.stack([table[cells, :-1].sum(0)[:, CONFIDENCE] for table, cells in zip(sums, hit_cells, strict=True)]),
        perhaps[..., CHANCE_CONFIDENCE] + sure[..., CONFIDENCE],
        np.zeros(len(sums), np.int64),
    )


def _whole(sums: Sums) -> NDArray[np.int64]:
    return sums.astype(np.int64)


def _parts(size: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
