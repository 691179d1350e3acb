"""Small folders of predictions as nnU-Net writes them, tilted in space, of every file format; and ground truth."""

import json
import pickle
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

LABELS = {"background": 0, "liver": 1, "left kidney": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
STRUCTURES = {False: {"liver": [1], "left kidney": [2]}, True: {"whole": [1, 2], "core": [2]}}
SHAPE = (5, 12, 14)
STEPS = (2.0, 0.5, 0.75)
"""mm, of the array's axes."""
VOXEL_ML = 0.75 / 1000
ORIGIN = (-12.5, 30.25, 7.0)
DIRECTION = (0.0, -1.0, 0.0, 0.8, 0.0, -0.6, 0.6, 0.0, 0.8)
ENDING = ".nii.gz"


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(0))
    return powers / powers.sum(0)


def random_probabilities(
    seed: int, *, classes: int = 3, shape: tuple[int, ...] = SHAPE, noise: float = 0.4
) -> np.ndarray:
    """Blobs, no voxel like another: (classes, *shape) float32; the same blobs for each noise."""
    generator = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij"))
    logits = [np.ones(shape)]
    for _ in range(classes - 1):
        center = generator.uniform(-0.5, 0.5, len(shape))
        logits.append(3.5 - 5 * ((grid - center.reshape(-1, *[1] * len(shape))) ** 2).sum(0))
    return softmax(np.stack(logits) + noise * generator.normal(size=(classes, *shape))).astype(np.float32)


def random_regions(seed: int) -> np.ndarray:
    """(whole, core), the second mostly within the first."""
    p = random_probabilities(seed)
    return np.stack([p[1] + p[2], p[2]]).clip(0, 1)


def structure_case(seed: int, regions: bool = False, temperature: float = 2.5) -> tuple[np.ndarray, np.ndarray]:
    """A structure in two parts with a blurred outline, too sure by ``temperature``; p, and y drawn voxel by voxel."""
    generator = np.random.default_rng(seed)
    z, y, x = (
        step * (np.arange(size) - size / 2 + generator.uniform(-1, 1))
        for step, size in zip(STEPS, (10, 48, 36), strict=True)
    )
    depth = 5 - np.sqrt(z[:, None, None] ** 2 + y[:, None] ** 2 + x**2) + 0 * x  # mm from the outline, positive inside
    side = np.broadcast_to(x / 1.5, depth.shape)
    draw = generator.random((2, *depth.shape))
    if regions:
        whole, core = 1.5 * depth, 1.5 * (depth - 2)
        drawn = (draw[0] < 1 / (1 + np.exp(-whole))).astype(int) + (draw[0] < 1 / (1 + np.exp(-core)))
        return (1 / (1 + np.exp(-temperature * np.stack([whole, core])))).astype(np.float32), drawn
    right = np.stack([np.zeros_like(depth), 1.5 * depth + side, 1.5 * depth - side])
    return softmax(temperature * right).astype(np.float32), (softmax(right).cumsum(0) < draw[0]).sum(0).clip(0, 2)


def segment(p: np.ndarray, labels: Mapping[str, Any]) -> np.ndarray:
    """As nnU-Net does."""
    if labels is not REGIONS:
        return p.argmax(0)
    segmentation = np.zeros(p.shape[1:], np.uint8)
    for region, label in zip(p, (1, 2), strict=True):
        segmentation[region > 0.5] = label
    return segmentation


