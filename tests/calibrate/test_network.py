"""The trained network as it is opened: its last layer and that layer's features."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch.nn.utils.parametrizations import weight_norm

from nnunet_nacl.calibrate import Head, Sample, _features, _head
from nnunet_nacl.calibrate._features import FeatureReader, logits_in_blocks
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.calibrate._score import judge
from nnunet_nacl.nnunet import PlansJson, read_checkpoint
from tests.calibrate.conftest import Copy, open_fold, rewrite
from tests.conftest import TRAINER_OF_REGIONS

pytestmark = pytest.mark.usefixtures("few_voxels")
USUAL_STEPS = _head.OPTIONS["maxiter"]


def as_trained(fold: TrainedFold, image: np.ndarray) -> np.ndarray:
    """Logits (C, *spatial) of features, by the last layer as trained."""
    features = fold.reader.features(image)
    blocks = [logits.numpy() for _, logits in logits_in_blocks(features, fold.reader.output_layer)]
    return np.concatenate(blocks, axis=1).reshape(-1, *features.shape[1:])


def test_features_times_the_layer_are_the_logits(copy_of: Callable[..., Copy], monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copy_of("regions", "3d_small", TRAINER_OF_REGIONS)
    fold = open_fold(copy.model, mirroring=True)
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 24)).astype(np.float32)  # two tiles
    monkeypatch.setattr(_features, "_BLOCK", 1000)
    predictor = fold.reader.predictor
    logits = predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image)).float().numpy()
    for small in (_features._SMALL, 0):  # all mirrorings of a window in one batch, or, as usual patches, one by one
        monkeypatch.setattr(_features, "_SMALL", small)
        gap = np.abs(expit(as_trained(fold, image)) - expit(logits))[:, 4:-4, 4:-4, 4:-4]  # corners have weights near 0
        assert gap.max() < 0.01
        assert gap.mean() < 5e-4


def test_the_network_is_opened_as_it_predicts(copy: Copy) -> None:
    """A batch norm in training mode would change its statistics, and with them all features."""
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
        predictor = SimpleNamespace(
            network=network, num_input_channels=1, configuration_manager=plan, device=torch.device("cpu")
        )
        with pytest.raises(ValueError, match=f"The output of {type(network).__name__} is not that of a convolution"):
            FeatureReader(predictor)


@pytest.mark.parametrize("factor", [2e4, 1e-6])
def test_features_beyond_half_precision(copy: Copy, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """The last norm times a factor, the last layer divided by it: the same logits, and so the same fit."""
    monkeypatch.setitem(_head.OPTIONS, "maxiter", USUAL_STEPS)  # minima are compared
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
        sample = Sample.join(list(fold.samples()[0].values()))
        trained.append(judge(sample, sample.logits).NLL)
        head = Head.fit_sample(sample, fold.reader.output_layer, hinge_weight=0)  # smooth: kinks end a search elsewhere
        fitted.append(judge(sample, head.logits(sample.features)).NLL)
    assert trained[1] == pytest.approx(trained[0], rel=1e-5)
    assert fitted[1] == pytest.approx(fitted[0], rel=1e-3)
