"""What a predictor is made of, and what it sees, without a training."""

import json
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import PlansJson, PreprocessedCases, load_predictor, read_checkpoint, write_checkpoint
from tests.conftest import Trained

TRAINER = "nnUNetTrainerNACL_2epochs_2iterations"
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
    write_checkpoint(content | {"trainer_name": "nnUNetTrainerOfOld"}, model / "fold_0" / "checkpoint_old.pth")
    image = torch.randn(1, 3, 20, 24)
    for name, use_mirroring in (("checkpoint_best.pth", True), ("checkpoint_final.pth", False)):
        ours = load_predictor(model, "0", "cpu", checkpoint=name, use_mirroring=use_mirroring)
        expected = nnUNetPredictor(use_mirroring=use_mirroring, device=torch.device("cpu"), allow_tqdm=False)
        expected.initialize_from_trained_model_folder(str(model), (0,), name)
        logits = [one.predict_logits_from_preprocessed_data(image) for one in (ours, expected)]
        assert torch.equal(*logits)
        assert ours.configuration_name == "2d_small"
    old = load_predictor(model, 0, "cpu", checkpoint="checkpoint_old.pth", use_mirroring=False)
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


def test_what_is_missing(tmp_path: Path) -> None:
    model = tmp_path / "nnUNetTrainerNACL__nnUNetPlans__2d"
    for fold in ("fold_0", "fold_1"):
        (model / fold).mkdir(parents=True)
        for name in ("final", "best"):
            (model / fold / f"checkpoint_{name}.pth").touch()
    there = r"expected the file name of a checkpoint; there are checkpoint_best\.pth, checkpoint_final\.pth\.$"
    for name in ("mine.pth", "final"):
        with pytest.raises(FileNotFoundError, match=rf"fold_0/{name} does not exist; {there}"):
            load_predictor(model, 0, "cpu", checkpoint=name)
    with pytest.raises(FileNotFoundError, match=r"__2d has no fold 7; there are fold_0, fold_1\.$"):
        load_predictor(model, 7, "cpu")
    other = model.with_name("nnUNetTrainerX__nnUNetPlans__2d")
    with pytest.raises(FileNotFoundError, match=r"X__nnUNetPlans__2d does not exist; .* has nnUNetTrainerNACL__"):
        load_predictor(other, 0, "cpu")
    final = model / "fold_0" / "checkpoint_final.pth"
    final.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"final\.pth cannot be read as a checkpoint of nnU-Net: ") as raised:
        load_predictor(model, 0, "cpu")
    assert "weights_only" not in str(raised.value)
    final.unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint_final\.pth does not exist: the training has not ended; "):
        load_predictor(model, 0, "cpu")


def predictor_of(stage: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        plans_manager=SimpleNamespace(dataset_name="Dataset004_X", plans_name="nnUNetPlans"),
        configuration_manager=SimpleNamespace(data_identifier="data", previous_stage_name=stage),
        label_manager=SimpleNamespace(foreground_labels=[1, 2]),
        trainer_name="nnUNetTrainerNACL",
        configuration_name="3d_cascade_fullres",
    )


@pytest.fixture
def two_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cases of one channel; the second is validated on."""
    folder = tmp_path / "Dataset004_X" / "data"
    folder.mkdir(parents=True)
    for value, case in enumerate("ab"):
        image = np.full((1, 2, 3, 4), value, np.float32)
        np.savez(folder / f"{case}.npz", data=image, seg=image.astype(np.int8))
        (folder / f"{case}.pkl").write_bytes(pickle.dumps({}))
    (folder.parent / "splits_final.json").write_text(json.dumps([{"train": ["a"], "val": ["b"]}]))
    for name in ("nnUNet_preprocessed", "nnUNet_results"):
        monkeypatch.setenv(name, str(tmp_path))
    return folder


def test_validation_cases_as_the_network_sees_them(two_cases: Path) -> None:
    names, load, labels_of = PreprocessedCases.of_fold(predictor_of(None), 0)
    assert names == ["b"]
    image, labels, _ = load("b")
    assert image.shape == (1, 2, 3, 4)
    assert image.dtype == np.float32
    assert labels.tolist() == labels_of("b").tolist() == np.ones((2, 3, 4)).tolist()
    assert PreprocessedCases.of_fold(predictor_of(None), "all")[0] == ["a", "b"]
    (drawn,) = np.random.RandomState(12345 + 4).choice(2, 1, replace=False)
    assert PreprocessedCases.of_fold(predictor_of(None), "4")[0] == ["ba"[drawn]]  # the other one of two
    splits = two_cases.parent / "splits_final.json"
    splits.write_text(json.dumps([{"train": ["a"], "val": ["b", "b"]}]))
    with pytest.raises(ValueError, match=r"splits_final\.json: fold 0 lists the validation case b twice"):
        PreprocessedCases.of_fold(predictor_of(None), 0)
    splits.write_text(json.dumps([{"train": ["a"], "val": ["b"]}]))
    (two_cases / "b.npz").unlink()
    with pytest.raises(FileNotFoundError, match="data lacks the case b of fold 0"):
        PreprocessedCases.of_fold(predictor_of(None), 0)


@pytest.mark.usefixtures("two_cases")
def test_a_second_stage_sees_the_first_ones_segmentation(tmp_path: Path) -> None:
    predictor = predictor_of("3d_lowres")
    with pytest.raises(FileNotFoundError, match="lacks b: train 3d_lowres, all its folds, before its second stage"):
        PreprocessedCases.of_fold(predictor, 0)
    model = tmp_path / "Dataset004_X" / "nnUNetTrainerNACL__nnUNetPlans__3d_lowres"
    folder = model / "predicted_next_stage" / "3d_cascade_fullres"
    folder.mkdir(parents=True)
    first = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.uint8)
    np.savez(folder / "b.npz", seg=first)
    image, *_ = PreprocessedCases.of_fold(predictor, 0)[1]("b")
    assert np.array_equal(image, [np.ones((2, 3, 4)), first == 1, first == 2])
    with pytest.raises(ValueError, match="only validation cases have them"):
        PreprocessedCases.of_images(predictor, tmp_path, tmp_path)
