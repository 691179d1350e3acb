"""Folders of predictions as nnU-Net leaves them, tilted in space, some of them of a known best calibration."""

import json
import pickle
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from scipy.ndimage import distance_transform_edt
from scipy.special import softmax as softmax_along
from torch.nn.functional import one_hot

LABELS = {"background": 0, "one": 1, "two": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
OVERLAPPING = {"background": 0, "A": [1, 3], "B": [2, 3]}
"""Regions of which neither holds the other: label 3 is where both are."""
ENDING = ".nii.gz"
STRUCTURES = {False: {"one": [1], "two": [2]}, True: {"whole": [1, 2], "core": [2]}}
SPACING = (2.0, 0.75, 0.5)
"""Of what ``write_labels`` writes, in the order of the array's axes."""
VOXEL_ML = 0.75 / 1000
SHAPE = (5, 12, 14)
SHARES = np.array([[8, 4, 4], [14, 1, 1], [1, 12, 3], [2, 4, 10], [5, 10, 1]]) / 16
"""How often each class occurs among the voxels of each of five kinds."""

softmax = partial(softmax_along, axis=0)


def known_case(temperature: float, seed: int = 0, repeats: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """p (3, ...) and y of 16 voxels of each kind, times ``repeats``: softmax(ln p / temperature) is exactly right."""
    shares = np.repeat(SHARES, 16 * repeats, axis=0).T
    counts = (SHARES * 16 * repeats).astype(int)
    y = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    p = softmax(temperature * np.log(shares))
    order = np.random.default_rng(seed).permutation(y.size)
    shape = (repeats, 8, 10)
    return p[:, order].reshape(3, *shape).astype(np.float32), y[order].reshape(shape)


def structure_case(temperature: float, seed: int = 0, regions: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A structure in two parts with a blurred outline, far from most of the image's background; p and y.

    Labels are drawn voxel by voxel from what is p for T = 1, so that ``temperature`` is exactly right everywhere.
    """
    generator = np.random.default_rng(seed)
    z, y, x = (
        step * (np.arange(size) - size / 2 + generator.uniform(-1, 1))
        for step, size in zip(SPACING, (10, 48, 72), strict=True)
    )
    depth = 5 - np.sqrt(z[:, None, None] ** 2 + y[:, None] ** 2 + x**2) + 0 * x  # mm from the outline, positive inside
    side = np.broadcast_to(x / 1.5, depth.shape)
    draw = generator.random((2, *depth.shape))
    if regions:
        whole, core = 1.5 * depth, 1.5 * (depth - 2)
        y = (draw[0] < 1 / (1 + np.exp(-whole))).astype(int) + (draw[0] < 1 / (1 + np.exp(-core)))
        return (1 / (1 + np.exp(-temperature * np.stack([whole, core])))).astype(np.float32), y
    right = np.stack([np.zeros_like(depth), 1.5 * depth + side, 1.5 * depth - side])
    y = (softmax(right).cumsum(0) < draw[0]).sum(0).clip(0, 2)
    return softmax(temperature * right).astype(np.float32), y


def noisy_case(seed: int, classes: int = 3, shape: tuple[int, ...] = (6, 20, 20)) -> tuple[np.ndarray, np.ndarray]:
    """p and y of voxels without neighbors: each label random, its logit 2 above noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, shape, generator=generator)
    logits = 2 * one_hot(labels, classes).movedim(-1, 0) + torch.randn(classes, *shape, generator=generator)
    return logits.softmax(0).numpy(), labels.numpy()


def segment(p: np.ndarray, regions: bool = False) -> np.ndarray:
    if not regions:
        return p.argmax(0)
    labels = np.zeros(p.shape[1:], int)
    for label, channel in enumerate(p, start=1):
        labels[channel > 0.5] = label
    return labels


def write_labels(labels: np.ndarray, file: Path) -> None:
    image = sitk.GetImageFromArray(labels.astype(np.uint8))
    image.SetSpacing(SPACING[::-1])
    image.SetOrigin((3, -4, 5))
    image.SetDirection((0, 1, 0, 1, 0, 0, 0, 0, -1))
    sitk.WriteImage(image, str(file))


def write_upright(values: np.ndarray, file: Path, spacing: tuple[float, ...] = (1, 1, 1)) -> None:
    """An image that is not tilted; ``spacing`` in the order of the array's axes."""
    image = sitk.GetImageFromArray(values if values.dtype == np.float32 else values.astype(np.uint8))
    image.SetSpacing(spacing[::-1])
    sitk.WriteImage(image, str(file))


def add_case(gt_folder: Path, predictions: Path, name: str, p: np.ndarray, y: np.ndarray) -> None:
    """Ground truth, probabilities and segmentation, not tilted."""
    write_upright(y, gt_folder / f"{name}{ENDING}")
    write_upright(p.argmax(0), predictions / f"{name}{ENDING}")
    np.savez_compressed(predictions / f"{name}.npz", probabilities=p)


def write_case(folder: Path, name: str, p: np.ndarray, regions: bool = False) -> None:
    """Probabilities and segmentation."""
    np.savez_compressed(folder / f"{name}.npz", probabilities=p)
    write_labels(segment(p, regions), folder / f"{name}{ENDING}")


def description(regions: bool = False) -> str:
    content = {"labels": LABELS, "file_ending": ENDING, "channel_names": {"0": "MRI"}}
    if regions:
        content |= {"labels": REGIONS, "regions_class_order": [1, 2]}
    return json.dumps(content)


def plans() -> str:
    names = {"dataset_name": "Dataset001_Toy", "plans_name": "nnUNetPlans"}
    return json.dumps({"image_reader_writer": "SimpleITKIO", "label_manager": "LabelManager", **names})


def write_predictions(folder: Path, cases: Mapping[str, np.ndarray], regions: bool = False) -> Path:
    """As nnU-Net leaves them."""
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(description(regions))
    (folder / "plans.json").write_text(plans())
    (folder / "predict_from_raw_data_args.json").write_text("{}")
    for name, p in cases.items():
        write_case(folder, name, p, regions)
        _, properties = SimpleITKIO().read_seg(str(folder / f"{name}{ENDING}"))
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(properties))
    return folder


def write_folder(
    folder: Path,
    names: Iterable[str],
    *,
    temperature: float = 2.5,
    first: int = 0,
    regions: bool = False,
    structure: bool = False,
) -> tuple[Path, Path]:
    """Ground truth, and predictions as nnU-Net leaves them, for which ``temperature`` is exactly right.

    A case for each of ``names``, with seeds from ``first``; of ``structure_case`` if ``structure``.
    """
    draw = partial(structure_case, regions=regions) if structure else known_case
    return write_drawn(folder, {name: draw(temperature, seed) for seed, name in enumerate(names, first)}, regions)


def write_drawn(
    folder: Path, cases: Mapping[str, tuple[np.ndarray, np.ndarray]], regions: bool = False
) -> tuple[Path, Path]:
    """Ground truth and predictions of p and y."""
    predictions = write_predictions(folder / "predictions", {name: p for name, (p, _) in cases.items()}, regions)
    (folder / "labels").mkdir()
    for name, (_, y) in cases.items():
        write_labels(y, folder / "labels" / f"{name}{ENDING}")
    return folder / "labels", predictions


def overlapping_case(seed: int, *, shape: tuple[int, ...] = (4, 24, 28)) -> tuple[np.ndarray, np.ndarray]:
    """A and B, two blurred balls that overlap: their p (2, ...), exactly right, and y drawn from it voxel by voxel."""
    generator = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij")).astype(float)
    p = []
    for place in (0.4, 0.6):
        center = np.array([shape[0] / 2, shape[1] / 2, place * shape[2]]) + generator.uniform(-1, 1, 3)
        depth = generator.uniform(6, 9) - np.sqrt(((grid - center[:, None, None, None]) ** 2).sum(0))
        p.append(1 / (1 + np.exp(-depth)))
    draw = generator.random((2, *shape)) < p
    return np.array(p, np.float32), draw[0] + 2 * draw[1]


def write_overlapping(
    folder: Path, cases: Mapping[str, tuple[np.ndarray, np.ndarray]], labels: Mapping[str, object] = OVERLAPPING
) -> tuple[Path, Path]:
    """Ground truth and predictions of p and y of two regions, which write their labels 1 and 2."""
    folders = write_drawn(folder, cases, regions=True)
    description = folders[1] / "dataset.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "labels": labels}))
    return folders


def write_model(folder: Path, folds: list[str]) -> tuple[Path, Path]:
    """The folders of a trained model and of the preprocessed data; cases as in ``write_folder``."""
    model = folder / "results" / "Dataset001_Toy" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    ground_truth = folder / "preprocessed" / "Dataset001_Toy" / "gt_segmentations"
    for number, names in enumerate(folds):
        to, validation = folder / f"made_{number}", model / f"fold_{number}" / "validation"
        made, predictions = write_folder(to, names, temperature=2 + number / 10, first=10 * number)
        shutil.copytree(predictions, validation, ignore=lambda *_: ["dataset.json", "plans.json"])
        shutil.copytree(made, ground_truth, dirs_exist_ok=True)
        shutil.copy(predictions / "dataset.json", model)
        shutil.copy(predictions / "plans.json", model)
    return model, ground_truth.parent


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as archive:
        return archive["probabilities"]


def near_by_scipy(foreground: np.ndarray, margin_mm: float = 5.0) -> np.ndarray:
    return distance_transform_edt(~(foreground > 0.05), sampling=SPACING) <= margin_mm


def random_case(seed: int, regions: bool = False, *, shape: tuple[int, ...] = SHAPE, noise: float = 0.4) -> np.ndarray:
    """Blobs, no voxel like another: (3, *shape) float32, or (whole, core)."""
    generator = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij"))
    logits = [np.ones(shape)]
    for _ in range(2):
        center = generator.uniform(-0.5, 0.5, len(shape))
        logits.append(3.5 - 5 * ((grid - center.reshape(-1, *[1] * len(shape))) ** 2).sum(0))
    p = softmax(np.stack(logits) + noise * generator.normal(size=(3, *shape))).astype(np.float32)
    return np.stack([p[1] + p[2], p[2]]).clip(0, 1) if regions else p


def random_folder(folder: Path, names: str, regions: bool = False, *, first: int = 0) -> Path:
    """Predictions of ``random_case``."""
    return write_predictions(
        folder, {name: random_case(seed, regions) for seed, name in enumerate(names, first)}, regions
    )


def read(file: Path) -> np.ndarray:
    """An image's values, in the order of nnU-Net's arrays."""
    image: np.ndarray = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
    return image


def change(file: Path, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change a label map, which stays where it is."""
    image = sitk.ReadImage(str(file))
    other = sitk.GetImageFromArray(np.ascontiguousarray(function(sitk.GetArrayFromImage(image))))
    other.CopyInformation(image)
    sitk.WriteImage(other, str(file))


def shift(file: Path) -> None:
    """Move an image in space."""
    image = sitk.ReadImage(str(file))
    image.SetOrigin([step + 1 for step in image.GetOrigin()])
    sitk.WriteImage(image, str(file))


def geometry(file: Path) -> list[float]:
    image = sitk.ReadImage(str(file))
    return [*image.GetSize(), *image.GetSpacing(), *image.GetOrigin(), *image.GetDirection()]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def true_dice(truth: np.ndarray, segmentation: np.ndarray, labels: list[int]) -> float:
    a, b = np.isin(truth, labels), np.isin(segmentation, labels)
    return 2 * (a & b).sum() / (a.sum() + b.sum()) if (a | b).any() else 1.0
