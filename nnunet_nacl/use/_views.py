"""Cases as a reviewer views them: their most doubtful slices, and how far members of an ensemble agree on each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnunet_nacl.case_loop import check_any_used, each_case
from nnunet_nacl.evaluation import FolderResult, SavedCase
from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    mean_pairwise_dice,
    near_core,
    whole_channels,
)
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions, first_channel
from nnunet_nacl.pictures import Picture, png, smaller, window_around
from nnunet_nacl.typing import Floats

_NUM_SLICES = 3  # of each case on the page
_SPREAD = 1 / 16  # slices of one case are at least this share of the image's depth apart
_IN_PICTURE = 0.1  # voxels with more doubt are not cropped away
_COLOR = (255, 40, 40)  # of doubt
FULL_DOUBT = 0.5
"""The doubt that is drawn strongest; the image still shows through."""


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


class View(NamedTuple):
    """A case as it is looked at.

    Attributes:
        agreement: of the members on each structure; NaN without members.
        slices: with pictures, those to show.
        problem: the reason why its image is not shown, if it should be.
    """

    agreement: tuple[float, ...]
    slices: list[DoubtfulSlice]
    problem: str | None


def view_cases(
    counted: FolderResult,
    predictions: Predictions,
    *,
    members: Sequence[Predictions],
    images: str | Path | None,
    with_pictures: bool,
    num_processes: int,
) -> tuple[dict[str, View], FolderResult]:
    """View the cases; also returns the result with those alone that could be viewed."""
    views, failed = each_case(
        {name: predictions.by_name[name] for name in counted.cases},
        partial(
            _view,
            data_set=predictions.data_set,
            members=members,
            images=None if images is None else Path(images).resolve(),
            with_pictures=with_pictures,
        ),
        doing="drawing",
        num_processes=num_processes,
    )
    check_any_used(views, failed)
    return views, replace(counted.only(views), skipped=[*counted.skipped, *failed])


def _view(
    files: CaseFiles,
    *,
    data_set: DataSet,
    members: Sequence[Predictions],
    images: Path | None,
    with_pictures: bool,
) -> View:
    """Compare a case's members and draw its slices; an OSError or a ValueError if files are missing or do not fit."""
    case = SavedCase(files, data_set)
    agreement = (np.nan,) * len(data_set.meaning.structures)
    if members:
        labels = [case.read_like(member.home / files.prediction.name)[0] for member in members]
        agreement = mean_pairwise_dice(labels, data_set.meaning)
    if not with_pictures:
        return View(agreement, [], None)
    image = None if images is None else first_channel(images, files.name, files.prediction)
    shown, problem = _doubtful_slices(case, data_set, image)
    return View(agreement, shown, problem)


def _doubtful_slices(
    case: SavedCase, data_set: DataSet, image_file: Path | None
) -> tuple[list[DoubtfulSlice], str | None]:
    """Draw the slices with the most doubt; also returns why the image could not be shown."""
    doubt = _doubt(case, data_set.meaning.activation)
    slices = []
    problem = None
    image = None
    if image_file is not None:
        try:
            image = data_set.reader.read_gray(image_file, case.geometry)
        except Exception as error:  # noqa: BLE001 - damaged images make readers raise nearly anything
            problem = f"image: {error}"
    for z in most_doubtful(doubt, _NUM_SLICES):
        window = window_around((case.labels[z] > 0) | (doubt[z] > _IN_PICTURE))
        shown = None if image is None else image[z][window]
        # Few steps make a smaller PNG
        steps = np.interp(smaller(doubt[z][window]), [0, FULL_DOUBT], [0, 15]).round()
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
    doubt: Floats = np.zeros(case.labels.size, np.float32)
    channels = (p for _, p in whole_channels(case.blocks()))
    for first in channels:
        core = (activation.foreground(first) > CORE_PROBABILITY).reshape(case.labels.shape)
        near = near_core(core, case.geometry.spacing, MARGIN_MM).reshape(-1)
        # The first of exclusive classes is the background; confidence is that of all
        others = channels if activation.exclusive else ()
        confidence = activation.lowest_confidence(chain([first], others))
        doubt = np.maximum(doubt, (1 - confidence) * near)
    return doubt.reshape(case.labels.shape)


def most_doubtful(doubt: Floats, number: int) -> list[int]:
    """Choose up to this number of slices of (Z, Y, X), in order: those with the most doubt that lie apart."""
    sums = doubt.sum((1, 2), dtype=np.float64)
    apart = max(2, int(_SPREAD * len(sums)))
    chosen: list[int] = []
    for z in np.argsort(-sums, kind="stable").tolist():
        if len(chosen) == number or (chosen and sums[z] == 0):
            break
        if all(abs(z - other) >= apart for other in chosen):
            chosen.append(z)
    return sorted(chosen)
