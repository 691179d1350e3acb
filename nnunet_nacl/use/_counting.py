"""What a review counts of a case, channel by channel; finished cases are kept in a journal."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.cases import Journal, Skipped, each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import file_state, read_json
from nnunet_nacl.metrics import CORE_PROBABILITY, MARGIN_MM, Activation, near_core
from nnunet_nacl.nnunet import CaseFiles, DataSet
from nnunet_nacl.typing import Floats, Labels, Mask
from nnunet_nacl.use._conformal import missed_voxels
from nnunet_nacl.use._pictures import doubtful_slices
from nnunet_nacl.use._quantities import (
    StructureSums,
    entropy_term,
    labels_of,
    mean_pairwise_dice,
    region_entropy,
    whole_channels,
)

# Times the pixel spacing nnU-Net makes the slice spacing of an image of two dimensions
_THICK = 999


@dataclass(frozen=True)
class CountSettings:
    """What is counted of a case: agreement of members (their folders), ground truth, pictures of doubtful slices."""

    members: tuple[str, ...] = ()
    truth: bool = False
    slices: int = 0
    images: str | None = None


@dataclass(frozen=True)
class TruthCounts:
    """What the ground truth says of a structure in a case, over the voxels that are not ignored.

    ``voxels`` is the size of the structure, ``dice`` that of the segmentation, 1 where the structure is in neither, and
    ``missed`` (T,) how many of its voxels masks of p ≥ threshold miss, for ``THRESHOLDS``.
    """

    sums: StructureSums
    voxels: int
    dice: float
    missed: tuple[int, ...]


@dataclass(frozen=True)
class StructureCounts:
    """What is counted of a structure in a case: sums over all voxels, means of doubt over near, which classes share.

    Doubt is 1 − confidence, the error rate to expect, and entropy in nats; None where no voxel is near.
    """

    case: str
    structure: str
    voxel_ml: float
    sums: StructureSums
    mean_error: float | None
    mean_entropy: float | None
    agreement: float | None
    truth: TruthCounts | None


@dataclass(frozen=True)
class CountedCase:
    """A case: what it was counted from, its structures, and the pictures for its page with what they lack."""

    case: str
    inputs: str
    structures: list[StructureCounts]
    pictures: list[dict[str, Any]]
    problems: list[str]


def count_cases(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    settings: CountSettings,
    *,
    output: Path,
    num_processes: int,
) -> tuple[dict[str, CountedCase], list[Skipped], Journal[CountedCase]]:
    """Count each case that is not in the journal of the output, where a process that was killed has left it."""
    journal = Journal(output, _save, partial(read_json, kind=CountedCase))
    kept = {case.case: case for case in journal.finished()}
    inputs = {case.name: _inputs(case, data_set, settings) for case in cases}
    done = {
        name: kept[name] for name in inputs if name in kept and kept[name].inputs == inputs[name]
    }
    left = [case for case in cases if case.name not in done]
    work = partial(_count, data_set=data_set, settings=settings)
    new, skipped = each_case(
        left,
        work,
        doing="reviewing",
        num_processes=num_processes,
        journal=journal,
        finished=len(done),
    )
    if not done | new:
        raise ValueError(
            f"None of {len(cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}"
        )
    return dict(sorted((done | new).items())), skipped, journal


def _save(case: CountedCase, file: Path) -> None:
    file.write_text(json.dumps(asdict(case), allow_nan=False))


def _inputs(files: CaseFiles, data_set: DataSet, settings: CountSettings) -> str:
    """All that the counts of a case depend on, its files by their size and time of change."""
    others = [Path(folder) / files.prediction.name for folder in settings.members]
    if settings.images is not None:
        others.append(first_channel(files, Path(settings.images)))
    labels = (data_set.labels, data_set.meaning.written)
    reader = data_set.reader.name
    return json.dumps(
        [
            __version__,
            asdict(settings),
            labels,
            reader,
            files.states(),
            [file_state(file) for file in others],
        ]
    )


def first_channel(files: CaseFiles, images: Path) -> Path:
    """A case's image, or of several channels the first."""
    return images / f"{files.name}_0000{files.prediction.name.removeprefix(files.name)}"


