"""Time of a training step with our trainers as a ratio to nnU-Net's default trainer, on the same plan.

    python benchmarks/train_step.py                                  nnU-Net's own sizes, on generated data
    python benchmarks/train_step.py --sizes 2d --trainers NACL CE     some of both
    python benchmarks/train_step.py --shrink 4 --rounds 2            smaller, to try it
    python benchmarks/train_step.py -d 4 -c 2d 3d_fullres -b 2       a data set that nnU-Net has preprocessed

The trainers take turns on the same random batch; a ratio is the median over rounds of this trainer's time over the
default's in the same round. nnU-Net plans for the generated data: 256² in batches of 12; 128³ in batches of 2 with 4
and 14 classes.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

from nnunet_nacl import trainers

NAMES = ("NACL", "DiceNACL", "DiceCE", "CE")


class Size(NamedTuple):
    """A data set that makes nnU-Net plan these patches; its configuration, batch size and number of classes."""

    data_set: str
    shape: tuple[int, int, int]
    configuration: str
    patch: tuple[int, ...]
    batch: int
    classes: int


SIZES = {
    "2d": Size("Dataset991_2d", (32, 256, 256), "2d", (256, 256), 12, 4),
    "3d": Size("Dataset992_3d", (144, 144, 144), "3d_fullres", (128, 128, 128), 2, 4),
    "3d_14_classes": Size("Dataset993_3d14", (144, 144, 144), "3d_fullres", (128, 128, 128), 2, 14),
}


def main() -> None:
    """Parse the options, time, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", help="data set id (default: generated data)")
    parser.add_argument("-c", nargs="+", default=["2d"], help="configurations (default: 2d)")
    parser.add_argument("-b", type=int, default=8, help="batch size (default: 8)")
    parser.add_argument("-device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--trainers", nargs="+", metavar="TRAINER", default=NAMES)
    parser.add_argument("--shrink", type=int, default=1, help="divide the generated axes by it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["nnUNet_results"] = folder  # trainers write log files
        if options.d is not None:
            data_set = maybe_convert_to_dataset_name(options.d)
            for configuration in options.c:
                _compare(data_set, configuration, options.b, options)
            return
        for part in ("raw", "preprocessed"):
            os.environ[f"nnUNet_{part}"] = str(Path(folder) / part)
        for name in options.sizes:
            size = SIZES[name]
            _plan(Path(folder), size, options.shrink)
            _compare(size.data_set, size.configuration, size.batch, options)


def _plan(folder: Path, size: Size, shrink: int) -> None:
    """Let nnU-Net plan a data set of which there is one image and what nnU-Net would find in many."""
    raw = folder / "raw" / size.data_set
    shape = [side // shrink for side in size.shape]
    for part, ending in (("imagesTr", "_0000"), ("labelsTr", "")):
        (raw / part).mkdir(parents=True)
        image = sitk.GetImageFromArray(np.zeros(shape, np.uint8))
        sitk.WriteImage(image, str(raw / part / f"case{ending}.nii.gz"))
    names = ["background", *(f"structure_{k}" for k in range(1, size.classes))]
    described = {
        "channel_names": {"0": "MRI"},
        "labels": {name: number for number, name in enumerate(names)},
        "numTraining": 1,
        "file_ending": ".nii.gz",
    }
    fingerprint = {
        "spacings": [[1, 1, 1]] * 1000,
        "shapes_after_crop": [shape] * 1000,
        "median_relative_size_after_cropping": 1,
        "foreground_intensity_properties_per_channel": {"0": {}},
    }
    preprocessed = folder / "preprocessed" / size.data_set
    preprocessed.mkdir(parents=True)
    (raw / "dataset.json").write_text(json.dumps(described))
    (preprocessed / "dataset_fingerprint.json").write_text(json.dumps(fingerprint))
    command = Path(sys.executable).with_name("nnUNetv2_plan_experiment")
    subprocess.run([command, "-d", size.data_set[7:10]], check=True, stdout=subprocess.DEVNULL)
    plans_file = preprocessed / "nnUNetPlans.json"
    plans = json.loads(plans_file.read_text())
    configuration = plans["configurations"][size.configuration]
    configuration["patch_size"] = [side // shrink for side in size.patch]
    plans_file.write_text(json.dumps(plans))
    # nnU-Net looks for the format of the preprocessed data
    data = preprocessed / configuration["data_identifier"]
    data.mkdir()
    (data / "case.b2nd").touch()


def _compare(
    data_set: str, configuration: str, batch_size: int, options: argparse.Namespace
) -> None:
    ours = [f"nnUNetTrainer{name}" for name in options.trainers]
    classes = {"nnUNetTrainer": nnUNetTrainer, **{name: getattr(trainers, name) for name in ours}}
    made = {
        name: _make(trainer, data_set, configuration, batch_size, options)
        for name, trainer in classes.items()
    }
    batch = _batch(made["nnUNetTrainer"], batch_size)
    times: dict[str, list[float]] = {name: [] for name in made}
    memory: dict[str, float] = {}
    on_gpu = options.device == "cuda"
    for number in range(options.rounds + 3):
        for name, trainer in made.items():
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            trainer.train_step(batch)  # reads the loss back, so the device has finished
            if number < 3:  # compiling comes before
                continue
            times[name].append(time.perf_counter() - start)
            if on_gpu:
                memory[name] = (torch.cuda.max_memory_allocated() - before) / 2**30
    patch = made["nnUNetTrainer"].configuration_manager.patch_size
    machine = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    )
    print(
        f"\n{data_set} {configuration}: batch {batch_size}, patch {'x'.join(map(str, patch))}, {machine}, "
        f"torch {torch.__version__}, Python {platform.python_version()}, medians of {options.rounds} rounds"
    )
    for name, seconds in times.items():
        ratios = [
            own / default for own, default in zip(seconds, times["nnUNetTrainer"], strict=True)
        ]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(
            f"{name:24} {statistics.median(seconds) * 1e3:8.1f} ms   ratio {statistics.median(ratios):.3f} ({spread})"
            + (f"   step memory {memory[name]:.2f} GiB" if options.device == "cuda" else "")
        )


def _make(
    trainer_class: Any,
    data_set: str,
    configuration: str,
    batch_size: int,
    options: argparse.Namespace,
) -> Any:
    folder = Path(os.environ["nnUNet_preprocessed"]) / data_set
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["configurations"][configuration]["batch_size"] = batch_size
    plans["continue_training"] = False
    dataset_json = json.loads((folder / "dataset.json").read_text())
    torch.manual_seed(0)
    trainer = trainer_class(plans, configuration, 0, dataset_json, torch.device(options.device))
    trainer.print_to_log_file = lambda *_, **__: None
    trainer.initialize()
    return trainer


def _batch(trainer: Any, batch_size: int) -> dict[str, Any]:
    """Noise, and labels in blocks of eight voxels: few boundaries, as in an organ."""
    patch = trainer.configuration_manager.patch_size
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(
        trainer.label_manager.num_segmentation_heads,
        (batch_size, 1, *(-(-side // 8) for side in patch)),
        generator=generator,
    )
    full = blocks
    for axis, side in enumerate(patch, start=2):
        full = full.repeat_interleave(8, axis).narrow(axis, 0, side)
    targets = [
        torch.nn.functional.interpolate(
            full.float(), [round(s * f) for s, f in zip(patch, scale, strict=True)]
        ).short()
        for scale in trainer._get_deep_supervision_scales()
    ]
    data = torch.randn(batch_size, trainer.num_input_channels, *patch, generator=generator)
    return {"data": data, "target": targets}


if __name__ == "__main__":
    main()
