"""What labels and channels mean: classes, which exclude each other, or regions, which overlap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation, Truth
from nnunet_nacl.metrics._compiled import translate
from nnunet_nacl.typing import Labels, Mask

Region = tuple[int, ...]
Structure = int | Region
"""A foreground label, or the labels of a region."""


@dataclass(frozen=True)
class LabelMeaning:
    """The meaning of a data set's labels and of the channels of its probabilities.

    ``known`` is every label but the ignore label, and what regions write, ``regions`` the labels of each region in the
    order of the channels (None for classes), ``written`` the label that each region writes to a segmentation
    (``regions_class_order``), and ``labels`` those of ``dataset.json``, by name.
    """

    known: tuple[int, ...]
    regions: tuple[Region, ...] | None = None
    written: tuple[int, ...] = field(default=(), compare=False)
    labels: dict[str, Structure] = field(default_factory=dict)

    @classmethod
    def of_names(
        cls,
        labels: Mapping[str, Any],
        regions: Sequence[int | Sequence[int]] | None,
        written: Sequence[int] = (),
    ) -> "LabelMeaning":
        """From ``labels`` of ``dataset.json``, the labels of each region, and ``regions_class_order``, if known."""
        named = {
            name: value if isinstance(value, int) else tuple(value)
            for name, value in labels.items()
        }
        known = {0, *written}.union(
            *(region_of(value) for name, value in named.items() if name != "ignore")
        )
        return cls(
            tuple(sorted(known)),
            None if regions is None else tuple(map(region_of, regions)),
            tuple(written),
            named,
        )

    @property
    def num_channels(self) -> int:
        return len(self.known if self.regions is None else self.regions)

    @property
    def activation(self) -> Activation:
        """The function from logits to probabilities."""
        return Activation.SOFTMAX if self.regions is None else Activation.SIGMOID

    @property
    def num_tops(self) -> int:
        """How many predictions a voxel has: one class, or for each region whether it is inside."""
        return 1 if self.regions is None else len(self.regions)

    @property
    def num_outcomes(self) -> int:
        """How many outcomes each of them may have: K classes; in or out of a region."""
        return self.num_channels if self.regions is None else 2

    @property
    def ignored(self) -> int:
        """The label of voxels that do not count: one above the highest known label."""
        return max(self.known) + 1

    @property
    def structures(self) -> list[Structure]:
        """The foreground labels, or the regions."""
        return list(range(1, self.num_channels)) if self.regions is None else list(self.regions)

    @property
    def channel_labels(self) -> list[str]:
        """The labels of the channels as text: the background's, for classes, and those of the structures."""
        background = ["0"] * self.activation.first_structure
        return background + list(map(str, self.structures))

    def name_of(self, structure: Structure) -> str:
        """What ``dataset.json`` calls a label or region; the label itself if it has no name."""
        named = (
            name for name, value in self.labels.items() if region_of(value) == region_of(structure)
        )
        return next(named, str(structure))

    @property
    def names(self) -> list[str]:
        """What ``dataset.json`` calls the structures."""
        return [self.name_of(structure) for structure in self.structures]

    @property
    def smallest_names(self) -> dict[int, str]:
        """Label -> its name; with regions that of the smallest one it belongs to. Without the background."""
        names = {}
        for label in filter(None, self.known):
            holding = [region for region in map(region_of, self.structures) if label in region]
            if holding:
                names[label] = self.name_of(min(holding, key=len))
        return names

    @property
    def what_is_lost(self) -> str | None:
        """A sentence that says so if label maps cannot hold the regions.

        It can if they are nested or disjoint, the larger ones first, and each writes a label that no later one has.
        """
        innermost: dict[int, Region] = {}
        is_held = True
        for region in self.regions or ():
            is_held &= len({innermost.get(label) for label in region}) == 1
            innermost |= dict.fromkeys(region, region)
        for region, label in zip(self.regions or (), self.written, strict=False):
            is_held &= innermost.get(label) == region
        if is_held or not self.written:
            return None
        return (
            f"A label map cannot hold the regions {', '.join(self.names)} as regions_class_order {list(self.written)} "
            "writes them."
        )

    def truth(self, labels: Labels) -> Truth:
        """What labels (n,), none of them ignored, say: the classes, or bool (R, n) of the regions."""
        if self.regions is None:
            return labels.astype(np.int64)
        return self.masks(labels)

    def masks(self, labels: Labels) -> Mask:
        """Where labels (...) have each structure: bool (S, ...)."""
        return np.stack([self.mask(labels, number) for number in range(len(self.structures))])

    def mask(self, labels: Labels, number: int) -> Mask:
        """Bool (...), where labels (...) have a structure, counted from 0."""
        return np.isin(labels, region_of(self.structures[number]))


def region_of(value: int | Sequence[int]) -> Region:
    """The labels of a structure."""
    return tuple(np.atleast_1d(value).tolist())


def whole_numbers(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of an integer dtype, from a floating one if need be; a ValueError if they are no whole numbers."""
    if labels.dtype.kind != "f":
        return labels
    whole = np.isfinite(labels) & (labels == np.rint(labels))
    if not whole.all():
        raise ValueError(
            f"{name}: expected labels, which are whole numbers; got {labels[~whole][0]}."
        )
    return labels.astype(np.int64)


def canonical_labels(
    labels: Labels, meaning: LabelMeaning, ignore_label: int | None, name: str
) -> Labels:
    """Labels in the smallest unsigned dtype, ignored ones as ``meaning.ignored``; a ValueError names unknown labels."""
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    known = {label: label for label in meaning.known}
    if ignore_label is not None:
        known[ignore_label] = meaning.ignored
    lowest = min(known)  # PyTorch ignores −100
    table = np.full(max(known) - lowest + 1, -1)
    table[np.array(list(known)) - lowest] = list(known.values())
    canonical = np.empty(labels.shape, np.min_scalar_type(meaning.ignored))
    shifted = labels
    if lowest < 0 or not labels.dtype.isnative:
        shifted = labels.astype(np.int64) - lowest
    if not translate(shifted.reshape(-1), table, canonical.reshape(-1)):
        unknown = np.setdiff1d(labels, list(known))[:10]
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    return canonical
