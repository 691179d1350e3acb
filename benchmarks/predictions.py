"""Generated predictions for the benchmarks, as saturated as those of nnU-Net: p = 1 in 60 % of the voxels or more."""

import json
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray


def generate(folder: Path, classes: int, shape: tuple[int, int, int], cases: int, *, quiet: bool = False) -> None:
    """Make ``FOLDER/labels`` and ``FOLDER/predictions``, unless they are there."""
    references, predictions = folder / "labels", folder / "predictions"
    if (predictions / "dataset.json").exists():
        return
    references.mkdir(parents=True, exist_ok=True)
    predictions.mkdir(exist_ok=True)
    saturated, foreground = [], []
    for number in range(cases):
        p, y = _case(classes, shape, number)
        name = f"case_{number:02}"
        for labels, file in ((y, references / name), (p.argmax(0), predictions / name)):
            sitk.WriteImage(sitk.GetImageFromArray(labels.astype(np.uint8)), f"{file}.nii.gz", True)
        np.savez_compressed(predictions / f"{name}.npz", probabilities=p)
        saturated.append((p.max(0) == 1).mean())
        foreground.append((y > 0).mean())
    size = sum(file.stat().st_size for file in predictions.glob("*.npz"))
    bytes_a_value = size / (cases * classes * np.prod(shape))
    if not quiet:
        assert min(saturated) >= 0.6
        print(
            f"{folder.name}: {cases} cases of {classes} classes, {shape}; p = 1 in at least {min(saturated):.0%} of "
            f"the voxels, foreground {np.mean(foreground):.0%}, {bytes_a_value:.2f} bytes a value on disk"
        )
    (predictions / "plans.json").write_text(json.dumps({"image_reader_writer": "SimpleITKIO"}))
    labels = {"background": 0, **{f"structure {k}": k for k in range(1, classes)}}
    (predictions / "dataset.json").write_text(json.dumps({"labels": labels, "file_ending": ".nii.gz"}))


def _case(classes: int, shape: tuple[int, int, int], seed: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Softmax of smooth random fields in half precision, as nnU-Net averages logits, and shifted labels."""
    from scipy.ndimage import zoom  # here, as what follows: worker processes import this file, too

    generator = np.random.default_rng(seed)
    coarse = tuple(size // 16 + 2 for size in shape)
    crop = tuple(map(slice, shape))
    logits = np.empty((classes, *shape), np.float32)
    for k in range(classes):
        field = zoom(generator.standard_normal(coarse, dtype=np.float32), 16, order=1)[crop]
        logits[k] = 25 * field + 0.3 * generator.standard_normal(shape, dtype=np.float32)
    logits[0] += np.quantile(logits[1:, ::4, ::4, ::4].max(0) - logits[0, ::4, ::4, ::4], 0.9)  # 10 % foreground
    y = np.roll(logits, (1, 1), (2, 3)).argmax(0)
    logits = logits.astype(np.float16).astype(np.float32)
    logits -= logits.max(0)
    p = np.exp(logits, out=logits)
    p /= p.sum(0)
    return p, y
