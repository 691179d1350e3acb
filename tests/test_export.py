"""A trained model, exported, gives a stock nnU-Net the same probabilities to the last bit."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.export import NOTE_NAME, export_model
from nnunet_nacl.linking import trainers_path
from tests.conftest import KINDS, Planned, Trained

TRAINER = "nnUNetTrainerNACL_2epochs_2iterations"
CHECKPOINT = {"init_args": {}, "logging": {}, "current_epoch": 1}
# As nnUNetv2_predict_from_modelfolder does, but without further processes, each of which would import PyTorch.
PREDICT = """
import sys
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
predictor = nnUNetPredictor(use_mirroring=False, device=torch.device("cpu"), allow_tqdm=False)
predictor.initialize_from_trained_model_folder(sys.argv[1], (0,))
predictor.predict_from_files_sequential(sys.argv[2], sys.argv[3], save_probabilities=True)
"""
# An nnU-Net that cannot import this package, as on a machine where it was never installed.
STOCK = "import sys; sys.modules['nnunet_nacl'] = None"


def test_a_stock_nnunet_runs_the_exported_model(
    planned: Planned, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nnunet, _ = planned("labels")
    model = trained("labels", "2d_small", TRAINER)
    images, exported = tmp_path / "images", tmp_path / "exported"
    for folder in (images, tmp_path / "ours", tmp_path / "stock"):
        folder.mkdir()
    for case in ("toy_0", "toy_1"):
        shutil.copy(nnunet.folder / "raw" / KINDS["labels"][0] / "imagesTr" / f"{case}_0000.nii.gz", images)
    ours = tmp_path / "ours.py"
    ours.write_text(PREDICT)
    monkeypatch.setenv("nnUNet_extTrainer", str(trainers_path()))
    monkeypatch.setattr(sys, "argv", [str(ours), str(model), str(images), str(tmp_path / "ours")])
    runpy.run_path(str(ours))
    monkeypatch.delenv("nnUNet_extTrainer")

    printed = nnunet.run("nnunet_nacl", "export", model, "-o", exported, as_user=True)
    assert f"Wrote {exported}" in printed
    assert TRAINER in (exported / NOTE_NAME).read_text()
    stock = tmp_path / "stock.py"
    stock.write_text(STOCK + PREDICT)
    done = subprocess.run(
        [sys.executable, stock, exported, images, tmp_path / "stock"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for case in ("toy_0", "toy_1"):
        with np.load(tmp_path / "ours" / f"{case}.npz") as one, np.load(tmp_path / "stock" / f"{case}.npz") as other:
            assert np.array_equal(one["probabilities"], other["probabilities"])


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "nnUNetTrainerNACL__nnUNetPlans__2d"
    (folder / "fold_0").mkdir(parents=True)
    for name in ("dataset.json", "plans.json"):
        (folder / name).write_text("{}")
    torch.save({**CHECKPOINT, "trainer_name": "nnUNetTrainerNACL"}, folder / "fold_0" / "checkpoint_final.pth")
    return folder


def test_the_default_name_and_an_existing_one(model_folder: Path) -> None:
    output = export_model(model_folder)
    assert output == model_folder.with_name("nnUNetTrainerNACL__nnUNetPlans__2d_stock")
    checkpoint = torch.load(output / "fold_0" / "checkpoint_final.pth", weights_only=False)
    assert checkpoint["trainer_name"] == "nnUNetTrainer"
    with pytest.raises(FileExistsError, match="_stock exists already"):
        export_model(model_folder)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no dataset\.json, plans\.json, fold_X/checkpoint_final\.pth in it"):
        export_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_a_damaged_checkpoint(model_folder: Path, content: bytes) -> None:
    (model_folder / "fold_0" / "checkpoint_final.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint_final\.pth cannot be read as a checkpoint of nnU-Net"):
        export_model(model_folder)


def test_a_model_of_another_trainer(model_folder: Path) -> None:
    torch.save({**CHECKPOINT, "trainer_name": "nnUNetTrainerAdam"}, model_folder / "fold_0" / "checkpoint_final.pth")
    with pytest.raises(ValueError, match=r"was trained with nnUNetTrainerAdam, which is not a trainer of nnunet_nacl"):
        export_model(model_folder)
    assert list(model_folder.parent.iterdir()) == [model_folder]
