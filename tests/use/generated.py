"""Folders of predictions of given probabilities, tilted in space; ``tests.calibrate.generated`` makes the others."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO

from tests.calibrate.generated import ENDING, description, plans, segment, softmax, write_labels

STRUCTURES = {False: {"one": [1], "two": [2]}, True: {"whole": [1, 2], "core": [2]}}
SHAPE = (5, 12, 14)
VOXEL_ML = 0.75 / 1000


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


def write_case(folder: Path, name: str, p: np.ndarray, regions: bool = False) -> None:
    """Probabilities and segmentation."""
    np.savez_compressed(folder / f"{name}.npz", probabilities=p)
    write_labels(segment(p, regions), folder / f"{name}{ENDING}")


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


def random_folder(folder: Path, names: str, regions: bool = False, *, first: int = 0) -> Path:
    """Predictions of :func:`random_case`."""
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
