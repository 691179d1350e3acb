"""Time and memory of the evaluation, against peers and bounds; prints the table of docs/performance.md.

    python benchmarks/evaluate.py [-o WORKING_FOLDER] [--rounds 5]

Generates its files (14 GB, kept for the next run), see predictions.py. Needs the
extra "test" and 8 GB of memory. Run it on an otherwise idle machine.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from predictions import generate

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings, near_core, surface_metrics
from nnunet_nacl.nnunet import NpzChannels, Predictions

NUM_CASES = 12
SHAPE = (128, 320, 320)
NUM_DENSE_CASES = 4
MEMORY_CASES = {  # name -> classes, shape, kind
    "4_classes": (4, (128, 256, 256), "saturated"),
    "32_classes_dense": (32, (96, 300, 300), "dense"),
    "100_classes": (100, (128, 256, 256), "saturated"),
}


def main() -> None:
    """Generate what is missing, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", type=Path, default=Path("evaluate_benchmark"), help="working folder")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each measurement; the medians count"
    )
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide each axis of the images by this"
    )
    # Measures its own memory: see _peak
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(_own_peak(options.peak))
        return

    folder: Path = options.o
    generate(folder / "many", 4, _shrunk(SHAPE, options.shrink), NUM_CASES)
    generate(folder / "dense", 4, _shrunk(SHAPE, options.shrink), NUM_DENSE_CASES, kind="dense")
    generate(folder / "organs", 15, _shrunk((200, 300, 300), options.shrink), 1, kind="organs")
    for name, (classes, shape, kind) in MEMORY_CASES.items():
        generate(folder / name, classes, _shrunk(shape, options.shrink), 1, kind=kind)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print("\n| what | figure | bound |\n| --- | --- | --- |")
    _time_of_folder(folder / "many", "saturated", options.rounds)
    _time_of_folder(folder / "dense", "dense", options.rounds)
    _time_with_surfaces(folder / "dense", "dense", options.rounds)
    _time_with_surfaces(folder / "organs", "organs of 15 classes", options.rounds)
    _memory(folder, options.shrink)
    _hd95(options.rounds)
    _near(options.rounds)


def _row(what: str, figure: str, bound: str) -> None:
    print(f"| {what} | {figure} | {bound} |", flush=True)


# Measurements


