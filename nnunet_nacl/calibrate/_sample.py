"""The voxels that fit and judge a calibration, drawn from each case and weighted by how many each represents."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    Array,
    LabelMeaning,
    Truth,
    near_core,
    to_numpy,
)
from nnunet_nacl.typing import Floats, Labels, Mask

NUM_VALUES = 4_000_000
"""How many logits and features are held in total: 16 MB."""


def flattened(values: Array, channel_axis: int) -> NDArray[Any]:
    """(K, n), float32 if it was of another floating dtype, of values whose channels are along that axis."""
    rows = np.moveaxis(to_numpy(values), channel_axis, 0)
    rows = rows.reshape(len(rows), -1)
    return rows.astype(np.float32, copy=False) if rows.dtype.kind == "f" else rows


@dataclass(frozen=True, eq=False)
class Sample:
    """Voxels of several cases.

    Attributes:
        meaning: of the channels: classes or regions.
        logits: (C, n) as trained; for classes minus their mean in each voxel.
        kept: what the model as trained predicts, which a calibration should not change: (n,) classes, or bool (R, n).
        truth: (n,) classes, or bool (R, n).
        weights: (n,) how many voxels of its case each voxel represents.
        near: (1, n), for regions (R, n), whether a voxel is near the prediction as trained, as in docs/metrics.md.
        case: (n,) number of each voxel's case.
        names: names of the cases.
        features: (F, n) that enter the network's last layer, if they are known.
    """

    meaning: LabelMeaning
    logits: Floats
    kept: Truth
    truth: Truth
    weights: NDArray[np.float32]
    near: Mask
    case: NDArray[np.int32]
    names: tuple[str, ...]
    features: Floats | None = None

    @property
    def activation(self) -> Activation:
        """Softmax for classes, sigmoid for regions."""
        return self.meaning.activation

    @classmethod
    def draw(  # noqa: PLR0917
        cls,
        name: str,
        meaning: LabelMeaning,
        p: Floats,
        labels: Labels,
        spacing_mm: Sequence[float],
        most: int,
        logits: Floats | None = None,
    ) -> tuple[NDArray[np.intp], "Sample"]:
        """Draw voxels of a case: their indices, and what is known of them.

        Near are voxels within 5 mm of a voxel where the prediction gives the foreground, or the region, a probability
        above 0.05.

        Args:
            name: of the case.
            meaning: of labels and channels.
            p: probabilities (C, *spatial) of the model as trained.
            labels: (*spatial), the ground truth.
            spacing_mm: distance between voxel centers along each axis.
            most: how many voxels to draw.
            logits: (C, *spatial), if ``p`` was computed from them.
        """
        activation = meaning.activation
        foreground = activation.foreground(p[: meaning.num_tops])
        near = near_core(foreground > CORE_PROBABILITY, spacing_mm, MARGIN_MM)
        near = near.reshape(len(near), -1)
        labels = labels.reshape(-1)
        index, weights = _draw_voxels(np.any(near, axis=0), labels != meaning.ignored, most, name)
        labels = labels[index]
        if logits is None:
            drawn = activation.logits(p.reshape(len(p), -1)[:, index])
        else:
            drawn = logits.reshape(len(p), -1)[:, index]
        if activation is Activation.SOFTMAX:
            truth = labels.astype(np.int64)
        else:
            truth = np.stack([np.isin(labels, region) for region in meaning.structures])
        drawn = activation.centered(drawn)
        kept = activation.predicted(drawn)
        case = np.zeros(index.size, np.int32)
        return index, cls(meaning, drawn, kept, truth, weights, near[:, index], case, (name,))

    @classmethod
    def of_arrays(
        cls,
        logits: Array,
        labels: Array,
        *,
        cases: Array | None = None,
        features: Array | None = None,
        weights: Array | None = None,
        near: Array | None = None,
        ignore_label: int | None = None,
        channel_axis: int = 0,
    ) -> "Sample":
        """See ``compare``."""
        rows = flattened(logits, channel_axis)
        truth = to_numpy(labels)
        channels, size = rows.shape
        if truth.ndim == np.ndim(logits):
            if truth.dtype != bool or ignore_label is not None:
                raise ValueError(
                    f"labels: expected one for each voxel or, for regions, bool masks without an ignore_label; got "
                    f"{truth.dtype} {truth.shape}."
                )
            truth = flattened(truth, channel_axis)
            regions = tuple((label,) for label in range(1, channels + 1))
            meaning = LabelMeaning(tuple(range(channels + 1)), regions)
        else:
            truth = truth.reshape(-1).astype(np.int64)
            meaning = LabelMeaning(tuple(range(channels)))
        if truth.shape not in {(size,), rows.shape}:
            raise ValueError(
                f"labels: expected one for each voxel of logits {np.shape(logits)} with {channels} channels; got "
                f"{np.shape(labels)}. Of a batch (b, K, *spatial), give channel_axis=1."
            )
        counted = np.ones(size, bool)
        if meaning.activation is Activation.SOFTMAX:
            if ignore_label is not None:
                counted = truth != ignore_label
            if not np.isin(truth[counted], meaning.known).all():
                raise ValueError(
                    f"labels: expected the whole numbers 0 to {channels - 1}; got others."
                )

        spatial = np.delete(np.shape(logits), channel_axis)
        images = spatial[0] if channel_axis else 1
        named = np.arange(images) if cases is None else to_numpy(cases)
        of_images = named.reshape(*named.shape, *[1] * (len(spatial) - named.ndim))
        of_voxels = np.broadcast_to(of_images, spatial).reshape(-1)
        names, number = np.unique(of_voxels, return_inverse=True)
        if near is None:
            around = np.ones(size, bool)
        elif np.ndim(near) == np.ndim(logits):
            around = flattened(near, channel_axis)
        else:
            around = to_numpy(near).reshape(-1)
        represented = np.ones(size) if weights is None else to_numpy(weights).reshape(-1)
        if not np.isfinite(rows[:, counted]).all():
            raise ValueError("logits: expected finite numbers; got NaN or infinity.")
        centered = meaning.activation.centered(rows)
        sample = cls(
            meaning,
            centered,
            meaning.activation.predicted(centered),
            truth,
            represented.astype(np.float32),
            np.broadcast_to(around, (meaning.num_tops, size)),
            number.astype(np.int32),
            tuple(map(str, names.tolist())),
            None if features is None else flattened(features, channel_axis),
        )
        # take() changes the memory order, and then sums round differently.
        return sample if counted.all() else sample.take(counted)

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """The voxels of samples of one case each."""
        joined: dict[str, Any] = {
            field: np.concatenate([getattr(sample, field) for sample in samples], axis=-1)
            for field in samples[0]._of_voxels()
        }
        sizes = [sample.weights.size for sample in samples]
        joined["case"] = np.repeat(np.arange(len(samples), dtype=np.int32), sizes)
        return replace(samples[0], names=tuple(sample.names[0] for sample in samples), **joined)

    def take(self, chosen: Mask) -> "Sample":
        """Only some of the voxels."""
        taken: dict[str, Any] = {
            field: values[..., chosen] for field, values in self._of_voxels().items()
        }
        return replace(self, **taken)

    def _of_voxels(self) -> dict[str, NDArray[Any]]:
        """All that there is for each voxel, the last axis."""
        return {
            field: value for field, value in vars(self).items() if isinstance(value, np.ndarray)
        }

    def structures(self) -> Mask:
        """Whether a voxel is of a structure: bool (S, n), the foreground classes or the regions."""
        if self.activation is Activation.SIGMOID:
            return self.truth
        found: Mask = self.truth == np.arange(1, len(self.logits))[:, None]
        return found

    def check(self) -> None:
        """Raise a ValueError unless there are five cases with structures, and each structure has a voxel."""
        inside = self.structures()
        total = len(self.names)
        found = np.unique(self.case[inside.any(0)]).size
        if found < 5:
            needed = "a calibration needs at least 5 cases with a structure in the ground truth"
            raise ValueError(f"{needed}; {found} of {total} have one.")
        for structure, voxels in zip(self.meaning.structures, inside, strict=True):
            if not voxels.any():
                raise ValueError(
                    f"{self.meaning.name_of(structure)} has no voxel in the {total} cases drawn from."
                )


def voxels_per_case(values: int, cases: int) -> int:
    """How many voxels to draw from each case, given how many values are held for each voxel."""
    return max(NUM_VALUES // values // cases, 1000)


def _draw_voxels(
    near: Mask, counted: Mask, most: int, case: str
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Draw voxels of a case: half near the prediction, half elsewhere; if one part has too few, more from the other.

    The choice depends on the prediction alone. Each voxel's weight is the number of voxels that it represents, so
    weighted sums are unbiased estimates of sums over the whole image, and rare structures are well represented.
    ``near`` and ``counted`` (not ignored) are (n,), ``case`` is the name, which seeds the draw. Returns ascending
    indices and weights.
    """
    digest = np.frombuffer(
        hashlib.sha256(case.encode(errors="surrogateescape")).digest(), np.uint32
    )
    generator = np.random.default_rng([0, *digest.tolist()])
    strata = [np.flatnonzero(near & counted), np.flatnonzero(~near & counted)]
    weights = np.zeros(near.size, np.float32)  # 0: not drawn
    for stratum, other in (strata, strata[::-1]):
        size = min(stratum.size, max(most // 2, most - other.size))
        drawn = stratum
        if size < stratum.size:
            drawn = generator.choice(stratum, size, replace=False, shuffle=False)
        weights[drawn] = stratum.size / max(size, 1)
    indices = np.flatnonzero(weights)
    return indices, weights[indices]
