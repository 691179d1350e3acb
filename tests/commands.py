"""Commands of nnU-Net and of this package, and Python code: processes of their own that need not import PyTorch again.

Imports take such a command several seconds, its work on a toy one. So its process is forked from a server that has
imported the slow libraries, but nothing of nnU-Net, which reads its environment variables while it is imported.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from multiprocessing import context
from pathlib import Path
from typing import Any

_SLOW_TO_IMPORT = [
    "torch._dynamo", "torchvision", "timm", "sklearn", "pandas", "seaborn", "matplotlib.pyplot", "scipy.ndimage",
    "skimage.transform", "SimpleITK", "nibabel", "blosc2", "numba", "dynamic_network_architectures.architectures.unet",
    "batchgenerators.dataloading.single_threaded_augmenter",
]  # fmt: skip
_TIMEOUT = 600


def forkserver() -> context.ForkServerContext:
    """Starts processes that need not import the slow libraries, from a server of this process."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_SLOW_TO_IMPORT)  # takes effect before the first process only
    return server


def run_forked(
    command: Sequence[str], environment: Mapping[str, str], log: Path, *, workers_import_anew: bool = True
) -> int:
    """Run the command's entry point, or Python code after ``-c``, in a forked process; returns its exit status.

    nnU-Net's worker processes import everything anew, as they do for users, or are forked from the command's.
    """
    how = (list(command), dict(environment), str(log), workers_import_anew)
    process = forkserver().Process(target=_become, args=how)
    process.start()
    process.join(_TIMEOUT)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"{' '.join(command)} took more than {_TIMEOUT} s: {log.read_text()[-1000:]}")
    assert process.exitcode is not None
    return process.exitcode


def _become(command: list[str], environment: dict[str, str], log: str, workers_import_anew: bool) -> None:
    """Turn this process into what the shell would have started."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environment)
    if not workers_import_anew:
        context._concrete_contexts["spawn"] = context._concrete_contexts["fork"]  # type: ignore[attr-defined]
    if command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        exec(command[1], {"__name__": "__main__"})
        sys.exit()
    sys.argv = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
    (entry_point,) = entry_points(group="console_scripts", name=command[0])
    sys.exit(entry_point.load()())


def in_two_processes(work: Callable[[int], object], folder: Path) -> Any:
    """Call ``work(rank)`` in two processes that gloo connects; returns what rank 0 returns."""
    from torch.multiprocessing import start_processes

    server = forkserver()
    results = server.SimpleQueue()
    arguments = (work, folder / "store", results, server.Barrier(2))
    start_processes(_connected, arguments, nprocs=2, start_method="forkserver")
    return results.get()


def _connected(rank: int, work: Callable[[int], object], file: Path, results: Any, finished: Any) -> None:
    """Work beside another process; end without tearing gloo down, which now and then aborts a process that is done."""
    from torch import distributed, set_num_threads

    distributed.init_process_group("gloo", init_method=file.as_uri(), rank=rank, world_size=2)
    set_num_threads(1)
    found = work(rank)
    if rank == 0:
        results.put(found)
    finished.wait(timeout=120)  # the other may still need it
    os._exit(0)