def _medians(
    works: dict[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of each, on the wall and of this process; in turns, so that a slow spell hits all."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            wall, processor = time.perf_counter(), time.process_time()
            work()
            if number:  # the first round warms the file cache up
                found[name].append((time.perf_counter() - wall, time.process_time() - processor))
    wall_of, processor_of = (
        {name: statistics.median(one[of] for one in values) for name, values in found.items()}
        for of in (0, 1)
    )
    return wall_of, processor_of


def _time_with_surfaces(folder: Path, kind: str, rounds: int) -> None:
    predictions = Predictions.of_folder(folder / "labels", folder / "predictions")

    def load() -> None:
        for file in sorted((folder / "predictions").glob("case_*.npz")):
            with np.load(file) as archive:
                archive["probabilities"]

    works: dict[str, Callable[[], object]] = {
        "load": load,
        "without": lambda: evaluate(predictions, overwrite=True),
        "with": lambda: evaluate(predictions, Settings(surface=True), overwrite=True),
    }
    seconds, of_processor = _medians(works, rounds)
    for name in ("without", "with"):
        wall = seconds[name] / seconds["load"]
        processor = of_processor[name] / of_processor["load"]
        _row(f"{kind}, {name} surfaces", f"{wall:.2f} wall, {processor:.2f} processor", "5")


def _time_of_folder(folder: Path, kind: str, rounds: int) -> None:
    ground_truth, predictions = folder / "labels", folder / "predictions"
    files = sorted(predictions.glob("case_*.npz"))

    def load() -> None:
        for file in files:
            with np.load(file) as archive:
                archive["probabilities"]

    def evaluating(num_processes: int) -> Callable[[], object]:
        def work() -> None:
            result = evaluate(
                Predictions.of_folder(ground_truth, predictions),
                num_processes=num_processes,
                overwrite=True,
            )
            assert len(result.cases) == len(files)

        return work

    def stream() -> None:
        for file in files:
            for _ in NpzChannels(file).blocks():
                pass

    works = {"load": load, "stream": stream, "one": evaluating(1), "two": evaluating(2)}
    seconds, of_processor = _medians(works, rounds)
    of_load = f"of {seconds['load']:.1f} s for np.load alone, {len(files)} cases of 4 classes"
    _row(
        f"{kind}: `-np 1`, wall time",
        f"{seconds['one'] / seconds['load']:.2f} times, {of_load}",
        "1.2",
    )
    _row(
        f"{kind}: `-np 1`, processor time",
        f"{of_processor['one'] / of_processor['load']:.2f} times",
        "1.5",
    )
    _row(
        f"{kind}: of which inflating",
        f"{of_processor['stream'] / of_processor['load']:.2f} times",
        "",
    )
    _row(
        f"{kind}: `-np 2` over `-np 1`", f"{seconds['one'] / seconds['two']:.2f} times as fast", ""
    )


def _shrunk(shape: tuple[int, int, int], factor: int) -> tuple[int, int, int]:
    z, y, x = shape
    return z // factor, y // factor, x // factor


def _memory(folder: Path, shrink: int) -> None:
    for name, (classes, whole_shape, kind) in MEMORY_CASES.items():
        shape = _shrunk(whole_shape, shrink)
        command = [sys.executable, __file__, "--peak", str(folder / name)]
        peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        _row(
            f"peak memory, {classes} classes, {' × '.join(map(str, shape))}, {kind}",
            f"{peak / np.prod(shape):.1f} bytes a voxel: {peak / 1e9:.2f} GB",
            "20",
        )


def _own_peak(folder: Path) -> int:
    """Bytes by which the resident memory of this process rises while it evaluates a folder."""
    # What is imported or set up on first use is the interpreter's own
    with tempfile.TemporaryDirectory() as tiny:
        generate(Path(tiny), 4, (8, 32, 32), 1, quiet=True)
        evaluate(Predictions.of_folder(Path(tiny) / "labels", Path(tiny) / "predictions"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmRSS")
    evaluate(Predictions.of_folder(folder / "labels", folder / "predictions"), overwrite=True)
    return _status("VmHWM") - before


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def _near(rounds: int) -> None:
    from scipy.ndimage import distance_transform_edt

    core = np.zeros((96, 300, 300), bool)
    core[20:70, 50:200, 60:220] = np.random.default_rng(0).random((50, 150, 160)) < 0.5
    for spacing in ((1, 1, 1), (3, 0.7, 0.7)):
        works: dict[str, Callable[[], object]] = {
            "ours": lambda spacing=spacing: near_core(core, spacing, 5),
            "scipy": lambda spacing=spacing: distance_transform_edt(~core, sampling=spacing) <= 5,
        }
        seconds, _ = _medians(works, rounds)
        _row(
            f"near, {' × '.join(map(str, core.shape))}, spacing {' × '.join(map(str, spacing))} mm",
            f"{seconds['ours'] / seconds['scipy']:.3f} times SciPy's distance transform ({seconds['ours']:.3f} s)",
            "",
        )


def _hd95(rounds: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import surface_distance
        from scipy.ndimage import zoom

        generator = np.random.default_rng(0)
        crop = tuple(map(slice, (160, 256, 256)))
        field = zoom(generator.standard_normal((12, 18, 18), dtype=np.float32), 16, order=1)[crop]
        centered = np.stack(
            np.meshgrid(*(np.linspace(-1, 1, size) for size in field.shape), indexing="ij")
        )
        distance = np.sqrt((centered**2).sum(0))
        for name, a in (
            ("an organ of half the image's width", distance + 0.05 * field < 0.5),
            ("structures all over the image", field > 0.5),
        ):
            _hd95_of(name, a, np.roll(a, 2, 2) & (field < 2), rounds, surface_distance)


def _hd95_of(name: str, a: NDArray[np.bool_], b: NDArray[np.bool_], rounds: int, peer: Any) -> None:
    spacing = (1.5, 0.8, 0.8)
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: surface_metrics(a, b, spacing, 1.0)[0],
        "peer": lambda: peer.compute_robust_hausdorff(
            peer.compute_surface_distances(a, b, spacing), 95
        ),
    }
    seconds, _ = _medians(works, rounds)
    _row(
        f"HD95, 160 × 256 × 256, {name}",
        f"{seconds['ours'] / seconds['peer']:.2f} times DeepMind's surface-distance ({seconds['ours']:.2f} s)",
        "1",
    )


if __name__ == "__main__":
    main()
