"""The trained network as it is opened: what it imports, its last layer and that layer's features."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch.nn.utils.parametrizations import weight_norm

from nnunet_nacl.calibrate import Head, _features, _head, judge
from nnunet_nacl.calibrate._features import FeatureReader, FeatureStore, map_logits
from nnunet_nacl.calibrate._fold import _is_ours
from nnunet_nacl.nnunet import PlansJson, hooks, read_checkpoint
from tests.calibrate.conftest import Copy, open_fold, rewrite
from tests.commands import run_forked
from tests.conftest import TRAINER, TRAINER_OF_REGIONS

pytestmark = pytest.mark.usefixtures("few_voxels")
USUAL_STEPS = _head.OPTIONS["maxiter"]


OPENED_WITHOUT = """
import sys
from pathlib import Path
unneeded = {"matplotlib", "seaborn", "sklearn", "timm", "torchvision"}
for name in [*sys.modules]:
    if name.partition(".")[0] in unneeded:
        sys.modules[name] = None  # to import it is an error
from nnunet_nacl.calibrate import TrainedFold
TrainedFold.open(Path(sys.argv[1]), 0, checkpoint="checkpoint_final.pth", device="cpu", mirroring=False)
found = {name for name in unneeded | {"nnunetv2.training.nnUNetTrainer.nnUNetTrainer"} if sys.modules.get(name)}
assert not found, found
"""


@pytest.mark.parametrize("anew", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trainers_are_not_imported(copy_of: Callable[..., Copy], tmp_path: Path, anew: bool) -> None:
    """Of nnU-Net and ours: all that they import takes longer than everything else before the first case.

    In a forked process, modules that it has already, such as of torch, do not import theirs again.
    """
    command = ["-c", OPENED_WITHOUT, str(copy_of("labels", "2d_small", TRAINER).model)]
    if anew:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        log = tmp_path / "log"
        assert run_forked(command, os.environ, log) == 0, log.read_text()


def test_a_class_of_ones_own_builds_its_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Though its name is one of ours, or begins like one."""
    monkeypatch.setenv("nnUNet_extTrainer", str(tmp_path))
    (tmp_path / "mine.py").write_text("class nnUNetTrainerCE_100epochs(nnUNetTrainer):\n    pass\n")
    assert _is_ours("nnUNetTrainerNACL_weight0p03_paperSchedule")
    assert not _is_ours("nnUNetTrainerCE_100epochs")
    assert not _is_ours("nnUNetTrainerCE_mine")
    assert not _is_ours("nnUNetTrainer_100epochs")


def test_features_times_the_layer_are_the_logits(copy_of: Callable[..., Copy]) -> None:
    copy = copy_of("regions", "3d_small", TRAINER_OF_REGIONS)
    reader = open_fold(copy.model, mirroring=True).reader
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 24)).astype(np.float32)  # two tiles
    regions = len(reader.output_layer.bias)
    ours = map_logits(reader.features(image), reader.output_layer, lambda block: block.numpy(), regions)
    logits = reader.predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image)).float().numpy()
    gap = np.abs(expit(ours) - expit(logits))[:, 4:-4, 4:-4, 4:-4]  # weights of corners are next to 0
    assert gap.max() < 0.01
    assert gap.mean() < 5e-4


@pytest.mark.parametrize("axes", [(0, 1, 2), (1,), None])
def test_mirrorings_of_a_small_window_are_one_batch(
    copy_of: Callable[..., Copy], monkeypatch: pytest.MonkeyPatch, axes: tuple[int, ...] | None
) -> None:
    """nnU-Net's network runs once for each window, whose mean is that of nnU-Net's one by one."""
    reader = open_fold(copy_of("regions", "3d_small", TRAINER_OF_REGIONS).model, mirroring=True).reader
    predictor = reader.predictor
    predictor.allowed_mirroring_axes = axes
    mirrorings = 1 if axes is None else 2 ** len(axes)
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 24)).astype(np.float32)
    sizes = []
    hook = predictor.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    at_once = reader.features(image)
    assert set(sizes) == {mirrorings}
    windows = len(sizes)
    with monkeypatch.context() as patch:
        patch.setattr(_features, "_SMALL", 0)
        one_by_one = reader.features(image)
    assert sizes[windows:] == [1] * windows * mirrorings
    hook.remove()
    assert torch.allclose(at_once, one_by_one, rtol=1e-4, atol=1e-5)
    window = torch.from_numpy(image[None, ..., :16])
    with torch.inference_mode():
        assert torch.allclose(
            hooks.predict_mirrored_at_once(predictor, window),
            predictor._internal_maybe_mirror_and_predict(window),
            atol=1e-5,
        )


