"""Small folders of predictions as nnU-Net writes them, tilted in space, of every file format."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

LABELS = {"background": 0, "liver": 1, "left kidney": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
SHAPE = (5, 12, 14)
SPACING, ORIGIN = (0.75, 0.5, 2.0), (-12.5, 30.25, 7.0)
DIRECTION = (0.0, -1.0, 0.0, 0.8, 0.0, -0.6, 0.6, 0.0, 0.8)


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
        stored: dict[str, Any] = {"spacing": SPACING, "origin": ORIGIN, "direction": DIRECTION}
        if reader.endswith("Reorient"):  # nnU-Net's arrays lie as RAS, the files otherwise
            stored |= {"direction": (-0.8, 0.6, 0.0, -0.6, -0.8, 0.0, 0.0, 0.0, 1.0), "original_orientation": "PIL"}
        return {"sitk_stuff": stored, "spacing": list(SPACING[::-1])}
    if reader.startswith("Nibabel"):
        affine = np.array([[0, -0.5, 0, 3], [0.75, 0, 0, -4], [0, 0, 2.0, 5], [0, 0, 0, 1]])
        stored = {"original_affine": affine}
        if reader.endswith("Reorient"):
            import nibabel
            from nibabel.orientations import io_orientation

            image = nibabel.Nifti1Image(np.zeros(shape[::-1], np.uint8), affine)
            stored["reoriented_affine"] = image.as_reoriented(io_orientation(affine)).affine
        return {"nibabel_stuff": stored, "spacing": [2.0, 0.5, 0.75]}
    return {"spacing": [999, 1, 1] if reader == "NaturalImage2DIO" else [2.0, 0.5, 0.75]}


def write_folder(
    folder: Path,
    cases: Mapping[str, np.ndarray],
    *,
    labels: Mapping[str, Any] = LABELS,
    ending: str = ".nii.gz",
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
        properties = properties_of(reader, p.shape[1:])
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(properties))
        writer = recursive_find_reader_writer_by_name(reader)()
        writer.write_seg(segment(p, labels), str(folder / f"{name}{ending}"), properties)
    return folder


def read(file: Path) -> np.ndarray:
    """An image's values, in the order of nnU-Net's arrays."""
    image: np.ndarray = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
    return image


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as file:
        stored: np.ndarray = file["probabilities"]
    return stored


def geometry(file: Path) -> list[float]:
    image = sitk.ReadImage(str(file))
    return [*image.GetSize(), *image.GetSpacing(), *image.GetOrigin(), *image.GetDirection()]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
