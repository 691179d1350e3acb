"""How many functions and files of the package data pass on three ways through it.

    python benchmarks/passed.py FOLDER_OF_THE_DEMO

A prediction's ``.npz`` to its numbers in the report (``evaluate``, ``report``), a checkpoint to its calibrated copy
(``calibrate``), and a batch to its loss. The demo must have run in the folder; what these commands write there is
written again. Functions are those that Python enters in its main thread, each counted once: compiled loops and threads
that read files are left out. To count an earlier version, put its checkout into PYTHONPATH.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import nnunet_nacl
from nnunet_nacl.cli import main
from nnunet_nacl.losses import NACLLoss

PACKAGE = str(Path(nnunet_nacl.__file__).parent)


def passed(call: Callable[[], object]) -> set[tuple[str, str]]:
    """File, name and line of each function of the package that the call enters."""
    found = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = not code.co_name.startswith("<")
        if event == "call" and named and code.co_filename.startswith(PACKAGE):
            found.add((code.co_filename, f"{code.co_name}:{code.co_firstlineno}"))

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def run(*arguments: object) -> None:
    """A command that must succeed."""
    assert main(list(map(str, arguments))) == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("demo", type=Path)
    demo = parser.parse_args().demo.resolve()
    for name in ("raw", "preprocessed", "results"):
        os.environ[f"nnUNet_{name}"] = str(demo / f"nnUNet_{name}")
    labels = next(demo.glob("nnUNet_raw/*/labelsTs"))
    predictions = next(demo.glob("*/predictions/nnUNetTrainerDiceCE*/fold_0"))
    trainer = predictions.parent.name

    def evaluate() -> None:  # noqa: D103
        run("evaluate", labels, predictions, "-np", 1, "--overwrite")
        run("report", predictions, "-o", demo / "passed.html", "--overwrite")

    def calibrate() -> None:  # noqa: D103
        of_model = ["-d", 996, "-c", "2d_demo", "-tr", trainer, "-f", 0]
        run("calibrate", *of_model, "-device", "cpu", "--overwrite")

    def loss() -> None:  # noqa: D103
        NACLLoss()(torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, 8, 8))

    counted = []
    for way, call in (
        (".npz → page", evaluate),
        ("checkpoint → copy", calibrate),
        ("batch → loss", loss),
    ):
        entered = passed(call)
        counted.append(
            f"{way}: {len(entered)} functions in {len({file for file, _ in entered})} files"
        )
    print("\n".join(counted))
