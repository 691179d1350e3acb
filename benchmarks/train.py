"""Train models, one after the other, and go on with those that were cut off.

    python benchmarks/train.py QUEUE.txt [--float32]
    python benchmarks/train.py QUEUE.txt -device cuda

Each line of the queue is a training: data set, configuration, fold and trainer, such as
``4 2d_bs8 0 nnUNetTrainerDiceCE_100epochs``. The queue is read anew before each training, so lines may be added and
moved. Run it once for each core: a model that another run trains is left to that. nnU-Net's environment variables must
be set, and nnUNet_extTrainer for ``nnunet_nacl``.

On a CPU, each training uses one thread and, as nnU-Net does on a GPU, mixed precision (bfloat16), or with --float32
single precision, which is faster on some processors. On a GPU it is nnU-Net's own: float16 and torch.compile, with two
processes that load data; several runs can share a GPU. An epoch's validation, which is only logged, takes 5 batches; a
checkpoint is saved every 5 epochs. ``fold_X/training_time.json`` in the model's folder says how many seconds its
epochs took, also those of runs that were cut off. With --no_validation, ``nnUNetv2_train --val --npz`` is left to
predict the validation cases.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from filelock import FileLock, Timeout
from nnunetv2.paths import nnUNet_results
from nnunetv2.run.run_training import run_training
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as trainer_module
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

SAVE_EVERY = 5
VALIDATION_BATCHES = 5


def train(model: list[str], folder: Path, options: argparse.Namespace) -> None:
    """One training, from its last checkpoint if there is one, with the validation's probabilities."""
    data_set, configuration, fold, trainer = model
    torch.set_num_threads(1)
    on_cpu = options.device == "cpu"
    os.environ["nnUNet_n_proc_DA"] = "0" if on_cpu else "2"
    if on_cpu and not options.float32:
        trainer_module.dummy_context = lambda: torch.autocast("cpu", torch.bfloat16)
    whole = trainer_module.nnUNetTrainer.run_training

    def with_few_validation_batches(self: trainer_module.nnUNetTrainer) -> None:
        self.num_val_iterations_per_epoch = VALIDATION_BATCHES
        self.save_every = SAVE_EVERY
        whole(self)

    trainer_module.nnUNetTrainer.run_training = with_few_validation_batches
    if options.no_validation:
        trainer_module.nnUNetTrainer.perform_actual_validation = lambda *_: None
    begun = any(folder.glob("checkpoint_*.pth"))
    run_training(
        data_set, configuration, int(fold), trainer, export_validation_probabilities=True, continue_training=begun,
        device=torch.device(options.device),
    )  # fmt: skip


def in_process(model: list[str], folder: Path, options: argparse.Namespace) -> bool:
    """Train in a forked process, so that nothing of it is left behind; returns whether it went to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(model, folder, options)
            status = 0
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def machine(options: argparse.Namespace) -> str:
    """Where and how it trains."""
    if options.device == "cpu":
        precision = "float32" if options.float32 else "bfloat16"
        where = f"{platform.machine()}, {os.cpu_count()} cores"
        return f"{where}, torch {torch.__version__}, one thread, {precision}"
    # In a process of its own: a process that has used CUDA cannot fork one that does.
    name = "import torch; print(torch.cuda.get_device_name())"
    run = subprocess.run([sys.executable, "-c", name], capture_output=True, text=True, check=True)
    return f"{run.stdout.strip()}, torch {torch.__version__}, float16"


def write_time(folder: Path, where: str) -> None:
    """Write how long the epochs of all runs took by nnU-Net's logs, and where the last one ran."""
    logs = [log.read_text() for log in folder.glob("training_log*.txt")]
    seconds = [float(found) for log in logs for found in re.findall(r"Epoch time: ([\d.]+) s", log)]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    content = {
        "seconds": round(sum(seconds)),
        "commit": commit.stdout.strip(),
        "machine": where,
        "date": time.strftime("%Y-%m-%d"),
    }
    (folder / "training_time.json").write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Train what the queue lists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queue", metavar="QUEUE.txt", type=Path)
    parser.add_argument("--float32", action="store_true", help="on a CPU, not bfloat16")
    parser.add_argument("-device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--no_validation", action="store_true", help="without predictions of the validation cases"
    )
    options = parser.parse_args()
    where = machine(options)
    last = "checkpoint_final.pth" if options.no_validation else "validation/summary.json"
    done: set[str] = set()
    while True:
        lines = [
            line
            for line in options.queue.read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]
        left = [line for line in lines if line not in done]
        if not left:
            return
        line = left[0]
        done.add(line)
        model = line.split()
        data_set, configuration, fold, trainer = model
        name = maybe_convert_to_dataset_name(int(data_set))
        folder = (
            Path(nnUNet_results)
            / name
            / f"{trainer}__nnUNetPlans__{configuration}"
            / f"fold_{fold}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / ".training.lock", timeout=0):
                if (folder / last).exists():
                    continue
                start = time.time()
                finished = in_process(model, folder, options)
                write_time(folder, where)
                print(
                    line,
                    "trained" if finished else "FAILED",
                    f"in {time.time() - start:.0f} s",
                    flush=True,
                )
        except Timeout:
            continue


if __name__ == "__main__":
    main()
