"""What a command uses of this machine: processes and a device."""

import os


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


def find_device(device: str) -> str:
    """The device of this machine that ``auto`` stands for; others as they are."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("-device cuda: torch finds no such device here.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
