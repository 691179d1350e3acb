"""Small folders of predictions, and what was evaluated of them."""

import json
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch
from torch.nn.functional import one_hot

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import read_result

LABELS = {"background": 0, "one": 1, "two": 2}
SUMMARY = "calibration_summary.json"
Folders = tuple[Path, Path]


def random_case(seed: int, classes: int = 3, shape: tuple[int, ...] = (6, 20, 20)) -> tuple[np.ndarray, np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, shape, generator=generator)
    logits = 2 * one_hot(labels, classes).movedim(-1, 0) + torch.randn(classes, *shape, generator=generator)
    return logits.softmax(0).numpy(), labels.numpy()


def add_case(gt_folder: Path, predictions: Path, name: str, p: np.ndarray, y: np.ndarray) -> None:
    write(y, gt_folder / f"{name}.nii.gz")
    write(p.argmax(0), predictions / f"{name}.nii.gz")
    np.savez_compressed(predictions / f"{name}.npz", probabilities=p)


def write(labels: np.ndarray, file: Path, spacing: tuple[float, ...] = (1, 1, 1)) -> None:
    image = sitk.GetImageFromArray(labels.astype(np.uint8))
    image.SetSpacing(spacing)
    sitk.WriteImage(image, str(file))


def run_evaluate(folders: Folders, *options: object) -> int:
    return main(["evaluate", *map(str, folders), "-np", "1", *map(str, options)])


def summary_of(folders: Folders) -> dict[str, object]:
    return json.loads((folders[1] / SUMMARY).read_text())


def reasons(folders: Folders) -> dict[str, str]:
    return {entry["case"]: entry["reason"] for entry in summary_of(folders)["skipped"]}


def content(summary: Path) -> str:
    """Every number to the last bit, and the bin tables' counts."""
    result = read_result(summary)
    tables = [
        [getattr(table, part).tolist() for part in ("count", "hits", "confidence", "unbinned")]
        for case in result.cases
        for one in case.result.calibration.values()
        for table in (one.top, one.classwise)
    ]
    return json.dumps([json.loads(summary.read_text()), tables])


def truncated(_: Path, predictions: Path) -> None:
    file = predictions / "case_1.npz"
    file.write_bytes(file.read_bytes()[:3000])
