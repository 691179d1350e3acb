"""What the calibration of each epoch costs: the share of an epoch spent in it, in a real training.

    python benchmarks/progress.py -d 4 -c 2d --epochs 3

Needs nnU-Net's environment variables and a preprocessed data set. Trains, with timers around what each epoch adds:
the counting of each validation batch, the figures, and the picture.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nnunetv2.run.run_training import get_trainer_from_args

from nnunet_nacl.trainers import _live
from nnunet_nacl.trainers._live import LiveCalibration

_seconds: list[float] = []


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", required=True, help="data set that nnU-Net has preprocessed")
    parser.add_argument("-c", default="2d", help="configuration")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("-device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ.setdefault("nnUNet_n_proc_DA", "0")
    LiveCalibration.add = _timed(LiveCalibration.add)  # type: ignore[method-assign]
    LiveCalibration.values = _timed(LiveCalibration.values)  # type: ignore[method-assign]
    _live.plot_progress = _timed(_live.plot_progress)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["nnUNet_results"] = folder
        name = f"nnUNetTrainerNACL_{options.epochs}epochs"
        trainer = get_trainer_from_args(
            options.d, options.c, 0, name, device=torch.device(options.device)
        )
        trainer.print_to_log_file = lambda *_, **__: None
        Path(trainer.output_folder).mkdir(parents=True, exist_ok=True)
        trainer.run_training()
    logged = trainer.logger.local_logger.my_fantastic_logging
    epochs = sum(logged["epoch_end_timestamps"]) - sum(logged["epoch_start_timestamps"])
    machine = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    )
    print(
        f"{options.d} {options.c}, {machine}, Python {platform.python_version()}, torch {torch.__version__}: "
        f"{sum(_seconds) / options.epochs:.2f} of {epochs / options.epochs:.1f} s an epoch, "
        f"{sum(_seconds) / epochs:.2%}"
    )


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # what is still to do there is not ours
        start = time.perf_counter()
        result = function(*arguments, **keywords)
        _seconds.append(time.perf_counter() - start)
        return result

    return call


if __name__ == "__main__":
    main()
