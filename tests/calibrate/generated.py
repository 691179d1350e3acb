"""Probabilities whose best calibration is known."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from scipy.ndimage import distance_transform_edt

LABELS = {"background": 0, "one": 1, "two": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
ENDING = ".nii.gz"
SHARES = np.array([[8, 4, 4], [14, 1, 1], [1, 12, 3], [2, 4, 10], [5, 10, 1]]) / 16
"""How often each class occurs among the voxels of each of five kinds."""


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(0))
    return powers / powers.sum(0)


def known_case(temperature: float, seed: int = 0, repeats: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """p (3, ...) and y of 16 voxels of each kind, times ``repeats``: softmax(ln p / temperature) is exactly right."""
    shares = np.repeat(SHARES, 16 * repeats, axis=0).T
    counts = (SHARES * 16 * repeats).astype(int)
    y = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    p = softmax(temperature * np.log(shares))
    order = np.random.default_rng(seed).permutation(y.size)
    shape = (repeats, 8, 10)
    return p[:, order].reshape(3, *shape).astype(np.float32), y[order].reshape(shape)


def region_case(temperature: float, seed: int = 0, size: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Sigmoid channels (whole, core) and y; σ(logit / temperature) is the chance of each region."""
    generator = np.random.default_rng(seed)
    core = generator.normal(-1, 2, size)
    whole = core + generator.exponential(1, size)
    chance = 1 / (1 + np.exp(-np.stack([whole, core])))
    draw = generator.random(size)
    y = (draw < chance[0]).astype(int) + (draw < chance[1])
    p = 1 / (1 + np.exp(-temperature * np.stack([whole, core])))
    return p.reshape(2, size // 100, 10, 10).astype(np.float32), y.reshape(size // 100, 10, 10)


SPACING = (2.0, 0.75, 0.5)
"""Of what :func:`write_labels` writes, in the order of the array's axes."""


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


def segment(p: np.ndarray, regions: bool = False) -> np.ndarray:
    if not regions:
        return p.argmax(0)
    labels = np.zeros(p.shape[1:], int)
    for channel, label in zip(p, (1, 2), strict=True):
        labels[channel > 0.5] = label
    return labels


def write_labels(labels: np.ndarray, file: Path) -> None:
    image = sitk.GetImageFromArray(labels.astype(np.uint8))
    image.SetSpacing(SPACING[::-1])
    image.SetOrigin((3, -4, 5))
    image.SetDirection((0, 1, 0, 1, 0, 0, 0, 0, -1))
    sitk.WriteImage(image, str(file))


def write_case(ground_truth: Path, predictions: Path, name: str, p: np.ndarray, y: np.ndarray, regions: bool) -> None:
    write_labels(y, ground_truth / f"{name}{ENDING}")
    write_labels(segment(p, regions), predictions / f"{name}{ENDING}")
    np.savez_compressed(predictions / f"{name}.npz", probabilities=p)


def description(regions: bool = False) -> str:
    content = {"labels": LABELS, "file_ending": ENDING, "channel_names": {"0": "MRI"}}
    if regions:
        content |= {"labels": REGIONS, "regions_class_order": [1, 2]}
    return json.dumps(content)


def plans(dataset: str = "Dataset001_Toy") -> str:
    return json.dumps(
        {
            "image_reader_writer": "SimpleITKIO",
            "dataset_name": dataset,
            "plans_name": "nnUNetPlans",
            "label_manager": "LabelManager",
        }
    )


def write_folder(
    folder: Path,
    names: str,
    *,
    temperature: float = 2.5,
    first: int = 0,
    regions: bool = False,
    structure: bool = False,
) -> tuple[Path, Path]:
    """Ground truth, and predictions as nnU-Net leaves them; a case for each letter.

    Args:
        folder: to make them in.
        names: of the cases.
        temperature: that is exactly right.
        first: the seed of the first case.
        regions: instead of classes.
        structure: :func:`structure_case` instead of unordered voxels.
    """
    ground_truth, predictions = folder / "labels", folder / "predictions"
    ground_truth.mkdir(parents=True)
    predictions.mkdir()
    (predictions / "dataset.json").write_text(description(regions))
    (predictions / "plans.json").write_text(plans())
    (predictions / "predict_from_raw_data_args.json").write_text("{}")
    for seed, name in enumerate(names, first):
        if structure:
            p, y = structure_case(temperature, seed, regions)
        else:
            p, y = (region_case if regions else known_case)(temperature, seed)
        write_case(ground_truth, predictions, name, p, y, regions)
        _, properties = SimpleITKIO().read_seg(str(predictions / f"{name}{ENDING}"))
        (predictions / f"{name}.pkl").write_bytes(pickle.dumps(properties))
    return ground_truth, predictions


def write_model(folder: Path, folds: list[str]) -> tuple[Path, Path]:
    """The folders of a trained model and of the preprocessed data; cases as in :func:`write_folder`."""
    model = folder / "results" / "Dataset001_Toy" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    ground_truth = folder / "preprocessed" / "Dataset001_Toy" / "gt_segmentations"
    for number, names in enumerate(folds):
        made, predictions = write_folder(
            folder / f"made_{number}", names, temperature=2 + number / 10, first=10 * number
        )
        shutil.copytree(
            predictions, model / f"fold_{number}" / "validation", ignore=lambda *_: ["dataset.json", "plans.json"]
        )
        shutil.copytree(made, ground_truth, dirs_exist_ok=True)
        shutil.copy(predictions / "dataset.json", model)
        shutil.copy(predictions / "plans.json", model)
    return model, ground_truth.parent


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as archive:
        return archive["probabilities"]


def near_by_scipy(foreground: np.ndarray, margin_mm: float = 5.0) -> np.ndarray:
    return distance_transform_edt(~(foreground > 0.05), sampling=SPACING) <= margin_mm
