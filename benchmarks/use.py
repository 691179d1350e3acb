"""Time and peak memory of evaluate, review, decode and maps on one folder; prints the table of docs/performance.md.

    python benchmarks/use.py [-o WORKING_FOLDER] [--cases 12]

Generates its files (kept for the next run): cases of 4 classes and 128 × 320 × 320 voxels. Each command works
on one case at a time in a process of its own; its time includes the start, its peak memory everything that it loads.
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", type=Path, default=Path("use_benchmark"), help="working folder")
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--shape", type=int, nargs=3, default=SHAPE, metavar=("Z", "Y", "X"))
    options = parser.parse_args()
    folder: Path = options.o / f"{options.cases}_cases"
    generate(folder, CLASSES, tuple(options.shape), options.cases)
    labels, predictions = str(folder / "labels"), str(folder / "predictions")
    commands = {
        "evaluate": [labels, predictions, "--overwrite"],
        "review": [predictions, "--overwrite"],
        "decode": [predictions, "-o", str(options.o / "decode"), "--threshold", "structure 1=0.5"],
        "maps": [predictions, "-o", str(options.o / "maps")],
    }
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print("\n| command | wall | user | peak memory |\n| --- | --- | --- | --- |")
    for command, arguments in commands.items():
        shutil.rmtree(options.o / command, ignore_errors=True)
        wall, user, peak = _run(command, *arguments)
        shutil.rmtree(options.o / command, ignore_errors=True)
        print(f"| `{command}` | {wall:.0f} s | {user:.0f} s | {peak / 1e9:.2f} GB |", flush=True)


def _run(*arguments: str) -> tuple[float, float, int]:
    """Seconds by the clock and of the processor, and peak memory in bytes, of a command of ``nnunet_nacl``."""
    program = str(Path(sys.executable).with_name("nnunet_nacl"))
    start = time.perf_counter()
    child = os.posix_spawn(
        program,
        [program, *arguments],
        {**os.environ, "nnUNet_def_n_proc": "1"},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(
            f"nnunet_nacl {' '.join(arguments)}: status {os.waitstatus_to_exitcode(status)}."
        )
    return time.perf_counter() - start, usage.ru_utime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
