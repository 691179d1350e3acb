"""TransUNet against timm's own hybrid."""

import timm
import torch

from nnunet_nacl.paper.networks import TransUNet

SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2}


@torch.no_grad()
def test_features_are_those_of_timms_hybrid_with_the_same_weights() -> None:
    network = TransUNet(3, 2, strides=[[1, 1]] * 3, patch_size=(48, 32), **SMALL).eval()
    images = torch.randn(2, 3, 48, 32)
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
