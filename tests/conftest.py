"""Toy data sets in nnU-Net's raw format, planned and preprocessed by nnU-Net's own command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.linking import trainers_path

SHAPE = (20, 24, 24)
NUM_CASES = 6
LABELS = {"background": 0, "shell": 1, "core": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "labels": ("Dataset901_Labels", {"labels": LABELS}),
    "regions": ("Dataset902_Regions", {"labels": REGIONS, "regions_class_order": [1, 2]}),
    "ignore": ("Dataset903_Ignore", {"labels": {**LABELS, "ignore": 3}}),
    "regions_ignore": (
        "Dataset904_RegionsIgnore",
        {"labels": {**REGIONS, "ignore": 3}, "regions_class_order": [1, 2]},
    ),
}


@dataclass(frozen=True)
class NNUNet:
    """An nnU-Net working folder: raw, preprocessed and results, and its commands."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{f"nnUNet_{part}": str(self.folder / part) for part in ("raw", "preprocessed", "results")},
            "nnUNet_extTrainer": str(trainers_path()),
            "nnUNet_def_n_proc": "1",
        }

    def run(self, *command: object, fails: bool = False) -> str:
        """Run a command of the environment that the tests run in; returns what it printed."""
        arguments = [str(part) for part in command]
        arguments[0] = str(Path(sys.executable).with_name(arguments[0]))
        done = subprocess.run(
            arguments,
            # 0 worker processes for augmentation suits training, but crashes planning.
            env={**os.environ, **self.environment, "nnUNet_n_proc_DA": "1" if "plan" in arguments[0] else "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout


def write_toy(raw: Path, name: str, description: dict[str, object]) -> None:
    """Two nested balls in noise; with an ignore label, all but every third slice is ignored."""
    folder = raw / name
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    generator = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"))
    for number in range(NUM_CASES):
        center = np.array(SHAPE) / 2 + generator.uniform(-2, 2, 3)
        radius = np.sqrt(((grid - center[:, None, None, None]) ** 2).sum(0))
        labels = ((radius < 8).astype(np.uint8) + (radius < 4)).astype(np.uint8)
        image = (labels + generator.normal(0, 0.3, SHAPE)).astype(np.float32)
        if "ignore" in description["labels"]:  # type: ignore[operator]
            labels[np.arange(SHAPE[0]) % 3 != 0] = 3
        sitk.WriteImage(sitk.GetImageFromArray(image), str(folder / "imagesTr" / f"toy_{number}_0000.nii.gz"))
        sitk.WriteImage(sitk.GetImageFromArray(labels), str(folder / "labelsTr" / f"toy_{number}.nii.gz"))
    (folder / "dataset.json").write_text(
        json.dumps({"channel_names": {"0": "MRI"}, "numTraining": NUM_CASES, "file_ending": ".nii.gz", **description})
    )


def add_small_configurations(plans_file: Path) -> None:
    """``2d_small`` and ``3d_small``, whose training steps take milliseconds, and a cascade of two of the latter."""
    plans = json.loads(plans_file.read_text())
    for name in ("2d", "3d_fullres"):
        full = plans["configurations"][name]
        architecture = json.loads(json.dumps(full["architecture"]))
        kwargs = architecture["arch_kwargs"]
        dims = len(full["patch_size"])
        kwargs.update(
            n_stages=3,
            features_per_stage=[4, 8, 8],
            kernel_sizes=[[3] * dims] * 3,
            strides=[[1] * dims, [2] * dims, [2] * dims],
            n_conv_per_stage=[1] * 3,
            n_conv_per_stage_decoder=[1] * 2,
        )
        plans["configurations"][f"{name[:2]}_small"] = {
            "inherits_from": name,
            "batch_size": 2,
            "patch_size": [16] * dims,
            "architecture": architecture,
        }
    cascade = plans["configurations"]
    cascade["3d_lowres_small"] = {"inherits_from": "3d_small", "next_stage": "3d_cascade_small"}
    cascade["3d_cascade_small"] = {"inherits_from": "3d_small", "previous_stage": "3d_lowres_small"}
    plans_file.write_text(json.dumps(plans))


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[NNUNet, str]]:
    """``planned(kind)``: an nnU-Net folder with that toy data set planned and preprocessed, and its id."""
    ready: dict[str, tuple[NNUNet, str]] = {}
    nnunet = NNUNet(tmp_path_factory.mktemp("nnunet"))

    def plan(kind: str) -> tuple[NNUNet, str]:
        if kind not in ready:
            name, description = KINDS[kind]
            number = name[7:10]
            write_toy(nnunet.folder / "raw", name, description)
            nnunet.run("nnUNetv2_plan_and_preprocess", "-d", number, "-c", "2d", "3d_fullres", "-npfp", 1, "-np", 1, 1)
            add_small_configurations(nnunet.folder / "preprocessed" / name / "nnUNetPlans.json")
            ready[kind] = nnunet, number
        return ready[kind]

    return plan
