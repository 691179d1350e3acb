"""What a command uses of this machine: processes and a device."""

import os
from typing import Literal

Device = Literal["auto", "cpu", "cuda", "mps"]
"""What ``-device`` takes."""


def num_processes(np: int | None = None) -> int:
    """How many processes ``-np`` asks for; by default nnU-Net's number."""
    if np is not None:
        if np < 1:
            raise ValueError(f"-np: expected 1 or more processes; got {np}.")
        return np
    default = os.environ.get("nnUNet_def_n_proc", "8")  # noqa: SIM112
    if not default.isdecimal() or int(default) < 1:
        raise ValueError(
            f"nnUNet_def_n_proc: expected a whole number of processes; got {default!r}."
        )
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # that this process may use
    return min(int(default), cores)


def find_device(device: Device) -> str:
    """The device of this machine that ``auto`` stands for; others as they are, or a ValueError if it has none."""
    import torch

    is_there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return "cuda" if is_there["cuda"] else "cpu"
    if not is_there.get(device, True):
        raise ValueError(
            f"-device {device}: torch finds no such device here; expected cpu or auto."
        )
    return device
