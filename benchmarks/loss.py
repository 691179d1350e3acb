"""Time and memory of the losses, forward and backward, beside F.cross_entropy, nnU-Net's Dice + CE and MONAI's NACL.

    python benchmarks/loss.py                 the table of bounds
    python benchmarks/loss.py --all           also every loss without pieces, all at once
    python benchmarks/loss.py -device cuda    compiled, with logits in half precision under autocast, at four sizes,
                                              after smaller scales, as in training; and the time of the kernels
    python benchmarks/loss.py --sizes 2d --losses NACL CE       some of both

All take turns; a ratio is the median over rounds of one's time over the other's in the same round. Memory is the
most that torch has allocated at a time, beside the logits and labels. On a machine that does other work,
``--threads 1`` measures the CPU time of one thread, which is steadier. ``--shrink 4`` divides the axes by 4, to try it.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from monai.losses import NACLLoss as MonaiNACLLoss
from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from nnunet_nacl import losses
from nnunet_nacl.losses._base import at_once

Size = tuple[int, int, tuple[int, ...]]
SIZES: dict[str, dict[str, Size]] = {
    "cpu": {"2d": (12, 4, (256, 256)), "3d": (2, 32, (64, 64, 64))},
    "cuda": {
        "2d": (12, 4, (256, 256)),
        "3d": (2, 4, (128, 128, 128)),
        "3d_14_classes": (2, 14, (128, 128, 128)),
        "3d_105_classes": (2, 105, (96, 96, 96)),
    },
}
BOUNDS = {
    "2d": {"F.cross_entropy": 2.5, "nnU-Net Dice + CE": 1.0, "MONAI NACLLoss": 0.8},
    "3d": {"F.cross_entropy": 1.8, "nnU-Net Dice + CE": 0.7, "MONAI NACLLoss": 0.3},
}
OURS: dict[str, Callable[..., losses.SegmentationLoss]] = {
    "NACL": losses.NACLLoss,
    "NACL gaussian": partial(losses.NACLLoss, prior="gaussian"),
    "NACL l2": partial(losses.NACLLoss, penalty="l2"),
    "CE": losses.CrossEntropyLoss,
    "SVLS": losses.SVLSLoss,
    "MbLS": losses.MbLSLoss,
    "FL": losses.FocalLoss,
    "ECP": losses.ECPLoss,
    "LS": losses.LabelSmoothingLoss,
    "CRaC": losses.CRaCLoss,
    "FLSD": losses.FLSDLoss,
    "DualFL": losses.DualFocalLoss,
    "FCL": losses.FocalCalibrationLoss,
    "DicePPCE": partial(losses.CrossEntropyLoss, term=losses.DicePlusPlus(batch=True)),
}
PEERS = ("F.cross_entropy", "nnU-Net Dice + CE", "MONAI NACLLoss")
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
    parser.add_argument("-device", choices=list(SIZES), default="cpu")
    parser.add_argument("--sizes", nargs="+", help="default: all that are measured on the device")
    parser.add_argument("--losses", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--shrink", type=int, default=1)
    options = parser.parse_args()
    sizes = options.sizes or list(SIZES[options.device])
    if options.threads:
        torch.set_num_threads(options.threads)
    on = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    print(
        f"{on}, {torch.get_num_threads()} threads, Python {platform.python_version()}, torch {torch.__version__}, "
        f"{time.strftime('%Y-%m-%d')}\n"
    )
    table: dict[str, list[str]] = {}
    for size in sizes:
        batch, classes, spatial = SIZES[options.device][size]
        shrunk = (batch, classes, tuple(side // options.shrink for side in spatial))
        torch._dynamo.reset()  # each size is another training
        measured = Measured(shrunk, options.device, options.losses)
        measured.print_times(BOUNDS.get(size, {}), options.rounds, everything=options.all)
        for name in measured.shown:
            table.setdefault(name, []).append(f"{measured.peak(name):.2f}")
    print(
        "| peak memory beside logits and labels, in sizes of the float32 logits | "
        f"{' | '.join(sizes)} |\n| --- |{' --- |' * len(sizes)}"
    )
    for name, peaks in table.items():
        print(f"| {name} | {' | '.join(peaks)} |")


def data(size: Size) -> tuple[Tensor, Tensor]:
    """Random logits, and labels with whole areas of one class."""
    batch, classes, spatial = size
    torch.manual_seed(0)
    logits = 3 * torch.randn(batch, classes, *spatial)
    coarse = torch.randn(
        batch, classes, *(max(2, length // CELL[len(spatial)]) for length in spatial)
    )
    mode = "bilinear" if len(spatial) == 2 else "trilinear"
    return logits, F.interpolate(coarse, size=spatial, mode=mode).argmax(1, keepdim=True)


class Measured:
    """The losses at one size on one device, where a GPU's logits come in half precision, under autocast."""

    def __init__(self, size: Size, device: str, names: Sequence[str]) -> None:
        _, classes, spatial = size
        self.device = device
        self.on_gpu = device == "cuda"
        logits, labels = data(size)
        self.edges = _share_near_boundaries(labels)
        logits = (logits.half() if self.on_gpu else logits).to(device)
        self.logits = logits.requires_grad_()
        self.labels = labels.to(device)
        dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
        monai = MonaiNACLLoss(classes=classes, dim=len(spatial)).to(device)
        self.calls: dict[str, Call] = {
            "F.cross_entropy": lambda logits, labels: F.cross_entropy(logits, labels[:, 0]),
            "nnU-Net Dice + CE": DC_and_CE_loss(
                dice, {}, ignore_label=None, dice_class=MemoryEfficientSoftDiceLoss
            ),
            "MONAI NACLLoss": lambda logits, labels: monai(logits.float(), labels[:, 0]),
        }
        for name in names:
            loss = OURS[name](compiled=self.on_gpu)
            if self.on_gpu:
                self._run_smaller_scales(loss)
            self.calls[name] = loss
            self.calls[f"{name} at once"] = partial(at_once, loss)
        # All at once costs much time and memory: one shows it
        self.shown = [
            name
            for name in self.calls
            if not name.endswith(" at once") or name == f"{names[0]} at once"
        ]

    def _run_smaller_scales(self, loss: losses.SegmentationLoss) -> None:
        """The loss at full resolution first, then at the others, as in a step of training."""
        for step in (1, 2, 4, 8):
            scale = (..., *(slice(None, None, step),) * (self.logits.ndim - 2))
            loss(self.logits.detach()[scale].contiguous(), self.labels[scale].contiguous())

    def run(self, name: str) -> None:
        """Forward and backward."""
        with torch.autocast(self.device, enabled=self.on_gpu):
            value = self.calls[name](self.logits, self.labels)
        torch.autograd.grad(value, self.logits)

    def seconds(self, name: str) -> float:
        """Of one run; of one thread, its CPU time."""
        if self.on_gpu:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self.run(name)
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        begun = clock()
        self.run(name)
        return clock() - begun

    def print_times(self, bounds: dict[str, float], rounds: int, *, everything: bool) -> None:
        """A table of times, each beside those of the peers in the same round."""
        shape = " × ".join(map(str, self.logits.shape))
        print(
            f"{shape}, {100 * self.edges:.0f} % of the voxels near a boundary, {self.logits.dtype}, forward and "
            "backward\n"
        )
        names = list(self.calls) if everything else self.shown
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds + 2):
            for name in names:
                taken = self.seconds(name)
                if number >= 2:  # compiling comes before
                    seconds[name].append(taken)
        title, rule = ("| of kernels ", "| --- ") if self.on_gpu else ("", "")
        print(
            f"| loss | ms {title}| {' | '.join(f'over {peer}' for peer in PEERS)} |\n"
            f"| --- | --- {rule}|{' --- |' * len(PEERS)}"
        )
        for name, own in seconds.items():
            shown = []
            for peer in PEERS:
                ratio = statistics.median(
                    one / other for one, other in zip(own, seconds[peer], strict=True)
                )
                bounded = self.device == "cpu" and name == "NACL" and peer in bounds
                shown.append(f"{ratio:.2f}{f' (bound {bounds[peer]})' if bounded else ''}")
            kernels = f"| {self.kernels(name):.2f} " if self.on_gpu else ""
            print(f"| {name} | {1e3 * statistics.median(own):.2f} {kernels}| {' | '.join(shown)} |")
        print()

    def kernels(self, name: str) -> float:
        """Milliseconds in which the GPU works in one run; the rest is the processor's, which launches."""
        runs = 5
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(runs):
                self.run(name)
            torch.cuda.synchronize()
        taken = (
            event.self_device_time_total
            for event in profiler.key_averages()
            if event.device_type == DeviceType.CUDA
        )
        return float(sum(taken)) / 1e3 / runs

    def peak(self, name: str) -> float:
        """The most that torch has allocated at a time in one run, over the size of the float32 logits."""
        self.run(name)  # what is allocated once
        if self.on_gpu:
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.run(name)
            torch.cuda.synchronize()
            most = torch.cuda.max_memory_allocated() - before
        else:
            most = self._peak_on_cpu(name)
        return most / (4 * self.logits.numel())

    def _peak_on_cpu(self, name: str) -> int:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.run(name)
        with tempfile.NamedTemporaryFile(suffix=".json") as trace:
            profiler.export_chrome_trace(trace.name)
            events = json.loads(Path(trace.name).read_text())["traceEvents"]
        events = sorted(
            (event for event in events if event.get("name") == "[memory]"),
            key=lambda event: event["ts"],
        )
        return int(max(itertools.accumulate(event["args"]["Bytes"] for event in events)))


def _share_near_boundaries(labels: Tensor) -> float:
    pool = F.max_pool2d if labels.ndim == 4 else F.max_pool3d
    as_float = labels.float()
    near = pool(as_float, 3, 1, 1) != -pool(-as_float, 3, 1, 1)
    return float(near.float().mean())


if __name__ == "__main__":
    main()
