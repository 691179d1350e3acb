"""Toy data sets in nnU-Net's raw format, planned, preprocessed and trained on by nnU-Net's own commands; a browser."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# The tests keep all cores busy. Threads that wait for each other there took half of the suite's time. The second is for
# nnU-Net, which asks for a thread for each core. To be set before anything imports NumPy or PyTorch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# What a shell starts in the background ignores Ctrl-C, and so would the commands that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
import SimpleITK as sitk
from filelock import FileLock
from hypothesis import settings

from nnunet_nacl.linking import trainers_path
from tests.commands import run_forked

# The same examples in each run: a change is not to fail by chance.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile("same")

SHAPE = (20, 24, 24)
NUM_CASES = 6
LABELS = {"background": 0, "shell": 1, "core": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "labels": ("Dataset901_Labels", {"labels": LABELS}),
    "regions": ("Dataset902_Regions", {"labels": REGIONS, "regions_class_order": [1, 2]}),
    "ignore": ("Dataset903_Ignore", {"labels": {**LABELS, "ignore": 3}}),
    "regions_ignore": ("Dataset904_RegionsIgnore", {"labels": {**REGIONS, "ignore": 3}, "regions_class_order": [1, 2]}),
}
TRAINER = "nnUNetTrainerNACL_2epochs_2iterations"
"""Of the model of labels, in 2D, that most tests share."""
TRAINER_OF_REGIONS = "nnUNetTrainerDiceNACL_1epochs_2iterations"
FINGERPRINT = {  # nnU-Net takes 15 s to extract it; it uses the intensities of CT alone
    "spacings": [[1, 1, 1]] * NUM_CASES,
    "shapes_after_crop": [SHAPE] * NUM_CASES,
    "median_relative_size_after_cropping": 1,
    "foreground_intensity_properties_per_channel": {"0": {}},
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

    def run(self, *command: object, fails: bool = False, workers_import_anew: bool = True, **changed: str) -> str:
        """Run a command, in a forked process that need not import PyTorch; returns what it printed.

        Args:
            command: name and arguments.
            fails: whether it should.
            workers_import_anew: see ``run_forked``.
            changed: variables of its environment.
        """
        arguments = [str(part) for part in command]
        environment = {
            **os.environ,
            **self.environment,
            # 0 worker processes for augmentation suits training, but crashes planning.
            "nnUNet_n_proc_DA": "1" if "plan" in arguments[0] else "0",
            **changed,
        }
        with TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            status = run_forked(arguments, environment, log, workers_import_anew=workers_import_anew)
            printed = log.read_text()
        assert (status != 0) == fails, printed
        return printed


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
        dims = len(full["patch_size"])
        architecture["arch_kwargs"].update(
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


def write_summary(fold: Path, cases: list[str]) -> None:
    """What nnU-Net writes last of a validation, and exports without the segmentations."""
    (fold / "validation").mkdir(exist_ok=True)
    evaluated = [{"prediction_file": f"/where/it/was/{case}.nii.gz"} for case in cases]
    (fold / "validation" / "summary.json").write_text(json.dumps({"metric_per_case": evaluated}))


def copy_data_set(source: NNUNet, kind: str, to: Path, monkeypatch: pytest.MonkeyPatch) -> NNUNet:
    """A copy of a toy data set, which tests may spoil; this process's environment points to it.

    It has no splits, and two test cases, toy_a and toy_b.
    """
    copy, name = NNUNet(to), KINDS[kind][0]
    for part in ("raw", "preprocessed"):
        without = shutil.ignore_patterns("splits_final.json")
        shutil.copytree(source.folder / part / name, to / part / name, ignore=without)
    for part, ending in (("images", "_0000.nii.gz"), ("labels", ".nii.gz")):
        of_training, of_test = (to / "raw" / name / f"{part}{one}" for one in ("Tr", "Ts"))
        of_test.mkdir()
        for trained, test in (("toy_0", "toy_a"), ("toy_1", "toy_b")):
            shutil.copy(of_training / f"{trained}{ending}", of_test / f"{test}{ending}")
    for variable, value in copy.environment.items():
        monkeypatch.setenv(variable, value)
    return copy


def trainer_on_cpu(trainer_class: Any, folder: Path, configuration: str, **changes: object) -> Any:
    """Of fold 0 of a planned data set, whose data is not read."""
    import torch

    for full in ("2d", "3d_fullres"):  # nnU-Net looks for the format of the data
        (folder / f"nnUNetPlans_{full}").mkdir(exist_ok=True)
        (folder / f"nnUNetPlans_{full}" / "toy_0.b2nd").touch()
    plans, described = (json.loads((folder / name).read_text()) for name in ("nnUNetPlans.json", "dataset.json"))
    plans["configurations"][configuration].update(changes)
    return trainer_class({**plans, "continue_training": False}, configuration, 0, described, torch.device("cpu"))


def load_predictor(model: Path, checkpoint: str = "checkpoint_final.pth", *, use_mirroring: bool = True) -> Any:
    """Of fold 0, on the CPU."""
    from nnunet_nacl.nnunet import build_predictor, read_checkpoint

    return build_predictor(model, read_checkpoint(model / "fold_0" / checkpoint), "cpu", use_mirroring=use_mirroring)


def once(done: Path, make: Callable[[], object]) -> None:
    """Call ``make``, unless a process of this test run has done so; the file ``done`` says so."""
    done.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{done}.lock"):
        if not done.exists():
            make()
            done.touch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # First what needs nnU-Net's models; another process starts with the other half and need not wait for them
    items.sort(key=lambda item: "planned" not in item.fixturenames)  # type: ignore[attr-defined]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their plots, which take most of the time, for tests of what else stands there."""
    monkeypatch.setattr("nnunet_nacl.report._page.draw_panels", lambda _: None)
    monkeypatch.setattr("nnunet_nacl.report._page.to_svg", lambda _: '<svg role="img" aria-label=""></svg>')


