"""Members combined, beside what nnU-Net does with them: ``nnUNetv2_ensemble``, and the mean of logits.

    python benchmarks/members.py GT_FOLDER PRED_FOLDER PRED_FOLDER …

``nnUNetv2_predict -f 0 1 2`` averages logits before it resamples them. Without resampling that is the geometric mean of
the probabilities, normalized, which is computed here from the saved files.
"""

import argparse
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.use import combine_members


def geometric_mean(members: Sequence[Path], output: Path) -> None:
    """A folder with the mean of logits; of classes only."""
    output.mkdir()
    folders = [Predictions.of_folder(None, member) for member in members]
    folders[0].copy_descriptions(output)
    for case in folders[0].cases:
        logits = 0.0
        for member in members:
            with np.load(member / f"{case.name}.npz") as stored:
                logits = logits + np.log(
                    np.maximum(stored["probabilities"].astype(np.float64), 1e-38)
                )
        powers = np.exp(logits / len(members))
        p = (powers / powers.sum(0)).astype(np.float32)
        np.savez_compressed(output / f"{case.name}.npz", probabilities=p)
        labels = p.argmax(0).astype(np.uint8)
        folders[0].data_set.reader.write_labels(
            labels, case.prediction, output / case.prediction.name
        )


def difference(ours: Path, nnunets: Path) -> tuple[float, int]:
    """Largest difference of probabilities, and how many segmentations differ."""
    largest, segmentations = 0.0, 0
    folder = Predictions.of_folder(None, ours)
    for case in folder.cases:
        with (
            np.load(case.probabilities) as one,
            np.load(nnunets / case.probabilities.name) as other,
        ):
            largest = max(
                largest, float(np.abs(one["probabilities"] - other["probabilities"]).max())
            )
        reader = folder.data_set.reader
        one, other = (
            reader.read_labels(place / case.prediction.name).labels for place in (ours, nnunets)
        )
        segmentations += not np.array_equal(one, other)
    return largest, segmentations


def describe(name: str, result: FolderResult) -> None:
    """Print Dice and calibration of a folder."""
    dice = result.counts.segmentation_metrics["Dice"].mean()
    scores, near = result.pooled("image"), result.pooled("near")
    print(
        f"{name:25} Dice {dice:.4f}  NLL per foreground voxel {scores['NLL_per_foreground']:.4f}  "
        f"ECE near {near['ECE']:.4f}, confidence - accuracy {near['over_confidence']:+.4f}"
    )


def main() -> None:
    """Combine, compare, evaluate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gt_folder", type=Path)
    parser.add_argument("members", type=Path, nargs="+")
    options = parser.parse_args()
    gt_folder: Path = options.gt_folder
    folders: list[Path] = options.members
    with tempfile.TemporaryDirectory() as work:
        ours, nnunets, geometric = (Path(work) / name for name in ("ours", "nnunets", "geometric"))
        start = time.perf_counter()
        combine_members(folders, ours)
        print(f"members combine: {time.perf_counter() - start:.1f} s in one process")
        script = shutil.which("nnUNetv2_ensemble", path=sysconfig.get_path("scripts"))
        assert script is not None
        start = time.perf_counter()
        command = [script, "-i", *map(str, folders), "-o", str(nnunets), "-np", "1", "--save_npz"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(
            f"nnUNetv2_ensemble: {time.perf_counter() - start:.1f} s in one process, imports included"
        )
        largest, segmentations = difference(ours, nnunets)
        print(
            f"largest difference of a probability {largest:g}, segmentations that differ: {segmentations}"
        )
        geometric_mean(folders, geometric)
        settings = Settings(voxels=("near", "image"))
        for name, folder in (
            *((f"member {number}", folder) for number, folder in enumerate(folders)),
            ("mean of probabilities", ours),
            ("mean of logits", geometric),
        ):
            output = Path(work) / f"{name.replace(' ', '_')}.json"
            describe(
                name, evaluate(Predictions.of_folder(gt_folder, folder), settings, output=output)
            )


if __name__ == "__main__":
    main()
