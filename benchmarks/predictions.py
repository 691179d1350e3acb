"""Generated predictions for the benchmarks, of three kinds.

``saturated``: small structures in much background, p = 1 in 60 % of the voxels or more, as nnU-Net often predicts.
``dense``: 80 % of the voxels are foreground, and p = 1 hardly anywhere, as in whole-body or brain tissue segmentation
with a model that is in doubt.
``organs``: smooth ellipsoids side by side, as in CT, and a ground truth that is shifted by a voxel.
"""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

Kind = Literal["saturated", "dense", "organs"]


def generate(
    folder: Path,
    classes: int,
    shape: tuple[int, int, int],
    cases: int,
    *,
    kind: Kind = "saturated",
    quiet: bool = False,
) -> None:
    """Make ``FOLDER/labels`` and ``FOLDER/predictions``, unless they are there."""
    references, predictions = folder / "labels", folder / "predictions"
    if (predictions / "dataset.json").exists():
        return
    references.mkdir(parents=True, exist_ok=True)
    predictions.mkdir(exist_ok=True)
    saturated, foreground = [], []
    for number in range(cases):
        p, y = _KINDS[kind](classes, shape, number)
        name = f"case_{number:02}"
        for labels, file in ((y, references / name), (p.argmax(0), predictions / name)):
            sitk.WriteImage(sitk.GetImageFromArray(labels.astype(np.uint8)), f"{file}.nii.gz", True)
        np.savez_compressed(predictions / f"{name}.npz", probabilities=p)
        saturated.append((p.max(0) == 1).mean())
        foreground.append((y > 0).mean())
    size = sum(file.stat().st_size for file in predictions.glob("*.npz"))
    bytes_a_value = size / (cases * classes * np.prod(shape))
    if not quiet:
        assert kind != "saturated" or min(saturated) >= 0.6
        print(
            f"{folder.name}: {cases} cases of {classes} classes, {shape}; p = 1 in at least {min(saturated):.0%} of "
            f"the voxels, foreground {np.mean(foreground):.0%}, {bytes_a_value:.2f} bytes a value on disk"
        )
    (predictions / "plans.json").write_text(json.dumps({"image_reader_writer": "SimpleITKIO"}))
    labels = {"background": 0, **{f"structure {k}": k for k in range(1, classes)}}
    (predictions / "dataset.json").write_text(
        json.dumps({"labels": labels, "file_ending": ".nii.gz"})
    )


def _saturated(
    classes: int, shape: tuple[int, int, int], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Softmax of smooth random fields in half precision, as nnU-Net averages logits, and shifted labels."""
    generator = np.random.default_rng(seed)
    logits = np.empty((classes, *shape), np.float32)
    for k in range(classes):
        field = _smooth(generator, shape)
        logits[k] = 25 * field + 0.3 * generator.standard_normal(shape, dtype=np.float32)
    # 10 % foreground
    logits[0] += np.quantile(logits[1:, ::4, ::4, ::4].max(0) - logits[0, ::4, ::4, ::4], 0.9)
    y = np.roll(logits, (1, 1), (2, 3)).argmax(0)
    return _softmax(logits.astype(np.float16).astype(np.float32)), y


def _dense(
    classes: int, shape: tuple[int, int, int], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Softmax of noisy logits of smooth random fields, whose argmax without the noise is the ground truth."""
    generator = np.random.default_rng(seed)
    logits = np.stack([10 * _smooth(generator, shape) for _ in range(classes)])
    # 80 % foreground
    logits[0] += np.quantile(logits[1:, ::4, ::4, ::4].max(0) - logits[0, ::4, ::4, ::4], 0.2)
    y = logits.argmax(0)
    for k in range(classes):
        logits[k] += 1.5 * generator.standard_normal(shape, dtype=np.float32)
    return _softmax(logits), y


def _organs(
    classes: int, shape: tuple[int, int, int], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Softmax of logits that rise by 1 a voxel into each ellipsoid, and a ground truth beside it."""
    generator = np.random.default_rng(seed)
    axes = np.ogrid[tuple(map(slice, shape))]
    logits = np.zeros((classes, *shape), np.float32)
    for k in range(1, classes):
        center = generator.uniform(0.2, 0.8, 3) * shape
        radii = generator.uniform(0.06, 0.15, 3) * shape
        scaled = [(axis - at) / r for axis, at, r in zip(axes, center, radii, strict=True)]
        logits[k] = radii.mean() * (1 - np.sqrt(scaled[0] ** 2 + scaled[1] ** 2 + scaled[2] ** 2))
    y = np.roll(logits, 1, 3).argmax(0)
    return _softmax(logits), y


_KINDS = {"saturated": _saturated, "dense": _dense, "organs": _organs}


def _smooth(generator: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    from scipy.ndimage import zoom  # here: worker processes import this file, too

    coarse = generator.standard_normal(tuple(size // 16 + 2 for size in shape), dtype=np.float32)
    field: NDArray[np.float32] = zoom(coarse, 16, order=1)[tuple(map(slice, shape))]
    return field


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    logits -= logits.max(0)
    p = np.exp(logits, out=logits)
    p /= p.sum(0)
    return p
