"""A predictor is nnU-Net's, of each trainer and checkpoint; what is missing is named."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import PlansJson, read_checkpoint
from tests.conftest import TRAINER, Trained, load_predictor

OLD = """
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans


class nnUNetTrainerOfOld(nnUNetTrainer):
    @staticmethod
    def build_network_architecture(name, arguments, imported, channels, heads, enable_deep_supervision=True):
        shape = channels, heads
        return get_network_from_plans(name, arguments, imported, *shape, deep_supervision=enable_deep_supervision)
"""


def test_predictors_are_those_of_nnunet(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our trainers, and of one that builds its network as before nnU-Net 2.7."""
    model = shutil.copytree(trained("labels", "2d_small", TRAINER), tmp_path / "model")
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "old.py").write_text(OLD)
    monkeypatch.setenv("nnUNet_extTrainer", os.pathsep.join([str(tmp_path / "trainers"), str(trainers_path())]))
    content = read_checkpoint(model / "fold_0" / "checkpoint_final.pth")
    torch.save(content | {"trainer_name": "nnUNetTrainerOfOld"}, model / "fold_0" / "checkpoint_old.pth")
    image = torch.randn(1, 3, 20, 24)
    for name, use_mirroring in (("checkpoint_best.pth", True), ("checkpoint_final.pth", False)):
        ours = load_predictor(model, name, use_mirroring=use_mirroring)
        expected = nnUNetPredictor(use_mirroring=use_mirroring, device=torch.device("cpu"), allow_tqdm=False)
        expected.initialize_from_trained_model_folder(str(model), (0,), name)
        logits = [one.predict_logits_from_preprocessed_data(image) for one in (ours, expected)]
        assert torch.equal(*logits)
        assert ours.configuration_name == "2d_small"
    old = load_predictor(model, "checkpoint_old.pth", use_mirroring=False)
    assert torch.equal(old.predict_logits_from_preprocessed_data(image), logits[0])


def test_the_default_network_is_nnunets(trained: Trained) -> None:
    model = trained("labels", "2d_small", TRAINER)
    for deep_supervision in (True, False):
        plans = PlansManager(json.loads((model / "plans.json").read_bytes()))
        network, channels = PlansJson.read(model / "plans.json").build_network(
            "2d_small", deep_supervision=deep_supervision
        )
        expected = nnUNetTrainer.build_network_architecture(
            plans, plans.get_configuration("2d_small"), channels, 3, enable_deep_supervision=deep_supervision
        )
        assert str(network) == str(expected)
        assert network.decoder.deep_supervision is deep_supervision
