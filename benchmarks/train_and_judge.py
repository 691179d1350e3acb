"""Train models on a CPU, and judge each on the test cases: as trained, with a temperature, and decoded for Dice.

    python benchmarks/train_and_judge.py DATASET CONFIGURATION OUTPUT_FOLDER QUEUE.txt

Each line of the queue is a fold and a trainer, such as ``0 nnUNetTrainerFadeDice_6epochs``, with a data set and
a configuration of its own behind them if they differ. Run it once for each core: a model that another run has begun is
left to that. nnU-Net's environment variables must be set, and nnUNet_extTrainer for ``dice_candidates``.
Each training uses one thread and, as nnU-Net does on a GPU, mixed precision (bfloat16); an epoch's validation, which is
only logged, takes 5 batches. Test cases are predicted with mirroring, in single precision.

With --study, models are trained and predicted only, and OUTPUT_FOLDER is that of ``nnunet_nacl experiment -o``, which
then finds them, evaluates them and writes the study's report. With --disable_tta, neither test nor validation cases are
mirrored.
"""

import argparse
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["nnUNet_n_proc_DA"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.paths import nnUNet_preprocessed, nnUNet_raw, nnUNet_results
from nnunetv2.run.run_training import run_training
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as trainer_module
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

from nnunet_nacl.cli import main as command_line


class WithoutMirroring(nnUNetPredictor):
    """nnU-Net's predictor, whatever it is told."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "use_mirroring": False})


def train(data_set: str, configuration: str, fold: int, trainer: str) -> None:
    """One training, with the validation's probabilities."""
    trainer_module.dummy_context = lambda: torch.autocast("cpu", torch.bfloat16)
    whole = trainer_module.nnUNetTrainer.run_training

    def with_few_validation_batches(self: trainer_module.nnUNetTrainer) -> None:
        self.num_val_iterations_per_epoch = 5
        whole(self)

    trainer_module.nnUNetTrainer.run_training = with_few_validation_batches
    run_training(
        data_set, configuration, fold, trainer, export_validation_probabilities=True, device=torch.device("cpu")
    )


def predict(model: Path, fold: int, images: Path, output: Path, mirroring: bool) -> None:
    """The test cases, with probabilities."""
    predictor = nnUNetPredictor(
        use_mirroring=mirroring, device=torch.device("cpu"), perform_everything_on_device=False, allow_tqdm=False,
        verbose=False,
    )  # fmt: skip
    predictor.initialize_from_trained_model_folder(str(model), (fold,), "checkpoint_final.pth")
    output.mkdir(exist_ok=True)
    predictor.predict_from_files_sequential(str(images), str(output), save_probabilities=True)


def judge(validation: list[Path], labels: Path, folder: Path) -> None:
    """Evaluate predictions as trained, decoded for Dice, with a temperature, with both; and their predicted Dice."""
    test, fit, best = folder / "test", folder / "temperature.json", folder / "best_temperature.json"

    def run(*command: object) -> None:
        status = command_line([str(part) for part in command])
        if status != 0 and not (command[0] == "calibrate" and Path(str(command[-2])).exists()):  # it improves nothing
            raise RuntimeError(f"nnunet_nacl {command} failed")

    run("evaluate", labels, test, "--surface", "-np", 1)
    run("decode", test, "-o", folder / "decoded", "-np", 1, "--overwrite")
    run("evaluate", labels, folder / "decoded", "-np", 1)
    run("calibrate", *validation, "--method", "temperature", "-o", fit, "--overwrite")
    run("calibrate", labels, test, "--method", "temperature", "-o", best, "--overwrite")  # the most that one could do
    run("apply", fit, test, "-o", folder / "calibrated", "--overwrite")
    run("evaluate", labels, folder / "calibrated", "-np", 1)
    run("decode", folder / "calibrated", "-o", folder / "calibrated_decoded", "-np", 1, "--overwrite")
    run("evaluate", labels, folder / "calibrated_decoded", "-np", 1)
    run("review", test, "-gt", labels, "-o", folder / "review.csv", "-np", 1, "--overwrite")


def in_process(function: Callable[..., None], *arguments: object) -> None:
    """Run a function in a forked process, so that nothing of it is left behind."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            function(*arguments)
            status = 0
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"{function} failed")


def main() -> None:
    """Train what the queue lists, predict, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_set", metavar="DATASET", help="number")
    parser.add_argument("configuration", metavar="CONFIGURATION")
    parser.add_argument("output", metavar="OUTPUT_FOLDER", type=Path)
    parser.add_argument("queue", metavar="QUEUE.txt", type=Path)
    parser.add_argument("--study", action="store_true")
    parser.add_argument("--disable_tta", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.disable_tta:
        trainer_module.nnUNetPredictor = WithoutMirroring  # of the validation
    done: set[str] = set()
    while True:
        # Read anew each time: lines may be added and moved while it runs.
        lines = [line for line in options.queue.read_text().splitlines() if line.strip() and not line.startswith("#")]
        line = next((line for line in lines if line not in done), None)
        if line is None:
            return
        done.add(line)
        fold, trainer, *other = line.split()
        data_set, configuration = other or (options.data_set, options.configuration)
        name = maybe_convert_to_dataset_name(int(data_set))
        of_study = f"{name}__nnUNetPlans__{configuration}/predictions{'_disable_tta' if options.disable_tta else ''}"
        folder = options.output / (of_study if options.study else name) / trainer / f"fold_{fold}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / "begun").touch(exist_ok=False)
        except FileExistsError:
            continue
        model = Path(nnUNet_results) / name / f"{trainer}__nnUNetPlans__{configuration}"
        test = folder if options.study else folder / "test"
        start = time.time()
        try:
            if not (model / f"fold_{fold}" / "validation" / "summary.json").exists():
                in_process(train, data_set, configuration, int(fold), trainer)
            trained = time.time()
            in_process(predict, model, int(fold), Path(nnUNet_raw) / name / "imagesTs", test, not options.disable_tta)
            predicted = time.time()
            if not options.study:
                validation = [Path(nnUNet_preprocessed) / name / "gt_segmentations", model / f"fold_{fold}/validation"]
                in_process(judge, validation, Path(nnUNet_raw) / name / "labelsTs", folder)
            seconds = [round(b - a) for a, b in ((start, trained), (trained, predicted), (predicted, time.time()))]
            print(line, "trained, predicted, judged in", seconds, "s", flush=True)
        except (OSError, RuntimeError) as error:
            print(line, "FAILED", error, flush=True)


if __name__ == "__main__":
    main()
