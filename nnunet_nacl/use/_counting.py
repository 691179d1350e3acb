"""What a review counts in a case, channel by channel; a journal keeps finished cases."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.cases import Journal, Skipped, check_any_used, each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import file_state, only_writer, read_json, write_json
from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    LabelMeaning,
    Structure,
    above,
    near_core,
    region_of,
)
from nnunet_nacl.nnunet import CaseFiles, DataSet
from nnunet_nacl.typing import Floats, Labels, Mask, Record
from nnunet_nacl.use._conformal import missed_voxels
from nnunet_nacl.use._doubt import doubtful_slices
from nnunet_nacl.use._quantities import (
    StructureSums,
    add_confidence,
    add_entropy,
    mean_pairwise_dice,
    whole_channels,
)

# nnU-Net gives a 2D image a slice spacing of this factor times the pixel spacing
_THICK = 999


@dataclass(frozen=True)
class CountSettings:
    """What to count in a case: agreement of members (their folders), ground truth, pictures of uncertain slices."""

    members: tuple[str, ...] = ()
    truth: bool = False
    slices: int = 0
    images: str | None = None


@dataclass(frozen=True)
class TruthCounts:
    """What the ground truth says about a structure in a case, over the voxels that are not ignored.

    ``ignored`` is the share of the image's voxels that are: if it is above 0, the structure's true size is unknown.
    ``voxels`` is the size of the structure, ``dice`` that of the segmentation, 1 where the structure is in neither, and
    ``missed`` (T,) how many of its voxels masks of p ≥ threshold miss, for ``THRESHOLDS``.
    """

    ignored: float
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
    """A case: the files it was counted from, its structures, and its pictures for the page with what they lack."""

    case: str
    inputs: str
    structures: list[StructureCounts]
    pictures: list[Record]
    problem: str | None


@contextmanager
def counted_cases(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    settings: CountSettings,
    *,
    output: Path,
    num_processes: int,
) -> Iterator[tuple[dict[str, CountedCase], list[Skipped]]]:
    """The counted and the skipped cases; while active, the caller writes the output, and no other process does.

    Until then a journal keeps the counted cases, from which the next process takes them if this one is killed.
    """
    with only_writer(output):
        journal = Journal(output, _save, partial(read_json, kind=CountedCase))
        inputs = {case.name: _inputs(case, data_set, settings) for case in cases}
        done = {
            case.case: case for case in journal.finished() if case.inputs == inputs.get(case.case)
        }
        counted, skipped = each_case(
            cases,
            partial(_count, data_set=data_set, settings=settings),
            doing="reviewing",
            num_processes=num_processes,
            journal=journal,
            known=done,
        )
        check_any_used(counted, skipped)
        yield counted, skipped
        journal.remove()


def _save(case: CountedCase, file: Path) -> None:
    write_json(file, asdict(case))


def _inputs(files: CaseFiles, data_set: DataSet, settings: CountSettings) -> str:
    """Everything that the counts of a case depend on, with its files' size and time of change."""
    others = [Path(folder) / files.prediction.name for folder in settings.members]
    if settings.images is not None:
        others.append(first_channel(files, Path(settings.images)))
    content = [
        __version__,
        asdict(settings),
        data_set.labels,
        data_set.meaning.written,
        data_set.reader.name,
        files.states(),
        [file_state(file) for file in others],
    ]
    return json.dumps(content)


def first_channel(files: CaseFiles, images: Path) -> Path:
    """A case's image, or the first of several channels."""
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
    activation = meaning.activation
    case = SavedCase(files, data_set)
    truth = case.read_truth()[0].reshape(-1) if settings.truth else None
    members = [
        case.read_like(Path(folder) / files.prediction.name)[0] for folder in settings.members
    ]
    agreement = mean_pairwise_dice(members, meaning) if members else None
    voxel_ml = voxel_volume_ml(case.labels.shape, case.geometry.spacing)
    doubt = np.zeros(case.labels.shape, np.float32)
    rows: list[StructureCounts] = []
    for channel, p, error, entropy in _channels_with_doubt(case, activation, doubt.reshape(-1)):
        number = channel - activation.first_structure
        if number < 0:
            continue
        structure = meaning.structures[number]
        mask = _mask(case.labels.reshape(-1), p, number, files, meaning)
        rows.append(
            StructureCounts(
                case=files.name,
                structure=meaning.name_of(structure),
                voxel_ml=voxel_ml,
                sums=StructureSums.of(p, mask),
                mean_error=error,
                mean_entropy=entropy,
                agreement=None if agreement is None else agreement[number],
                truth=None
                if truth is None
                else _truth_counts(p, mask, truth, structure, meaning.ignored),
            )
        )
    # The doubt, which all classes share, is known only after the last class
    if activation is Activation.SOFTMAX:
        rows = [replace(row, mean_error=error, mean_entropy=entropy) for row in rows]
    image = None if settings.images is None else first_channel(files, Path(settings.images))
    pictures, problem = doubtful_slices(doubt, case, image, data_set.reader, number=settings.slices)
    return CountedCase(files.name, inputs, rows, pictures, problem)


def _mask(labels: Labels, p: Floats, number: int, files: CaseFiles, meaning: LabelMeaning) -> Mask:
    """Where the segmentation has a structure; of regions that label maps cannot hold, p above its threshold."""
    if not meaning.lost_regions:
        return np.isin(labels, region_of(meaning.structures[number]))
    return above(p, 0.5 if files.thresholds is None else files.thresholds[number])


def _truth_counts(
    p: Floats, mask: Mask, truth: Labels, structure: Structure, ignored: int
) -> TruthCounts:
    counted = truth != ignored
    p = p[counted]
    mask = mask[counted]
    inside = np.isin(truth[counted], region_of(structure))
    sums = StructureSums.of(p, mask)
    voxels = int(np.count_nonzero(inside))
    size = voxels + sums.segmented
    dice = 2 * int(np.count_nonzero(inside & mask)) / size if size else 1.0
    missed = tuple(missed_voxels(p, inside).tolist())
    return TruthCounts(1 - float(counted.mean()), sums, voxels, dice, missed)


def _channels_with_doubt(
    case: SavedCase, activation: Activation, picture: Floats
) -> Iterator[tuple[int, Floats, float | None, float | None]]:
    """Number and probabilities (n,) of each channel, and over near the means of 1 − confidence and of entropy.

    The means are those of a region, or of the classes up to this one, whose near the background tells. In ``picture``
    (n,) they leave 1 − confidence, of regions the largest.
    """
    is_region = activation is Activation.SIGMOID
    for channel, p in whole_channels(case):
        if is_region or channel == 0:
            core = (activation.foreground(p) > CORE_PROBABILITY).reshape(case.labels.shape)
            near = near_core(core, case.geometry.spacing, MARGIN_MM).reshape(-1)
            # Of a region it falls from 1, of classes it rises from 0
            confidence = np.full(np.count_nonzero(near), is_region, p.dtype)
            entropy: Floats = np.zeros(confidence.size)
        inside = p[near]
        confidence = add_confidence(confidence, inside, activation)
        entropy = add_entropy(entropy, inside, activation)
        doubt = 1 - confidence
        picture[near] = np.maximum(picture[near], doubt) if is_region else doubt
        if inside.size:
            error = 1 - float(confidence.mean(dtype=np.float64))
            yield channel, p, error, float(entropy.mean())
        else:
            yield channel, p, None, None
