"""The processes and the device that a command uses."""

import os
from typing import Literal

Device = Literal["auto", "cpu", "cuda", "mps"]
"""The choices of ``-device``."""


def num_processes(np: int | None = None) -> int:
    """Return the number of processes for ``-np``; by default nnU-Net's, at most the number of cores."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # that this process may use
    return np or min(int(os.environ.get("nnUNet_def_n_proc", "8")), cores)  # noqa: SIM112


def find_device(device: Device) -> str:
    """The device that ``auto`` stands for; others as they are."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
