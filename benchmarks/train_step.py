"""Time of a training step with our trainers as a ratio to nnU-Net's default trainer, on the same plan.

    python benchmarks/train_step.py                                  the demo's data set, 2d
    python benchmarks/train_step.py -d 4 -c 2d 3d_fullres -b 2       a data set that nnU-Net has preprocessed

The trainers take turns on the same random batch; a ratio is the median over rounds of this trainer's time over the
default's in the same round.
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
from typing import Any

import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

from nnunet_nacl import trainers
from nnunet_nacl.demo import DATASET, write_data_set

NAMES = ("nnUNetTrainerNACL", "nnUNetTrainerDiceNACL", "nnUNetTrainerDiceCE", "nnUNetTrainerCE")


def main() -> None:
    """Parse the options, time, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", help="data set id (default: the demo's data, generated)")
    parser.add_argument("-c", nargs="+", default=["2d"], help="configurations (default: 2d)")
    parser.add_argument("-b", type=int, default=8, help="batch size (default: 8)")
    parser.add_argument("-device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.d is None:
            _prepare_demo(Path(folder))
            data_set = DATASET
        else:
            data_set = maybe_convert_to_dataset_name(options.d)
            os.environ["nnUNet_results"] = folder  # trainers write log files
        for configuration in options.c:
            _compare(data_set, configuration, options)


def _prepare_demo(folder: Path) -> None:
    os.environ.update(
        {f"nnUNet_{part}": str(folder / part) for part in ("raw", "preprocessed", "results")}
    )
    write_data_set(folder / "raw")
    command = Path(sys.executable).with_name("nnUNetv2_plan_and_preprocess")
    arguments = ["-d", DATASET[7:10], "-c", "2d", "-npfp", "1", "-np", "1"]
    subprocess.run(
        [command, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _compare(data_set: str, configuration: str, options: argparse.Namespace) -> None:
    classes = {"nnUNetTrainer": nnUNetTrainer, **{name: getattr(trainers, name) for name in NAMES}}
    made = {
        name: _make(trainer, data_set, configuration, options) for name, trainer in classes.items()
    }
    batch = _batch(made["nnUNetTrainer"], options.b)
    times: dict[str, list[float]] = {name: [] for name in made}
    for number in range(options.rounds + 2):
        for name, trainer in made.items():
            start = time.perf_counter()
            trainer.train_step(batch)  # reads the loss back, so the device has finished
            if number >= 2:
                times[name].append(time.perf_counter() - start)
    patch = made["nnUNetTrainer"].configuration_manager.patch_size
    machine = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    )
    print(
        f"\n{data_set} {configuration}: batch {options.b}, patch {'x'.join(map(str, patch))}, {machine}, "
        f"torch {torch.__version__}, Python {platform.python_version()}, medians of {options.rounds} rounds"
    )
    for name, seconds in times.items():
        ratios = [
            own / default for own, default in zip(seconds, times["nnUNetTrainer"], strict=True)
        ]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(
            f"{name:24} {statistics.median(seconds) * 1e3:8.1f} ms   ratio {statistics.median(ratios):.3f} ({spread})"
        )


def _make(
    trainer_class: Any, data_set: str, configuration: str, options: argparse.Namespace
) -> Any:
    folder = Path(os.environ["nnUNet_preprocessed"]) / data_set
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["configurations"][configuration]["batch_size"] = options.b
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