def voxel_volume_ml(shape: Sequence[int], spacing_mm: Sequence[float]) -> float:
    """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

    >>> voxel_volume_ml((10, 64, 64), (5.0, 1.0, 1.0)), voxel_volume_ml((1, 64, 64), (999.0, 1.0, 1.0))
    (0.005, 0.001)
    """
    steps = list(spacing_mm)
    if shape[0] == 1 and math.isclose(steps[0], _THICK * max(steps[1:]), rel_tol=1e-5):
        steps[0] = 1.0
    return math.prod(steps) / 1000


def _count(files: CaseFiles, *, data_set: DataSet, settings: CountSettings) -> CountedCase:
    """Count one case; raises an OSError or a ValueError if a file is missing, damaged, or does not fit the others."""
    inputs = _inputs(files, data_set, settings)
    meaning = data_set.meaning
    case = SavedCase(files, data_set)
    truth = case.read_truth()[0].reshape(-1) if settings.truth else None
    members = [
        case.read_like(Path(folder) / files.prediction.name)[0] for folder in settings.members
    ]
    agreement = (
        mean_pairwise_dice(members, meaning) if members else (None,) * len(meaning.structures)
    )
    voxel_ml = voxel_volume_ml(case.labels.shape, case.geometry.spacing)
    doubt = _Doubt(case, meaning.activation)
    rows: list[StructureCounts] = []
    for channel, p in whole_channels(case):
        error, entropy = doubt.add(p)
        if channel < meaning.activation.first_structure:
            continue
        structure = meaning.structures[len(rows)]
        name = meaning.name_of(structure)
        labels = labels_of(structure)
        mask = np.isin(case.labels.reshape(-1), labels)
        counted = None if truth is None else _truth_counts(p, mask, truth, labels, meaning.ignored)
        sums = StructureSums.of(p, mask)
        agree = agreement[len(rows)]
        rows.append(
            StructureCounts(files.name, name, voxel_ml, sums, error, entropy, agree, counted)
        )
    # The doubt of classes, which they share, is known after the last one
    if meaning.activation is Activation.SOFTMAX:
        rows = [replace(row, mean_error=error, mean_entropy=entropy) for row in rows]
    image = None if settings.images is None else first_channel(files, Path(settings.images))
    shown = doubt.picture.reshape(case.labels.shape)
    pictures, problems = doubtful_slices(
        shown, case, image, data_set.reader, number=settings.slices
    )
    return CountedCase(files.name, inputs, rows, pictures, problems)


def _truth_counts(
    p: Floats, mask: Mask, truth: Labels, labels: list[int], ignored: int
) -> TruthCounts:
    inside = np.isin(truth, labels)
    counted = truth != ignored
    missed = missed_voxels(p, inside)
    if not counted.all():
        p = p[counted]
        mask = mask[counted]
        inside = inside[counted]
    sums = StructureSums.of(p, mask)
    voxels = int(np.count_nonzero(inside))
    size = voxels + sums.segmented
    dice = 2 * int(np.count_nonzero(inside & mask)) / size if size else 1.0
    return TruthCounts(sums, voxels, dice, tuple(missed.tolist()))


class _Doubt:
    """1 − confidence and entropy over near: of classes, which the background tells, together; of regions, of each.

    ``picture`` (n,) has the former, of regions the largest.
    """

    def __init__(self, case: SavedCase, activation: Activation) -> None:
        self._case = case
        self._activation = activation
        self.picture = np.zeros(case.labels.size, np.float32)
        self._near: Mask | None = None

    def add(self, p: Floats) -> tuple[float | None, float | None]:
        """Add the next channel (n,); returns mean error and entropy of this region, or of the classes up to this."""
        is_region = self._activation is Activation.SIGMOID
        if self._near is None or is_region:
            core = self._activation.foreground(p) > CORE_PROBABILITY
            near = near_core(
                core.reshape(self._case.labels.shape), self._case.geometry.spacing, MARGIN_MM
            )
            self._near = near.reshape(-1)
            self._top, self._entropy = np.zeros((2, np.count_nonzero(near)), p.dtype)
        inside = p[self._near]
        if is_region:
            confidence = np.maximum(inside, 1 - inside)
            entropy = region_entropy(inside)
            self.picture[self._near] = np.maximum(self.picture[self._near], 1 - confidence)
        else:
            confidence = self._top = np.maximum(self._top, inside)
            entropy = self._entropy = (self._entropy + entropy_term(inside)).astype(p.dtype)
            self.picture[self._near] = 1 - confidence
        if not inside.size:
            return None, None
        return 1 - float(confidence.mean(dtype=np.float64)), float(entropy.mean(dtype=np.float64))
