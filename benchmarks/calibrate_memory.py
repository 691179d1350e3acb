"""Memory of ``nnunet_nacl calibrate`` beside that of ``nnUNetv2_predict`` for the same case.

    python benchmarks/calibrate_memory.py [--classes 38] [--shape 160 192 192]

Plans a made-up data set of one large case and four small ones, writes a checkpoint of a network as it is before a
training, and prints the peak resident memory of both commands, each alone in one process, and their ratio.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch

from nnunet_nacl.nnunet import PlansJson

NAME = "Dataset990_Many"
BOUND = 1.3
_MEASURED = """
import resource, sys
from importlib.metadata import entry_points
command = sys.argv[1]
sys.argv = sys.argv[1:]
(found,) = entry_points(group="console_scripts", name=command)
status = found.load()()
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def write_data(raw: Path, shape: list[int], classes: int) -> None:
    """One case of this shape and four small ones, with slabs of all classes."""
    folder = raw / NAME
    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / part).mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(5):
        size = shape if number == 0 else [48, 48, 48]
        labels = np.zeros(size, np.uint8)
        labels[:] = (np.arange(size[0]) * classes // size[0])[:, None, None]
        image = (labels + generator.normal(size=size)).astype(np.float32)
        files = [(image, f"imagesTr/case_{number}_0000"), (labels, f"labelsTr/case_{number}")]
        if number == 0:
            files.append((image, "imagesTs/case_0_0000"))
        for array, name in files:
            sitk.WriteImage(sitk.GetImageFromArray(array), str(folder / f"{name}.nii.gz"))
    described = {
        "channel_names": {"0": "MRI"},
        "labels": {
            "background": 0,
            **{f"class_{label}": label for label in range(1, classes)},
        },
        "numTraining": 5,
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(described))


def write_model(folder: Path, results: Path) -> None:
    """A model of 32 features in the last layer, fast to compute, as initialized."""
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    configuration = plans["configurations"]["3d_fullres"]
    configuration["patch_size"] = [64, 96, 96]
    configuration["architecture"]["arch_kwargs"].update(
        n_stages=2,
        features_per_stage=[32, 32],
        kernel_sizes=[[1, 1, 1]] * 2,
        strides=[[1, 1, 1], [2, 2, 2]],
        n_conv_per_stage=[1] * 2,
        n_conv_per_stage_decoder=[1],
    )
    (folder / "nnUNetPlans.json").write_text(json.dumps(plans))
    splits = [{"train": [], "val": [f"case_{number}" for number in range(5)]}]
    (folder / "splits_final.json").write_text(json.dumps(splits))
    model = results / NAME / "nnUNetTrainer__nnUNetPlans__3d_fullres"
    (model / "fold_0").mkdir(parents=True)
    (model / "plans.json").write_text(json.dumps(plans))
    (model / "dataset.json").write_text((folder / "dataset.json").read_text())
    network, _ = PlansJson.read(model / "plans.json").build_network(
        "3d_fullres", "nnUNetTrainer", deep_supervision=True
    )
    content = {
        "network_weights": network.state_dict(),
        "trainer_name": "nnUNetTrainer",
        "init_args": {"configuration": "3d_fullres"},
        "logging": {},
        "current_epoch": 1,
        "inference_allowed_mirroring_axes": None,
    }
    torch.save(content, model / "fold_0" / "checkpoint_final.pth")


def peak(*command: object) -> float:
    """GB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    if not last.startswith("peak "):
        raise RuntimeError(done.stderr)
    return int(last.split()[1]) * 1024 / 1e9


def main() -> None:
    """Print both peaks and their ratio; exit with 1 if it is above its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=38)
    parser.add_argument("--shape", type=int, nargs=3, default=[160, 192, 192])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in ("raw", "preprocessed", "results"):
            (folder / part).mkdir()
            os.environ[f"nnUNet_{part}"] = str(folder / part)
        os.environ |= {"nnUNet_def_n_proc": "1", "nnUNet_compile": "f"}
        write_data(folder / "raw", options.shape, options.classes)
        for command in (
            ["nnUNetv2_extract_fingerprint", "-d", "990", "-np", "1"],
            ["nnUNetv2_plan_experiment", "-d", "990"],
            ["nnUNetv2_preprocess", "-d", "990", "-c", "3d_fullres", "-np", "1"],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        write_model(folder / "preprocessed" / NAME, folder / "results")
        of_model = ["-d", "990", "-c", "3d_fullres", "-f", "0", "-device", "cpu", "--disable_tta"]
        images = folder / "raw" / NAME / "imagesTs"
        saving = ["--save_probabilities", "-npp", "0", "-nps", "0"]
        predict = peak(
            "nnUNetv2_predict", *of_model, "-i", images, "-o", folder / "predicted", *saving
        )
        print(f"nnUNetv2_predict      {predict:.2f} GB")
        for name, more in (("calibrate", []), ("calibrate --npz", ["--npz"])):
            found = peak("nnunet_nacl", "calibrate", *of_model, "--overwrite", *more)
            print(f"{name:20}  {found:.2f} GB, {found / predict:.2f} times")
    if options.shape == parser.get_default(
        "shape"
    ):  # of a small case, the libraries are what counts
        sys.exit(found > BOUND * predict)


if __name__ == "__main__":
    main()
