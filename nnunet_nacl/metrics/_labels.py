"""The meaning of labels and channels, and label maps in the labels that the meaning knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._loops import translate
from nnunet_nacl.typing import Array, Labels, Mask

Region = tuple[int, ...]
Structure = int | Region
"""A foreground label, or the labels of a region."""


@dataclass(frozen=True)
class LabelMeaning:
    """The meaning of a data set's labels and of the channels of its probabilities.

    Attributes:
        known: every label but the ignore label, and what regions write.
        regions: the labels of each region, in the order of the channels; None for classes.
        written: the label that each region writes to a segmentation, ``regions_class_order``; empty if unknown.
        labels: those of ``dataset.json``, by name.
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
        """Take ``labels`` of ``dataset.json``, the labels of each region, and ``regions_class_order``, if known."""
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
    def num_predictions(self) -> int:
        """The number of predictions of a voxel: one class, or inside or outside each region."""
        return 1 if self.regions is None else len(self.regions)

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

    @cached_property
    def _names(self) -> dict[Region, str]:
        return {region_of(value): name for name, value in reversed(self.labels.items())}

    def name_of(self, structure: Structure) -> str:
        """Return the name of a label or region in ``dataset.json``, its first; the label itself if it has none."""
        return self._names.get(region_of(structure), str(structure))

    @property
    def names(self) -> list[str]:
        """The names of the structures."""
        return list(map(self.name_of, self.structures))

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
    def note_on_overlap(self) -> str | None:
        """A sentence on regions that a label map cannot hold; None if it can.

        It can if they differ, are nested or disjoint, the larger ones first, and each writes a label that no later one
        has.
        """
        regions = self.regions or ()
        innermost: dict[int, Region] = {}
        is_held = len({*regions}) == len(regions)
        for region in regions:
            is_held &= len({innermost.get(label) for label in region}) == 1
            innermost |= dict.fromkeys(region, region)
        for region, label in zip(regions, self.written, strict=False):
            is_held &= innermost.get(label) == region
        if is_held or not self.written:
            return None
        return (
            f"A label map cannot hold the regions {', '.join(self.names)} as regions_class_order {list(self.written)} "
            "writes them."
        )

    def masks(self, labels: Labels) -> Mask:
        """Return the masks of the structures in labels (...): bool (S, ...)."""
        return np.stack([self.mask(labels, number) for number in range(len(self.structures))])

    def mask(self, labels: Labels, number: int) -> Mask:
        """Return the mask (...) of a structure, counted from 0, in labels (...)."""
        return np.isin(labels, region_of(self.structures[number]))


def region_of(value: int | Sequence[int]) -> Region:
    """Return the labels of a structure."""
    return tuple(np.atleast_1d(value).tolist())


def whole_numbers(labels: NDArray[Any], name: str) -> Labels:
    """Return labels of any dtype as int32; a ValueError unless they are whole numbers."""
    with np.errstate(invalid="ignore"):
        whole = labels.astype(np.int32)
    if (is_other := whole != labels).any():
        raise ValueError(
            f"{name}: expected labels, which are whole numbers; got {labels[is_other][0]}."
        )
    return whole


def canonical_labels(
    labels: Labels, meaning: LabelMeaning, ignore_label: int | None, name: str
) -> Labels:
    """Convert labels to the smallest unsigned dtype, ignored ones to ``meaning.ignored``.

    Raises a ValueError that names unknown labels.
    """
    known = {label: label for label in meaning.known}
    if ignore_label is not None:
        known[ignore_label] = meaning.ignored
    lowest = min(known)  # PyTorch ignores −100
    table = np.full(max(known) - lowest + 1, -1)
    table[np.array(list(known)) - lowest] = list(known.values())
    canonical = np.empty(labels.shape, np.min_scalar_type(meaning.ignored))
    shifted = labels.astype(np.int64) - lowest if lowest < 0 else labels
    if not translate(shifted.reshape(-1), table, canonical.reshape(-1)):
        unknown = np.setdiff1d(labels, list(known))[:10]
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    return canonical


def to_numpy(values: Array) -> NDArray[Any]:
    """Return a NumPy array of an array, or of a tensor on any device."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError("expected arrays without masks: give masked voxels an ignore label.")
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    return np.asarray(values)
