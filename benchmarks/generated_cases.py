"""The data sets of gpu.sh: 40 validation cases like Hippocampus (or the real ones), and 5 large ones with 15 classes.

    python benchmarks/generated_cases.py --hippocampus .../Dataset004_Hippocampus    into nnUNet_raw
    python benchmarks/generated_cases.py --untrained 994 3d_fullres      a model of nnUNetTrainerDiceCE as it begins
    python benchmarks/generated_cases.py --planned 4           when nnU-Net has planned data set 4: fold 0, whose
                                                               validation cases are its last, and 2d_bs8, batches of 8

Smooth random structures with noise: what ``calibrate`` costs depends on sizes, classes and boundaries, not on anatomy.
"""

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk
import torch
from nnunetv2.run.run_training import get_trainer_from_args
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name
from nnunetv2.utilities.utils import get_identifiers_from_splitted_dataset_folder
from scipy.ndimage import zoom

SEED = 0
_BLOCK = 2  # voxels along each axis


class Data(NamedTuple):
    """A generated data set."""

    name: str
    shape: tuple[int, int, int]
    classes: int
    training: int
    validation: int


DATA = (
    Data("Dataset004_Hippocampus", (36, 50, 35), 3, 20, 40),
    Data("Dataset994_Large", (160, 320, 320), 15, 2, 5),
)


def main() -> None:
    """Write both, or what one needs when it is planned."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hippocampus", type=Path, help="a raw data set in place of the first")
    parser.add_argument("--shrink", type=int, default=1, help="divide the large axes by it")
    parser.add_argument("--planned", type=int)
    parser.add_argument("--untrained", nargs=2, metavar=("DATASET", "CONFIGURATION"))
    options = parser.parse_args()
    if options.planned is not None:
        write_splits(options.planned)
        write_small_batches(options.planned)
        return
    if options.untrained is not None:
        write_untrained(*options.untrained)
        return
    raw = Path(os.environ["nnUNet_raw"])
    small, large = DATA
    if options.hippocampus:
        shutil.copytree(options.hippocampus, raw / small.name)
    else:
        write(raw, small)
    shape = tuple(side // options.shrink for side in large.shape)
    write(raw, large._replace(shape=shape))


def write(raw: Path, data: Data) -> None:
    """Images and labels, in nnU-Net's raw format."""
    folder = raw / data.name
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    generator = np.random.default_rng(SEED)
    for number in range(data.training + data.validation):
        labels = _labels(data, generator)
        noise = generator.integers(0, 16, labels.shape, np.uint8)
        image = 8 * labels + noise
        for array, name in (
            (image, f"imagesTr/case_{number:03}_0000.nii.gz"),
            (labels, f"labelsTr/case_{number:03}.nii.gz"),
        ):
            sitk.WriteImage(sitk.GetImageFromArray(array), str(folder / name))
    names = ["background", *(f"structure_{k}" for k in range(1, data.classes))]
    described = {
        "channel_names": {"0": "MRI"},
        "labels": {name: label for label, name in enumerate(names)},
        "numTraining": data.training + data.validation,
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(described))


def _labels(data: Data, generator: np.random.Generator) -> np.ndarray:
    """The largest of smooth fields, one for each class, with a background that is larger than the others.

    In blocks of voxels, or large images would take minutes.
    """
    blocks = [-(-side // _BLOCK) for side in data.shape]
    coarse = [max(2, side // 20) for side in data.shape]
    factors = [many / few for many, few in zip(blocks, coarse, strict=True)]
    fields = []
    for label in range(data.classes):
        field = generator.normal(1.5 * (label == 0), 1, coarse)
        fields.append(zoom(field, factors, order=1))
    labels = np.argmax(fields, axis=0).astype(np.uint8)
    for axis, side in enumerate(data.shape):
        labels = labels.repeat(_BLOCK, axis).take(range(side), axis)
    return labels


def write_splits(number: int) -> None:
    """Of fold 0; the other folds are not trained."""
    name = maybe_convert_to_dataset_name(number)
    folder = Path(os.environ["nnUNet_preprocessed"]) / name
    ending = json.loads((folder / "dataset.json").read_text())["file_ending"]
    images = Path(os.environ["nnUNet_raw"]) / name / "imagesTr"
    cases = sorted(get_identifiers_from_splitted_dataset_folder(str(images), ending))
    validation = {data.name: data.validation for data in DATA}[name]
    split = {"train": cases[:-validation], "val": cases[-validation:]}
    (folder / "splits_final.json").write_text(json.dumps([split] * 5))


def write_small_batches(number: int) -> None:
    """Add the configuration 2d_bs8, as a small data set needs it: nnU-Net plans batches that fill a GPU's memory."""
    name = maybe_convert_to_dataset_name(number)
    file = Path(os.environ["nnUNet_preprocessed"]) / name / "nnUNetPlans.json"
    plans = json.loads(file.read_text())
    data = plans["configurations"]["2d"]["data_identifier"]
    small = {"inherits_from": "2d", "batch_size": 8, "data_identifier": data}
    plans["configurations"]["2d_bs8"] = small
    file.write_text(json.dumps(plans))


def write_untrained(data_set: str, configuration: str) -> None:
    """A checkpoint without a step of training: what ``calibrate`` costs depends on the network's size."""
    os.environ["nnUNet_n_proc_DA"] = "0"
    device = torch.device("cpu")
    trainer = get_trainer_from_args(
        data_set, configuration, 0, "nnUNetTrainerDiceCE", device=device
    )
    trainer.initialize()
    folder = Path(trainer.output_folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "plans.json").write_text(json.dumps(trainer.plans_manager.plans))
    (folder.parent / "dataset.json").write_text(json.dumps(trainer.dataset_json))
    trainer.save_checkpoint(str(folder / "checkpoint_final.pth"))


if __name__ == "__main__":
    main()
