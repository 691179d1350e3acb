"""Trained, found again, predicted with and evaluated by the commands of nnU-Net and ours, in processes of their own."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import KINDS, Trained
from tests.networks.conftest import WithNetwork

TRAINER = "nnUNetTrainerNACL_1epochs_2iterations"


@pytest.mark.parametrize(
    ("kind", "parent", "network"),
    [
        ("ignore", "2d_small", "unet_plus_plus"),
        pytest.param("labels", "2d_small", "transunet", marks=pytest.mark.slow),
        pytest.param("regions", "3d_small", "attention_unet", marks=pytest.mark.slow),
        pytest.param("regions_ignore", "2d_small", "swin_unetr", marks=pytest.mark.slow),
        pytest.param("labels", "3d_small", "unet", marks=pytest.mark.slow),
    ],
)
def test_train_predict_evaluate(
    with_network: WithNetwork, trained: Trained, tmp_path: Path, kind: str, parent: str, network: str
) -> None:
    nnunet, number = with_network(kind, parent, network)
    configuration = f"{parent}_{network}"
    model = trained(kind, configuration, TRAINER)
    validation = json.loads((model / "fold_0" / "validation" / "calibration_summary.json").read_text())
    assert validation["num_cases"]["evaluated"] == 2  # by a trainer that has just trained it

    raw, predictions = nnunet.folder / "raw" / KINDS[kind][0], tmp_path / "predictions"
    nnunet.run(
        "nnUNetv2_predict", "-d", number, "-c", configuration, "-f", 0, "-tr", TRAINER, "-i", raw / "imagesTr",
        "-o", predictions, "--save_probabilities", "-npp", 0, "-nps", 0, "-device", "cpu",
    )  # fmt: skip
    nnunet.run("nnunet_nacl", "evaluate", raw / "labelsTr", predictions)
    summary = json.loads((predictions / "calibration_summary.json").read_text())
    assert summary["num_cases"]["evaluated"] == 6
    assert 0 < summary["mean"]["near"]["ECE"] < 1
    for file in (model / "fold_0" / "validation").glob("*.npz"):  # the same model, found again from its checkpoint
        with np.load(file) as one, np.load(predictions / file.name) as other:
            np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-5)
