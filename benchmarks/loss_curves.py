"""The same training with the fast path and with the plain formula: loss curves, and how far apart they are.

    python benchmarks/loss_curves.py -d 4 -c 2d --epochs 5

Both start from the same seeds and see the same batches, on one thread each, so that they differ by rounding only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Train both at a time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", required=True, help="data set that nnU-Net has preprocessed")
    parser.add_argument("-c", default="2d", help="configuration")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=250)
    parser.add_argument("--only", nargs=2, metavar=("PATH", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        Path(options.only[1]).write_text(json.dumps(_train(options)))
        return
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "nnUNet_n_proc_DA": "0", "OMP_NUM_THREADS": "1"}
        running = {
            path: subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--only", path, f"{folder}/{path}.json"],
                env={**environment, "nnUNet_results": f"{folder}/{path}"},
                stdout=subprocess.DEVNULL,
            )
            for path in ("fast", "plain")
        }
        for path, process in running.items():
            process.wait()
            curves[path] = json.loads(Path(f"{folder}/{path}.json").read_text())
    print(
        "| epoch | train, fast | train, plain | validation, fast | validation, plain |\n| --- | --- | --- | --- | --- |"
    )
    fast, plain = curves["fast"], curves["plain"]
    for epoch, row in enumerate(zip(fast["train"], plain["train"], fast["val"], plain["val"], strict=True)):
        print(f"| {epoch} | {' | '.join(f'{value:.6f}' for value in row)} |")
    pairs = [(a, b) for part in ("train", "val") for a, b in zip(fast[part], plain[part], strict=True)]
    print(f"\nlargest difference: {max(abs(a - b) for a, b in pairs):.1e}")


def _train(options: argparse.Namespace) -> dict[str, list[float]]:
    import random

    import numpy as np
    import torch
    from nnunetv2.run.run_training import get_trainer_from_args

    from nnunet_nacl.losses import _base

    if options.only[0] == "plain":
        _base.can_fuse = lambda _: False
    name = f"nnUNetTrainerNACL_paperSchedule_{options.epochs}epochs_{options.iterations}iterations"
    torch.set_num_threads(1)
    trainer = get_trainer_from_args(options.d, options.c, 0, name, device=torch.device("cpu"))
    trainer.print_to_log_file = lambda *_, **__: None
    Path(trainer.output_folder).mkdir(parents=True, exist_ok=True)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    trainer.run_training()
    log = trainer.logger.local_logger.my_fantastic_logging
    return {"train": [float(value) for value in log["train_losses"]], "val": [float(v) for v in log["val_losses"]]}


if __name__ == "__main__":
    main()
