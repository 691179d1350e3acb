"""TransUNet against timm's own hybrid, and its pretrained weights."""

from pathlib import Path

import pytest
import timm
import torch

from nnunet_nacl.networks import TransUNet

SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2}
STRIDES = [[1, 1]] * 3


def hybrid(**options: object) -> torch.nn.Module:
    """timm's model with a class token, as its weights are published."""
    torch.manual_seed(1)
    model = timm.create_model("vit_base_r50_s16_224", **{"img_size": (32, 32), **SMALL, **options})
    for parameter in (model.pos_embed, model.cls_token):
        torch.nn.init.normal_(parameter)
    return model.eval()


def transunet(**options: object) -> TransUNet:
    torch.manual_seed(0)
    size = {"patch_size": (48, 32)}
    return TransUNet(options.pop("input_channels", 3), 2, strides=STRIDES, **{**size, **SMALL, **options}).eval()


@torch.no_grad()
def test_features_are_those_of_timms_hybrid_with_the_same_weights() -> None:
    network, images = transunet(), torch.randn(2, 3, 48, 32)
    same = timm.create_model(
        "vit_base_r50_s16_224", img_size=(48, 32), num_classes=0, class_token=False, global_pool="", **SMALL
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


@torch.no_grad()
def test_weights_of_a_file(tmp_path: Path) -> None:
    model = hybrid()
    file = tmp_path / "hybrid.pth"
    torch.save(model.state_dict(), file)
    started = transunet(weights=str(file), patch_size=(32, 32)).encoder.state_dict()
    given = model.state_dict()
    assert torch.equal(started.pop("pos_embed"), given["pos_embed"][:, 1:])
    for name, value in started.items():
        assert torch.equal(value, given[name]), name

    grey = transunet(weights=str(file), input_channels=1, patch_size=(32, 32)).encoder.state_dict()
    first = "patch_embed.backbone.stem.conv.weight"
    torch.testing.assert_close(grey[first], given[first].sum(1, keepdim=True))
    larger = transunet(weights=str(file), patch_size=(64, 48)).encoder.state_dict()
    assert larger["pos_embed"].shape == (1, 12, 24)  # resampled


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "other.pth"
    torch.save({"weight": torch.zeros(3)}, file)
    with pytest.raises(ValueError, match=r"other\.pth: expected weights of timm's vit_base_r50_s16_224; got others: "):
        transunet(weights=str(file))
    file.write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"other\.pth: expected weights of timm's"):
        transunet(weights=str(file))


@torch.no_grad()
def test_a_checkpoint_needs_no_pretrained_weights_and_a_training_does(tmp_path: Path) -> None:
    network, images = transunet(weights=str(tmp_path / "gone.pth")), torch.randn(1, 3, 48, 32)
    with pytest.raises(
        FileNotFoundError, match=r"gone\.pth does not exist: the plans name it as TransUNet's weights\."
    ):
        network(images)
    trained = transunet()
    network.load_state_dict(trained.state_dict())
    assert torch.equal(network(images), trained(images))
