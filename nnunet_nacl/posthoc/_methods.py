"""The methods by name."""

from dataclasses import MISSING, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._classwise import ClasswiseTemperature
from nnunet_nacl.posthoc._isotonic import IsotonicRegression
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._log_space import round_classes, round_regions
from nnunet_nacl.posthoc._surroundings import NUM_PLACES
from nnunet_nacl.posthoc._temperature import HIGHEST, LOWEST, Temperature
from nnunet_nacl.posthoc._vector import VectorScaling


class VoxelCalibrator(Protocol):
    """Calibrates voxels.

    Attributes:
        keeps_labels: whether the most probable class, or the side of 1/2 that a region is on, stays.
    """

    keeps_labels: ClassVar[bool]

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]: ...

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]: ...


class Calibrator(VoxelCalibrator, Protocol):
    """What a method has found that treats all places alike; the classes say how it is found.

    Attributes:
        method: its name.
    """

    method: ClassVar[str]

    def parameters(self) -> dict[str, Any]: ...


_CLASSES = (Temperature, ClasswiseTemperature, VectorScaling, IsotonicRegression, LocalTemperature)
METHODS: tuple[str, ...] = tuple(one.method for one in _CLASSES)


def fit_method(
    method: str,
    probabilities: NDArray[np.floating],
    truth: NDArray[Any],
    surroundings: NDArray[np.float16] | None = None,
) -> Calibrator | LocalTemperature:
    """Fit a method to voxels.

    Args:
        method: one of ``METHODS``.
        probabilities: (C, n) softmax or (R, n) sigmoid output.
        truth: (n,) classes, or bool (R, n), whether the voxel is in the region.
        surroundings: for the method ``local``: see :meth:`LocalTemperature.fit_classes`.

    Raises:
        ValueError: there is no such method, or the voxels do not determine its parameters.
    """
    kind = _class_of(method)
    fitted: Calibrator | LocalTemperature
    if (kind is LocalTemperature) != (surroundings is not None):
        needs = "needs" if surroundings is None else "must not be given"
        raise ValueError(f"the method {method} {needs} the surroundings of voxels.")
    more = () if surroundings is None else (surroundings,)
    if truth.ndim == 1:
        _check_classes(probabilities, truth)
        fitted = kind.fit_classes(probabilities, truth, *more)
    else:
        _check_regions(probabilities, truth)
        fitted = kind.fit_regions(probabilities, truth, *more)
    return fitted


def calibrate(
    calibrator: VoxelCalibrator, probabilities: NDArray[np.floating], *, regions: bool
) -> NDArray[np.float32]:
    """Calibrate voxels.

    Args:
        calibrator: what was fitted.
        probabilities: (C, ...) softmax or (R, ...) sigmoid output.
        regions: whether they are the latter.

    Returns:
        The same shape. Where the method keeps labels, rounding to float32 keeps them, too.
    """
    flat = probabilities.reshape(len(probabilities), -1)
    exact = calibrator.of_regions(flat) if regions else calibrator.of_classes(flat)
    if not calibrator.keeps_labels:
        after = exact.astype(np.float32)
    else:
        after = round_regions(flat, exact) if regions else round_classes(flat, exact)
    return after.reshape(probabilities.shape)


def read_calibrator(content: dict[str, Any], *, channels: int, regions: bool) -> Calibrator | LocalTemperature:
    """The calibrator of a fit's JSON.

    Raises:
        ValueError: parameters are missing, or not for so many channels.
    """
    kind = _class_of(content.get("method", ""))
    names = [field.name for field in fields(kind) if field.default is MISSING or field.name in content]
    missing = [name for name in names if name not in content]
    if missing:
        raise ValueError(f"the method {kind.method} needs {', '.join(names)}; missing: {', '.join(missing)}")
    expected = dict.fromkeys(("biases", "temperatures"), channels)
    expected |= {"weights": channels} if kind is VectorScaling else {}
    expected |= dict.fromkeys(("thresholds", "values"), channels if regions else 1)
    for name in set(names) & set(expected):
        if not isinstance(content[name], list) or len(content[name]) != expected[name]:
            raise ValueError(f"expected {name} to be a list of {expected[name]}; got {content[name]!r:.80}")
    calibrator: Calibrator | LocalTemperature = kind(**{name: content[name] for name in names})
    try:  # once here, rather than in the middle of a folder
        result = calibrate(
            _at_a_voxel(calibrator, channels),
            np.full((channels, 1), 0.5 if regions else 1 / channels),
            regions=regions,
        )
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ValueError(f"parameters that cannot be used: {error}") from error
    if not np.isfinite(result).all():
        raise ValueError("parameters that are no numbers")
    if not LOWEST <= content.get("temperature", LOWEST) <= HIGHEST:
        raise ValueError(f"expected temperature to be from {LOWEST} to {HIGHEST}; got {content['temperature']!r}")
    return calibrator


def at_voxels(calibrator: Calibrator | LocalTemperature, surroundings: NDArray[np.float16] | None) -> VoxelCalibrator:
    """What calibrates certain voxels: the calibrator itself, unless it needs to know what is around them."""
    if not isinstance(calibrator, LocalTemperature):
        return calibrator
    assert surroundings is not None
    return calibrator.at_voxels(surroundings)


def _at_a_voxel(calibrator: Calibrator | LocalTemperature, channels: int) -> VoxelCalibrator:
    seen = channels + (calibrator.image_channels if isinstance(calibrator, LocalTemperature) else 0)
    return at_voxels(calibrator, np.zeros((seen, 1, NUM_PLACES), np.float16))


def _class_of(method: str) -> Any:
    for kind in _CLASSES:
        if kind.method == method:
            return kind
    raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")


def _check_classes(probabilities: NDArray[np.floating], truth: NDArray[np.integer]) -> None:
    found = np.unique(truth)
    if found.size == 1:
        raise ValueError(
            f"all {truth.size} sampled voxels are of class {found[0]}, so there is nothing to tell from it; take other "
            "voxels (near, image) or more cases."
        )
    if (probabilities.argmax(0) == truth).all():
        raise ValueError(_ALL_RIGHT.format(truth.size))


def _check_regions(probabilities: NDArray[np.floating], truth: NDArray[np.bool_]) -> None:
    if truth.all() or not truth.any():
        side = "inside" if truth.any() else "outside"
        raise ValueError(
            f"all {truth.shape[1]} sampled voxels are {side} every region, so there is nothing to tell apart; "
            "take other voxels (near, image) or more cases."
        )
    if ((probabilities > 0.5) == truth).all():
        raise ValueError(_ALL_RIGHT.format(truth.shape[1]))


_ALL_RIGHT = (
    "all {} sampled voxels are predicted rightly: the more confident, the better the fit, without end; take more "
    "voxels or cases."
)
