"""Trained, found again, predicted with and evaluated by the commands of nnU-Net and ours, in processes of their own."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import KINDS, NNUNet, Preprocessed
from tests.paper.networks.conftest import add_small_network

TRAINER = "nnUNetTrainerNACL_1epochs_2iterations"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "parent", "network"),
    [
        ("ignore", "2d_small", "unet_plus_plus"),
        ("labels", "2d_small", "transunet"),
        ("regions", "3d_small", "attention_unet"),
        ("regions_ignore", "2d_small", "swin_unetr"),
        ("labels", "3d_small", "unet"),
    ],
)
def test_train_predict_evaluate(
    preprocessed: Preprocessed, copied: Callable[[str], NNUNet], tmp_path: Path, kind: str, parent: str, network: str
) -> None:
    _, number = preprocessed(kind, parent)
    nnunet, configuration = copied(kind), f"{parent}_{network}"
    add_small_network(nnunet, kind, parent, network)
    nnunet.run("nnUNetv2_train", number, configuration, 0, "-tr", TRAINER, "-device", "cpu", "--npz")
    raw, predictions = nnunet.folder / "raw" / KINDS[kind][0], tmp_path / "predictions"
    nnunet.run(
        "nnUNetv2_predict", "-d", number, "-c", configuration, "-f", 0, "-tr", TRAINER, "-i", raw / "imagesTr",
        "-o", predictions, "--save_probabilities", "-npp", 0, "-nps", 0, "-device", "cpu",
    )  # fmt: skip
    nnunet.run("nnunet_nacl", "evaluate", raw / "labelsTr", predictions)
    summary = json.loads((predictions / "calibration_summary.json").read_text())
    assert summary["num_cases"]["evaluated"] == 6
    assert 0 < summary["mean"]["near"]["ECE"] < 1
    validation = next((nnunet.folder / "results").rglob("fold_0/validation"))
    files = list(validation.glob("*.npz"))
    assert files
    for file in files:  # the same model, found again from its checkpoint
        with np.load(file) as one, np.load(predictions / file.name) as other:
            # nnU-Net adds logits up in half precision, where one may be rounded either way
            np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-3)
