"""Bandwidth and memory of the losses on a GPU, forward and backward, beside a copy and MONAI's NACL.

    python benchmarks/loss_cuda.py

The logits are in half precision. Bandwidth counts one read of logits and labels and one write of the gradient; a
copy's, one read and one write. All take turns; figures are medians over rounds. Sizes are patches of nnU-Net plans
for 2d and 3d_fullres.
"""

import argparse
import platform
import statistics
from collections.abc import Callable

import torch
from monai.losses import NACLLoss as MonaiNACLLoss
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl import losses

SIZES = {"2d": (12, (512, 512)), "3d": (2, (128, 128, 128))}
CLASSES = (4, 118)
LOSSES: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "NACL": lambda _classes, _dims: losses.NACLLoss(),
    "NACL gaussian": lambda _classes, _dims: losses.NACLLoss(prior="gaussian"),
    "SVLS": lambda _classes, _dims: losses.SVLSLoss(),
    "CE": lambda _classes, _dims: losses.CrossEntropyLoss(),
    "F.cross_entropy": lambda _classes, _dims: torch.nn.CrossEntropyLoss(),
    "MONAI NACLLoss": lambda classes, dims: MonaiNACLLoss(classes=classes, dim=dims),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU that torch can use; benchmarks/loss.py measures on the CPU.")
    print(f"{torch.cuda.get_device_name()}, Python {platform.python_version()}, torch {torch.__version__}\n")
    print("| size | loss | ms | GB/s | of the copy's | peak memory, in sizes of the float32 logits |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size, (batch, spatial) in SIZES.items():
        for classes in CLASSES:
            torch.manual_seed(0)
            logits = torch.randn(batch, classes, *spatial, device="cuda", dtype=torch.float16).requires_grad_()
            labels = _labels(batch, classes, spatial)
            _print_rows(
                f"{size}: {batch} × {classes} × {' × '.join(map(str, spatial))}", logits, labels, options.rounds
            )


def _print_rows(size: str, logits: Tensor, labels: Tensor, rounds: int) -> None:
    made = {name: make(logits.shape[1], logits.ndim - 2) for name, make in LOSSES.items()}
    runs = {name: _step(name, loss, logits, labels) for name, loss in made.items()}
    target = torch.empty_like(logits)
    runs = {"copy": lambda: target.copy_(logits.detach()), **runs}
    moved = {name: 2 * logits.nbytes + (0 if name == "copy" else labels.nbytes) for name in runs}
    peaks: dict[str, float | None] = {name: _peak(run) for name, run in runs.items()}  # also compiles the kernels
    times: dict[str, list[float]] = {name: [] for name, peak in peaks.items() if peak is not None}
    for _ in range(rounds):
        for name, seconds in times.items():
            seconds.append(_seconds(runs[name]))
    copy = moved["copy"] / statistics.median(times["copy"])
    for name, peak in peaks.items():
        if peak is None:
            print(f"| {size} | {name} | out of memory | | | |")
            continue
        median = statistics.median(times[name])
        speed = moved[name] / median
        share = peak / (4 * logits.numel())
        print(f"| {size} | {name} | {1000 * median:.3f} | {speed / 1e9:.0f} | {speed / copy:.0%} | {share:.2f} |")


def _step(name: str, loss: torch.nn.Module, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    given = labels[:, 0].long() if name == "F.cross_entropy" else labels

    def step() -> None:
        with torch.autocast("cuda"):
            value = loss(logits, given)
        torch.autograd.grad(value, logits)

    return step


def _peak(run: Callable[[], object]) -> float | None:
    """Bytes above what was held before; None if the device does not have them."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        run()
    except torch.cuda.OutOfMemoryError:
        return None
    return float(torch.cuda.max_memory_allocated() - before)


def _seconds(run: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def _labels(batch: int, classes: int, spatial: tuple[int, ...]) -> Tensor:
    """Blobs, with about a tenth of all voxels near a boundary."""
    coarse = torch.randint(classes, (batch, 1, *(-(-side // 24) for side in spatial)), device="cuda")
    return F.interpolate(coarse.float(), size=spatial, mode="nearest").to(torch.int16)


if __name__ == "__main__":
    main()
