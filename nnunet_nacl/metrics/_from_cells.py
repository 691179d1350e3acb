"""From the sums of a case by cell to its counts, and to the tables of each voxel set."""

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._cells import (
    CHANCE,
    CONFIDENCE,
    COUNT,
    ENTROPY,
    FOREGROUND,
    HIT,
    IMAGE,
    LOGS,
    NEAR,
    NUM_CELLS,
    PREDICTED,
    PRODUCTS,
    SEGMENTED,
    SQUARES,
    CellSums,
)
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._counts import Counts, Doubt, StructureSums, TruthCounts
from nnunet_nacl.metrics._settings import BY_LABEL, VOXEL_SETS, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats, Mask

_CELLS = np.arange(NUM_CELLS)
_COUNTED = _CELLS & IMAGE > 0
_HIT = _CELLS & HIT > 0
_SEGMENTED = _CELLS & SEGMENTED > 0
_PREDICTED = _COUNTED & (_CELLS & PREDICTED > 0)
_MEMBERS: dict[Voxels, int] = {
    "foreground": FOREGROUND,
    "union": FOREGROUND | PREDICTED,
    "near": NEAR,
    "image": IMAGE,
}


def counts_of(sums: CellSums, by_argmax: CellSums, voxel_ml: float, *, has_truth: bool) -> Counts:
    """Return the counts of one case.

    Its tables, and which voxels are near, follow from the sums by the argmax, which postprocessing does not change.
    """
    first = sums.first
    voxels = sums.channels[..., COUNT].sum(2).astype(np.int64)
    of_image = voxels[0]
    of_structures = voxels[first:]
    truth = TruthCounts(
        ignored=np.array(1 - of_image[_COUNTED].sum() / max(of_image.sum(), 1)),
        sums=_structure_sums(sums, _COUNTED, sums.highest[1]),
        voxels=of_structures[:, _HIT].sum(1),
        found=of_structures[:, _HIT & _SEGMENTED].sum(1),
        missed=sums.reached[first:, :-1].cumsum(1),
    )
    case = Counts(
        structures=tuple(sums.meaning.structures),
        voxel_ml=np.array(voxel_ml),
        sums=_structure_sums(sums, np.ones_like(_COUNTED), sums.highest[0]),
        doubt=_doubt(by_argmax),
        truth=truth if has_truth else None,
        calibration=_tables(by_argmax) if has_truth else {},
        segmentation_metrics={},
    )
    return each_column(lambda column: column[np.newaxis], case)


def _structure_sums(sums: CellSums, cells: Mask, highest: Floats) -> StructureSums:
    """Sum over the voxels of some cells."""
    first = sums.first
    by_cell = sums.channels[first:].sum(2)
    return StructureSums(
        probability=by_cell[:, cells, CONFIDENCE].sum(1),
        segmented=by_cell[:, cells & _SEGMENTED, COUNT].sum(1).astype(np.int64),
        overlap=by_cell[:, cells & _SEGMENTED, CONFIDENCE].sum(1),
        max_probability=highest[first:],
    )


def _doubt(by_argmax: CellSums) -> Doubt:
    unsure = by_argmax.unsure[by_argmax.first :]
    is_near = _CELLS & NEAR > 0
    top = _top(by_argmax)[:, is_near].sum((1, 2))
    voxels = top[:, COUNT]
    terms = by_argmax.channels[..., ENTROPY] + by_argmax.rests[..., ENTROPY]
    entropy = -terms[:, is_near].sum((1, 2))
    return Doubt(
        unsure=unsure,
        near=np.broadcast_to(voxels.astype(np.int64), unsure.shape),
        errors=np.broadcast_to(voxels - top[:, CONFIDENCE], unsure.shape),
        entropy=np.broadcast_to(_by_prediction(by_argmax, entropy), unsure.shape),
    )


def _by_prediction(sums: CellSums, channels: Floats) -> Floats:
    """Sum channels (C, ...) to predictions (T, ...): classes share one."""
    shared: Floats = channels.sum(0, keepdims=True)
    return shared if sums.meaning.activation.exclusive else channels


