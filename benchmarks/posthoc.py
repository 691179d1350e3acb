"""Time and peak memory of calibrate fit and apply on a folder of 2 GB; prints the table of docs/performance.md.

    python benchmarks/posthoc.py [-o WORKING_FOLDER] [--cases 13] [--methods temperature local]

Generates its files (kept for the next run): cases of 4 classes and 128 × 320 × 320 voxels. Each command runs in a
process of its own; its time includes the start, its peak memory everything that it loads.
"""

import argparse
import os
import platform
import shutil
import sys
import time
from pathlib import Path

from predictions import generate

SHAPE = (128, 320, 320)
CLASSES = 4


def main() -> None:
    """Generate what is missing, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, default=Path("posthoc_benchmark"), help="working folder")
    parser.add_argument("--cases", type=int, default=13)
    parser.add_argument("--methods", nargs="+", default=["temperature", "local"])
    options = parser.parse_args()
    folder: Path = options.o / f"{options.cases}_cases"
    generate(folder, CLASSES, SHAPE, options.cases)
    predictions = folder / "predictions"
    size = sum(file.stat().st_size for file in predictions.glob("*.npz"))
    raw = 4 * CLASSES * SHAPE[0] * SHAPE[1] * SHAPE[2]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{options.cases} cases, {size / 1e9:.2f} GB of .npz; one case's probabilities in memory: {raw / 1e9:.2f} GB")
    print("\n| method | fit | peak memory | apply | peak memory |\n| --- | --- | --- | --- | --- |")
    for method in options.methods:
        fit, output = options.o / f"{method}.json", options.o / "calibrated"
        shutil.rmtree(output, ignore_errors=True)
        fitted = _run("fit", str(folder / "labels"), str(predictions), "--method", method, "-o", str(fit))
        # The same cases: for its time it makes no difference.
        applied = _run("apply", str(fit), str(predictions), "--force", "-o", str(output))
        shutil.rmtree(output)
        cells = [f"{seconds:.0f} s | {peak / 1e9:.2f} GB" for seconds, peak in (fitted, applied)]
        print(f"| `{method}` | {' | '.join(cells)} |", flush=True)


def _run(*arguments: str) -> tuple[float, int]:
    """Seconds and peak memory in bytes of ``nnunet_nacl calibrate``."""
    program = str(Path(sys.executable).with_name("nnunet_nacl"))
    start = time.perf_counter()
    child = os.posix_spawn(
        program,
        [program, "calibrate", *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"nnunet_nacl calibrate {' '.join(arguments)}: status {os.waitstatus_to_exitcode(status)}.")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