def properties_of(reader: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """The properties that nnU-Net's reader would give an image of this shape with."""
    if reader.startswith("SimpleITK"):
        if shape[0] == 1:
            stored = {"spacing": (0.75, 0.5), "origin": (-12.5, 30.25), "direction": (0.0, -1.0, 1.0, 0.0)}
            return {"sitk_stuff": stored, "spacing": [999, 0.5, 0.75]}
        stored: dict[str, Any] = {"spacing": STEPS[::-1], "origin": ORIGIN, "direction": DIRECTION}
        if reader.endswith("Reorient"):  # nnU-Net's arrays lie as RAS, the files otherwise
            stored |= {"direction": (-0.8, 0.6, 0.0, -0.6, -0.8, 0.0, 0.0, 0.0, 1.0), "original_orientation": "PIL"}
        return {"sitk_stuff": stored, "spacing": list(STEPS)}
    if reader.startswith("Nibabel"):
        affine = np.array([[0, -0.5, 0, 3], [0.75, 0, 0, -4], [0, 0, 2.0, 5], [0, 0, 0, 1]])
        stored = {"original_affine": affine}
        if reader.endswith("Reorient"):
            import nibabel
            from nibabel.orientations import io_orientation

            image = nibabel.Nifti1Image(np.zeros(shape[::-1], np.uint8), affine)
            stored["reoriented_affine"] = image.as_reoriented(io_orientation(affine)).affine
        return {"nibabel_stuff": stored, "spacing": list(STEPS)}
    return {"spacing": [999, 1, 1] if reader == "NaturalImage2DIO" else list(STEPS)}


def write_labels(labels: np.ndarray, file: Path, reader: str = "SimpleITKIO") -> None:
    writer = recursive_find_reader_writer_by_name(reader)()
    writer.write_seg(labels.astype(np.uint8), str(file), properties_of(reader, labels.shape))


def write_case(folder: Path, name: str, p: np.ndarray, labels: Mapping[str, Any] = LABELS) -> None:
    """Probabilities and segmentation."""
    np.savez_compressed(folder / f"{name}.npz", probabilities=p)
    write_labels(segment(p, labels), folder / f"{name}{ENDING}")


def write_folder(
    folder: Path,
    cases: Mapping[str, np.ndarray],
    *,
    labels: Mapping[str, Any] = LABELS,
    ending: str = ENDING,
    reader: str = "SimpleITKIO",
) -> Path:
    """``CASE.npz``, ``CASE.pkl``, segmentations, ``dataset.json`` and ``plans.json``."""
    folder.mkdir(parents=True)
    description: dict[str, Any] = {"labels": labels, "channel_names": {"0": "MRI"}, "numTraining": 1}
    if labels is REGIONS:
        description["regions_class_order"] = [1, 2]
    (folder / "dataset.json").write_text(json.dumps({**description, "file_ending": ending}))
    plans = {"dataset_name": "Dataset001_Toy", "plans_name": "nnUNetPlans", "image_reader_writer": reader}
    (folder / "plans.json").write_text(json.dumps(plans))
    (folder / "predict_from_raw_data_args.json").write_text("{}")
    for name, p in cases.items():
        np.savez_compressed(folder / f"{name}.npz", probabilities=p)
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(properties_of(reader, p.shape[1:])))
        write_labels(segment(p, labels), folder / f"{name}{ending}", reader)
    return folder


def write_pair(folder: Path, names: Iterable[str], *, first: int = 0, regions: bool = False) -> tuple[Path, Path]:
    """Ground truth and predictions of :func:`structure_case`."""
    made = {name: structure_case(seed, regions) for seed, name in enumerate(names, first)}
    truth = folder / "labels"
    truth.mkdir(parents=True)
    for name, (_, y) in made.items():
        write_labels(y, truth / f"{name}{ENDING}")
    cases = {name: p for name, (p, _) in made.items()}
    return truth, write_folder(folder / "predictions", cases, labels=REGIONS if regions else LABELS)


def write_model(folder: Path, folds: Iterable[str]) -> tuple[Path, Path]:
    """The folders of a trained model and of the preprocessed data, validation cases as in :func:`write_pair`."""
    model = folder / "results" / "Dataset001_Toy" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    preprocessed = folder / "preprocessed" / "Dataset001_Toy"
    for number, names in enumerate(folds):
        made, predictions = write_pair(folder / f"made_{number}", names, first=100 * number)
        described = shutil.ignore_patterns("*.json")
        shutil.copytree(predictions, model / f"fold_{number}" / "validation", ignore=described)
        shutil.copytree(made, preprocessed / "gt_segmentations", dirs_exist_ok=True)
        for name in ("dataset.json", "plans.json"):
            shutil.copy(predictions / name, model)
    return model, preprocessed


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


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as file:
        stored: np.ndarray = file["probabilities"]
    return stored


def geometry(file: Path) -> list[float]:
    image = sitk.ReadImage(str(file))
    return [*image.GetSize(), *image.GetSpacing(), *image.GetOrigin(), *image.GetDirection()]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def true_dice(truth: np.ndarray, segmentation: np.ndarray, labels: list[int]) -> float:
    a, b = np.isin(truth, labels), np.isin(segmentation, labels)
    return 2 * (a & b).sum() / (a.sum() + b.sum()) if (a | b).any() else 1.0