def _top(by_argmax: CellSums) -> Floats:
    """Return the sums of the confidence, the probability of what is predicted: (T, NUM_CELLS, M + 1, COLUMNS)."""
    chosen = _CELLS & (SEGMENTED if by_argmax.meaning.activation.exclusive else PREDICTED) > 0
    return _by_prediction(
        by_argmax, np.where(chosen[:, np.newaxis, np.newaxis], by_argmax.channels, by_argmax.rests)
    )


def _tables(by_argmax: CellSums) -> dict[Voxels, CalibrationTables]:
    """Return the tables of each voxel set."""
    is_standard = by_argmax.settings.protocol == "standard"
    activation = by_argmax.meaning.activation
    channels = by_argmax.channels.copy()
    top = _top(by_argmax)
    num_classes = len(channels)
    if is_standard:  # p = 0 is in the first bin
        for by_bin in (channels, top):
            by_bin[..., 1, :] += by_bin[..., 0, :]
            by_bin[..., 0, :] = 0
    elif activation.exclusive:
        # Those up to the highest label of the case
        has_hits = channels[:, _HIT].any((1, 2, 3))
        num_classes = int(np.flatnonzero(has_hits).max(initial=0)) + 1
    logs = (by_argmax.channels[..., LOGS] + by_argmax.rests[..., LOGS]).sum(2)
    found = {}
    for voxels in VOXEL_SETS:
        inside = _COUNTED & (_CELLS & _MEMBERS[voxels] > 0)
        # Σ(c − hit)² = Σc² − 2 Σ c·hit + Σ hit; of classes, over the channels
        all_of_set = channels[:, inside].sum((1, 2))
        hits = channels[:, inside & _HIT].sum((1, 2))
        brier = all_of_set[:, SQUARES] - 2 * hits[:, CONFIDENCE] + hits[:, COUNT]
        expected: dict[str, BinCounts] = {}
        if is_standard and voxels in BY_LABEL:  # other sets have no closed form
            surely = _PREDICTED & (voxels == "union")
            right = np.tile(_COUNTED, (len(channels), 1))
            # Only voxels that are surely in the set can be background
            right[: by_argmax.first] = surely
            expected = {
                "expected_top": _expected(top, surely, _PREDICTED[np.newaxis]),
                "expected_classwise": _expected(channels, surely, right),
            }
        found[voxels] = CalibrationTables(
            top=_observed(top, inside),
            classwise=_observed(channels, inside),
            nll=-_by_prediction(by_argmax, logs[:, inside & _HIT].sum(1)),
            brier=_by_prediction(by_argmax, brier),
            num_classes=np.array(num_classes),
            activation=activation,
            image_voxels=top[..., COUNT][:, _COUNTED].sum((1, 2)).astype(np.int64),
            **expected,
        )
    return found


def _observed(sums: Floats, inside: Mask) -> BinCounts:
    """Sum some cells of sums (T, NUM_CELLS, M + 1, COLUMNS) to tables (T, M); row 0 is p = 0 if that has no bin."""
    of_set = sums[:, inside].sum(1)
    count = of_set[..., COUNT].astype(np.int64)
    hits = sums[:, inside & _HIT].sum(1)[..., COUNT].astype(np.int64)
    return BinCounts(count[:, 1:], hits[:, 1:], of_set[:, 1:, CONFIDENCE], count[:, 0])


def _expected(sums: Floats, surely: Mask, right: Mask) -> BinCounts:
    """Compute the tables (T, M) that are expected if the labels are drawn from the probabilities.

    A voxel is in the foreground with probability q; the union surely holds what is predicted, and other voxels with
    probability q. With probability c a voxel is in the set, and right.

    Args:
        sums: (T, NUM_CELLS, M + 1, COLUMNS).
        surely: (NUM_CELLS,) cells that are in the set whatever the labels.
        right: (T or 1, NUM_CELLS) cells of which a voxel, if it is right, is in the set.
    """
    sure = sums[:, surely, 1:].sum(1)
    perhaps = sums[:, _COUNTED & ~surely, 1:].sum(1)
    hits = (sums[:, :, 1:, CONFIDENCE] * right[..., None]).sum(1)
    voxels = perhaps[..., CHANCE] + sure[..., COUNT]
    confidence = perhaps[..., PRODUCTS] + sure[..., CONFIDENCE]
    return BinCounts(voxels, hits, confidence, np.zeros(len(sums), np.int64))
