"""Time and size of the report of many methods and cases.

Cases are drawn as those of ``nnunet_nacl demo``; methods are the true posterior at different temperatures, with noise.

    python benchmarks/report.py --methods 10 --cases 500
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from nnunet_nacl.demo import LABELS, draw_case
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions

TEMPERATURES = (1, 0.3, 0.5, 0.7, 0.85, 1.15, 1.3, 1.5, 1.8, 2.2)


def write_predictions(folder: Path, *, num_methods: int, num_cases: int) -> list[Path]:
    """Write images, references and the methods' predictions; returns the prediction folders."""
    for name in ("imagesTs", "labelsTs"):
        (folder / name).mkdir(parents=True)
    predictions = [folder / "predictions" / f"method_{number}" for number in range(num_methods)]
    for predicted in predictions:
        predicted.mkdir(parents=True)
        description = {
            "channel_names": {"0": "synthetic"},
            "labels": LABELS,
            "file_ending": ".nii.gz",
        }
        (predicted / "dataset.json").write_text(json.dumps({**description, "numTraining": 1}))
    generator = np.random.default_rng(0)
    for number in range(num_cases):
        case, name = draw_case(generator), f"case_{number:04d}"
        write(case.image, folder / "imagesTs" / f"{name}_0000.nii.gz")
        write(case.labels, folder / "labelsTs" / f"{name}.nii.gz")
        for predicted, temperature in zip(predictions, TEMPERATURES, strict=False):
            logits = np.log(np.maximum(case.posterior, 1e-6)) + generator.normal(
                0, 0.3, case.posterior.shape
            )
            scaled = np.exp(logits / temperature)
            probabilities = (scaled / scaled.sum(0)).astype(np.float32)
            write(probabilities.argmax(0).astype(np.uint8), predicted / f"{name}.nii.gz")
            np.savez_compressed(predicted / f"{name}.npz", probabilities=probabilities[:, None])
    return predictions


def write(pixels: np.ndarray, file: Path) -> None:
    """Write an image."""
    sitk.WriteImage(sitk.GetImageFromArray(pixels), str(file))


def main() -> None:
    """Generate, evaluate, and time the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--methods", type=int, default=10, choices=range(1, len(TEMPERATURES) + 1), metavar="1..10"
    )
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", type=Path, help="keep the files in this new folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.o or Path(temporary) / "generated"
        predictions = write_predictions(
            folder, num_methods=options.methods, num_cases=options.cases
        )
        for predicted in predictions:
            evaluate(
                Predictions.of_folder(folder / "labelsTs", predicted),
                settings=Settings(surface=True),
            )
        page = folder / "report.html"
        program = str(Path(sys.executable).with_name("nnunet_nacl"))
        command = [program, "report", *map(str, predictions), "-o", str(page), "--overwrite"]
        seconds = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            seconds.append(time.perf_counter() - start)
        print(
            f"{options.methods} methods, {options.cases} cases: {np.median(seconds):.1f} s (median of "
            f"{options.repeats}: {', '.join(f'{one:.1f}' for one in seconds)}), {page.stat().st_size / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
