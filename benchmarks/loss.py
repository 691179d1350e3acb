"""Time and memory of the losses, forward and backward, beside F.cross_entropy, nnU-Net's Dice + CE and MONAI's NACL.

    python benchmarks/loss.py                 the table of bounds
    python benchmarks/loss.py --all           also every loss without pieces, all at once

All take turns; a ratio is the median over rounds of one's time over the other's in the same round. Memory is the
most that torch has allocated at a time, beside the logits and labels. On a machine that does other work,
``--threads 1`` measures the CPU time of one thread, which is steadier.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from monai.losses import NACLLoss as MonaiNACLLoss
from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from nnunet_nacl import losses

SIZES = {"2d": (12, 4, (256, 256)), "3d": (2, 32, (64, 64, 64))}
BOUNDS = {
    "2d": {"F.cross_entropy": 2.5, "nnU-Net Dice + CE": 1.0, "MONAI NACLLoss": 0.8},
    "3d": {"F.cross_entropy": 1.8, "nnU-Net Dice + CE": 0.7, "MONAI NACLLoss": 0.3},
}
OURS = {
    "NACL": losses.NACLLoss(),
    "NACL gaussian": losses.NACLLoss(prior="gaussian"),
    "NACL l2": losses.NACLLoss(penalty="l2"),
    "CE": losses.CrossEntropyLoss(),
    "SVLS": losses.SVLSLoss(),
    "MbLS": losses.MbLSLoss(),
    "FL": losses.FocalLoss(),
    "ECP": losses.ECPLoss(),
    "LS": losses.LabelSmoothingLoss(),
}
CELL = {2: 26, 3: 20}  # voxels, so that about a tenth of all are near a boundary
Call = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--threads", type=int, help="default: as many as torch takes")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__}\n"
    )
    for size in SIZES:
        _times(size, options.rounds, everything=options.all)
    print(
        "| peak memory beside logits and labels, in sizes of the float32 logits | 2d | 3d |\n| --- | --- | --- |"
    )
    for name in (*OURS, "NACL at once", *BOUNDS["2d"]):
        print(f"| {name} | {' | '.join(f'{_peak(size, name):.2f}' for size in SIZES)} |")


def data(size: str) -> tuple[Tensor, Tensor]:
    """Random logits, and labels with whole areas of one class."""
    batch, classes, spatial = SIZES[size]
    torch.manual_seed(0)
    logits = 3 * torch.randn(batch, classes, *spatial)
    coarse = torch.randn(
        batch, classes, *(max(2, length // CELL[len(spatial)]) for length in spatial)
    )
    mode = "bilinear" if len(spatial) == 2 else "trilinear"
    return logits, F.interpolate(coarse, size=spatial, mode=mode).argmax(1, keepdim=True)


def calls(size: str) -> dict[str, Call]:
    """Name -> what to call with logits and labels (b, 1, *spatial)."""
    _, classes, spatial = SIZES[size]
    dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    nnunet = DC_and_CE_loss(
        dice,
        {},
        weight_ce=1,
        weight_dice=1,
        ignore_label=None,
        dice_class=MemoryEfficientSoftDiceLoss,
    )
    monai = MonaiNACLLoss(classes=classes, dim=len(spatial))
    made: dict[str, Call] = {
        "F.cross_entropy": lambda logits, labels: F.cross_entropy(logits, labels[:, 0]),
        "nnU-Net Dice + CE": nnunet,
        "MONAI NACLLoss": lambda logits, labels: monai(logits, labels[:, 0]),
    }
    for name, loss in OURS.items():
        made[name], made[f"{name} at once"] = loss, loss.mean
    return made


def _times(size: str, rounds: int, *, everything: bool) -> None:
    logits, labels = data(size)
    edges = _share_near_boundaries(labels)
    shape = " × ".join(map(str, logits.shape))
    print(
        f"{shape}, {100 * edges:.0f} % of the voxels near a boundary, float32, forward and backward\n"
    )
    measured = {
        name: call
        for name, call in calls(size).items()
        if everything or not name.endswith(" at once") or name == "NACL at once"
    }
    logits.requires_grad_()
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    for _ in range(rounds + 1):
        for name, call in measured.items():
            start = clock()
            torch.autograd.grad(call(logits, labels), logits)
            seconds[name].append(clock() - start)
    peers = list(BOUNDS[size])
    print(
        f"| loss | ms | {' | '.join(f'over {peer}' for peer in peers)} |\n| --- | --- |{' --- |' * len(peers)}"
    )
    for name, own in seconds.items():
        ratios = [
            statistics.median(
                one / other for one, other in zip(own[1:], seconds[peer][1:], strict=True)
            )
            for peer in peers
        ]
        bounds = BOUNDS[size].values() if name == "NACL" else (None,) * len(peers)
        shown = [
            f"{ratio:.2f}{f' (bound {bound})' if bound else ''}"
            for ratio, bound in zip(ratios, bounds, strict=True)
        ]
        print(f"| {name} | {1e3 * statistics.median(own[1:]):.1f} | {' | '.join(shown)} |")
    print()


def _share_near_boundaries(labels: Tensor) -> float:
    pool = F.max_pool2d if labels.ndim == 4 else F.max_pool3d
    as_float = labels.float()
    near = pool(as_float, 3, 1, 1) != -pool(-as_float, 3, 1, 1)
    return float(near.float().mean())


def _peak(size: str, name: str) -> float:
    """The most that torch has allocated at a time in one forward and backward, over the logits' size."""
    logits, labels = data(size)
    call = calls(size)[name]
    logits.requires_grad_()
    torch.autograd.grad(call(logits, labels), logits)  # what is allocated once
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        torch.autograd.grad(call(logits, labels), logits)
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        profiler.export_chrome_trace(trace.name)
        events = json.loads(Path(trace.name).read_text())["traceEvents"]
    events = sorted(
        (event for event in events if event.get("name") == "[memory]"),
        key=lambda event: event["ts"],
    )
    return max(itertools.accumulate(event["args"]["Bytes"] for event in events)) / (
        4 * logits.numel()
    )


if __name__ == "__main__":
    main()