Planned = Callable[[str], tuple[NNUNet, str]]
Preprocessed = Callable[[str, str], tuple[NNUNet, str]]
Trained = Callable[[str, str, str], Path]


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """``planned(kind)``: the folder with that toy data set planned, and its id."""
    folder = tmp_path_factory.getbasetemp()  # which processes of pytest-xdist share
    nnunet = NNUNet((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "nnunet")

    def plan(kind: str) -> tuple[NNUNet, str]:
        name, description = KINDS[kind]
        number = name[7:10]

        def make() -> None:
            write_toy(nnunet.folder / "raw", name, description)
            folder = nnunet.folder / "preprocessed" / name
            folder.mkdir(parents=True)
            (folder / "dataset_fingerprint.json").write_text(json.dumps(FINGERPRINT))
            nnunet.run("nnUNetv2_plan_experiment", "-d", number)
            add_small_configurations(folder / "nnUNetPlans.json")

        once(nnunet.folder / f"{name}.planned", make)
        return nnunet, number

    return plan


@pytest.fixture(scope="session")
def preprocessed(planned: Planned) -> Preprocessed:
    """``preprocessed(kind, configuration)``: the same, with that configuration preprocessed."""

    def preprocess(kind: str, configuration: str) -> tuple[NNUNet, str]:
        nnunet, number = planned(kind)
        full = "2d" if configuration.startswith("2d") else "3d_fullres"
        command = "nnUNetv2_preprocess", "-d", number, "-c", full, "-np", 1
        once(
            nnunet.folder / f"{KINDS[kind][0]}_{full}.preprocessed",
            lambda: nnunet.run(*command, workers_import_anew=False),
        )
        return nnunet, number

    return preprocess


@pytest.fixture(scope="session")
def trained(preprocessed: Preprocessed) -> Trained:
    """``trained(kind, configuration, trainer)``: the folder of a model whose fold 0 is trained, with ``--npz``.

    Tests share it, so that none may change it, nor train that trainer there.
    """

    def train(kind: str, configuration: str, trainer: str) -> Path:
        nnunet, number = preprocessed(kind, configuration)
        name = KINDS[kind][0]
        model = nnunet.folder / "results" / name / f"{trainer}__nnUNetPlans__{configuration}"
        command = "nnUNetv2_train", number, configuration, 0, "-tr", trainer, "-device", "cpu", "--npz"
        once(nnunet.folder / f"{name}_{model.name}.trained", lambda: nnunet.run(*command, workers_import_anew=False))
        return model

    return train


@pytest.fixture(scope="session")
def predicted(trained: Trained, planned: Planned) -> Trained:
    """``predicted(kind, configuration, trainer)``: that model's predictions of the training images, not mirrored."""

    def predict(kind: str, configuration: str, trainer: str) -> Path:
        model, (nnunet, number) = trained(kind, configuration, trainer), planned(kind)
        folder = nnunet.folder / "predictions" / KINDS[kind][0] / model.name
        images = nnunet.folder / "raw" / KINDS[kind][0] / "imagesTr"
        command = [
            "nnUNetv2_predict", "-d", number, "-c", configuration, "-f", 0, "-tr", trainer, "-i", images, "-o", folder,
            "--save_probabilities", "-npp", 0, "-nps", 0, "-device", "cpu", "--disable_tta",
        ]  # fmt: skip
        once(folder.with_suffix(".predicted"), lambda: nnunet.run(*command))
        return folder

    return predict


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


def opened(browser: Any, file: Path, width: int, height: int, **options: Any) -> tuple[Any, list[str]]:
    """The page, and what the console said and what was asked of the network."""
    page = browser.new_context(viewport={"width": width, "height": height}, **options).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.extend([request.url] * (not request.url.startswith(("file:", "data:")))))
    page.goto(file.as_uri())
    return page, said
