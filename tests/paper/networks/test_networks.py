"""What nnU-Net's trainers expect of a network, in 2D and 3D."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import timm
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.training.nnUNetTrainer.variants.network_architecture.nnUNetTrainerNoDeepSupervision import (
    nnUNetTrainerNoDeepSupervision,
)
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
from torch import nn

from nnunet_nacl import trainers
from nnunet_nacl.paper.networks import NETWORKS, TransUNet
from tests.conftest import KINDS, NNUNet, trainer_on_cpu
from tests.paper.networks.conftest import IN_2D_AND_3D, SMALL, add_small_network, patch_size

CLASSES = 3


def build(network: str, dims: int, *, deep_supervision: bool = True) -> nn.Module:
    """The small network, as nnU-Net builds it from the plans."""
    planned = NETWORKS[network]
    arguments = {**json.loads(json.dumps(planned.arguments(patch_size(network, dims)))), **SMALL[network]}
    torch.manual_seed(0)
    return get_network_from_plans(
        planned.class_name, arguments, list(planned.imported), 2, CLASSES, deep_supervision=deep_supervision
    )


def images(network: str, dims: int) -> torch.Tensor:
    return torch.randn(2, 2, *patch_size(network, dims), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("network", "dims"), IN_2D_AND_3D)
def test_outputs_are_as_the_strides_say_and_gradients_reach_every_parameter(network: str, dims: int) -> None:
    size, built = patch_size(network, dims), build(network, dims)
    strides = NETWORKS[network].arguments(size)["strides"]
    outputs = built(images(network, dims))
    expected, scale = [], [1] * dims
    for stride in strides[:-1]:
        scale = [length * by for length, by in zip(scale, stride, strict=True)]
        expected.append((2, CLASSES, *(length // by for length, by in zip(size, scale, strict=True))))
    assert [tuple(one.shape) for one in outputs] == expected
    weights = [0.5**number for number in range(len(outputs))]
    if network != "unet":  # nnU-Net gives the last output no weight, and divides 0 by 0 if it is the only one
        weights[-1] = 0
        assert torch.equal(outputs[-1], outputs[-2])
    sum(weight * one.square().mean() for weight, one in zip(weights, outputs, strict=True)).backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name

    built.decoder.deep_supervision = False  # as nnU-Net switches it
    predicted = built.eval()(images(network, dims))
    assert tuple(predicted.shape) == expected[0]
    found = build(network, dims, deep_supervision=False).eval()
    found.load_state_dict(built.state_dict())
    assert torch.equal(found(images(network, dims)), predicted)


@pytest.mark.parametrize(
    ("network", "channels", "classes", "size", "published", "tolerance"),
    [
        # U-Net++: Zhou et al., TMI 2020, table of the architectures; 3D: "V-Net++" there is another network
        ("unet_plus_plus", 3, 1, (512, 512), 9.04e6, 0.01),
        # TransUNet: R50-ViT-B_16 of the authors' code at 224 x 224, 9 classes
        ("transunet", 3, 9, (224, 224), 105.28e6, 0.001),
        # Swin UNETR: Hatamizadeh et al., 2022: 61.98 million for four channels and three classes
        ("swin_unetr", 4, 3, (128, 128, 128), 61.98e6, 0.01),
    ],
)
def test_as_many_parameters_as_published(
    network: str, channels: int, classes: int, size: tuple[int, ...], published: float, tolerance: float
) -> None:
    planned = NETWORKS[network]
    built = get_network_from_plans(planned.class_name, planned.arguments(size), [], channels, classes)
    assert sum(one.numel() for one in built.parameters()) == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(
    ("trainer", "network"),
    [(trainers.nnUNetTrainerDiceNACL_paperSchedule, name) for name in SMALL if name != "unet"]
    + [(nnUNetTrainer, "unet_plus_plus"), (nnUNetTrainerNoDeepSupervision, "attention_unet")],
)
def test_nnunets_own_trainers_and_ours_train_it(
    trainer: type[nnUNetTrainer], network: str, copied: Callable[[str], NNUNet]
) -> None:
    nnunet = copied("labels")
    add_small_network(nnunet, "labels", "2d_small", network)
    folder = nnunet.folder / "preprocessed" / KINDS["labels"][0]
    made = trainer_on_cpu(trainer, folder, f"2d_small_{network}")
    made.initialize()
    made.set_deep_supervision_enabled(made.enable_deep_supervision)
    size = made.configuration_manager.patch_size
    target = torch.randint(3, (2, 1, *size), generator=torch.Generator().manual_seed(0))
    scales = made._get_deep_supervision_scales()
    assert scales is None or all(scale == [1.0, 1.0] for scale in scales)
    batch = {"data": torch.randn(2, 1, *size), "target": target if scales is None else [target] * len(scales)}
    made.on_train_epoch_start()
    losses = [float(made.train_step(batch)["loss"]) for _ in range(2)]
    assert losses[0] != losses[1]
    assert np.isfinite(losses).all()
    made.set_deep_supervision_enabled(False)
    if network == "transunet":  # an image larger than the patch, and smaller along one axis
        predictor = nnUNetPredictor(use_mirroring=False, device=torch.device("cpu"), allow_tqdm=False)
        predictor.manual_initialization(
            made.network, made.plans_manager, made.configuration_manager, None, made.dataset_json, "nnUNetTrainer", None
        )
        logits = predictor.predict_sliding_window_return_logits(torch.randn(1, 2, 70, 9))
        assert logits.shape == (3, 2, 70, 9)
        assert torch.isfinite(logits).all()


@torch.no_grad()
def test_transunets_features_are_those_of_timms_hybrid_with_the_same_weights() -> None:
    small = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    network = TransUNet(3, 2, strides=[[1, 1]] * 3, patch_size=(48, 32), **small).eval()
    images = torch.randn(2, 3, 48, 32)
    same = timm.create_model(
        "vit_base_r50_s16_224", img_size=(48, 32), num_classes=0, class_token=False, global_pool="", **small
    ).eval()
    same.load_state_dict(network.encoder.state_dict())
    features, skips = network.encode(images)
    tokens = same.forward_features(images)  # (B, N, E), row by row
    torch.testing.assert_close(features.flatten(2).transpose(1, 2), tokens)
    resnet = same.patch_embed.backbone
    assert [tuple(one.shape[1:]) for one in skips] == [(512, 6, 4), (256, 12, 8), (64, 24, 16)]
    stem = resnet.stem.norm(resnet.stem.conv(images))
    quarter = resnet.stages[0](resnet.stem.pool(stem))
    for one, other in zip(skips, (resnet.stages[1](quarter), quarter, stem), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize(("network", "dims"), IN_2D_AND_3D)
def test_mixed_precision_on_a_gpu(network: str, dims: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    built = build(network, dims).cuda()
    with torch.autocast("cuda"):
        loss = built(images(network, dims).cuda())[0].float().square().mean()
    loss.backward()
    assert all(torch.isfinite(one.grad).all() for one in built.parameters() if one.grad is not None)