def test_the_network_is_opened_as_it_predicts(copy_of: Callable[..., Copy]) -> None:
    """A batch norm in training mode would change its statistics, and with them all features."""
    copy = copy_of("labels", "2d_small", TRAINER)
    plans = copy.model / "plans.json"
    plans.write_text(plans.read_text().replace("instancenorm.InstanceNorm2d", "batchnorm.BatchNorm2d"))
    network, _ = PlansJson.read(plans).build_network("2d_small", deep_supervision=False)
    weights = network.state_dict()
    assert any("running_var" in key for key in weights)
    rewrite(copy.model, lambda _: weights)
    opened = open_fold(copy.model).reader.predictor.network
    assert not opened.training
    for key, value in opened.state_dict().items():
        assert torch.equal(value, weights[key]), key


def test_a_network_that_does_not_end_in_a_plain_convolution() -> None:
    conv = torch.nn.Conv2d(1, 2, 1)
    for network in (torch.nn.Sequential(conv, torch.nn.ReLU()), torch.nn.Identity(), weight_norm(conv)):
        plan = SimpleNamespace(patch_size=[4, 4])
        predictor = SimpleNamespace(network=network, num_input_channels=1, configuration_manager=plan)
        with pytest.raises(ValueError, match=f"The output of {type(network).__name__} is not that of a convolution"):
            FeatureReader(predictor, "cpu")


@pytest.mark.parametrize("factor", [2e4, 1e-6])
def test_features_beyond_half_precision(
    copy_of: Callable[..., Copy], monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """The last norm times a factor, the last layer divided by it: the same logits, and so the same fit."""
    monkeypatch.setitem(_head.OPTIONS, "maxiter", USUAL_STEPS)  # minima are compared
    copy = copy_of("labels", "2d_small", TRAINER)
    as_it_is = open_fold(copy.model)
    weights = read_checkpoint(copy.model / "fold_0" / "checkpoint_final.pth")["network_weights"]
    norms = [key for key in weights if key.startswith("decoder.stages.1.") and ".norm." in key]
    norms += [key for key in weights if key.startswith("decoder.stages.1.") and ".all_modules.1." in key]
    assert len(norms) >= 2
    scaled = {id(weights[key]): key for key in norms}  # under several names
    for key in scaled.values():
        weights[key] = weights[key] * factor
    weights["decoder.seg_layers.1.weight"] = weights["decoder.seg_layers.1.weight"] / factor
    rewrite(copy.model, lambda _: weights)
    changed = open_fold(copy.model)
    image = as_it_is.cases.load("toy_0")[0]
    expected, found = (fold.reader.features(image) for fold in (as_it_is, changed))
    assert torch.allclose(found / factor, expected, rtol=1e-4, atol=1e-5)
    assert torch.half is torch.float16
    trained, fitted = [], []
    for fold in (as_it_is, changed):
        sample, _ = fold.sample()
        trained.append(judge(sample, sample.logits).NLL)
        head = Head.of(sample, fold.reader.output_layer, keeping=0)  # smooth: kinks end a search elsewhere
        fitted.append(judge(sample, head.logits(sample.features)).NLL)
    assert trained[1] == pytest.approx(trained[0], rel=1e-5)
    assert fitted[1] == pytest.approx(fitted[0], rel=1e-3)


def test_features_take_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A case for which that is too little is not kept, a smaller one after it is."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2 * 4 * 150))
    kept = FeatureStore(tmp_path / "kept")
    for name, voxels in (("first", 100), ("too_large", 60), ("small", 50)):
        kept.save(name, torch.arange(voxels, dtype=torch.float32)[None])
    assert kept.load("too_large") is None
    assert kept.left == 0
    for name, voxels in (("first", 100), ("small", 50)):
        loaded = kept.load(name)
        assert loaded is not None
        assert loaded.shape == (1, voxels)
