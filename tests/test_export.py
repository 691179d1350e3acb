"""A trained model, exported, gives a stock nnU-Net the same probabilities to the last bit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.export import NOTE_NAME, export_model
from tests.conftest import KINDS, Planned, Trained

TRAINER = "nnUNetTrainerNACL_2epochs_2iterations"
CHECKPOINT = {"init_args": {}, "logging": {}, "current_epoch": 1}
# An nnU-Net that cannot import this package, as on a machine where it was never installed.
STOCK_PREDICT = (
    "import sys; sys.modules['nnunet_nacl'] = None\n"
    "from nnunetv2.inference.predict_from_raw_data import predict_entry_point_modelfolder\n"
    "if __name__ == '__main__': predict_entry_point_modelfolder()\n"
)


def test_a_stock_nnunet_runs_the_exported_model(planned: Planned, trained: Trained, tmp_path: Path) -> None:
    nnunet, _ = planned("labels")
    model = trained("labels", "2d_small", TRAINER)
    images = nnunet.folder / "raw" / KINDS["labels"][0] / "imagesTr"
    options = ["-f", "0", "--save_probabilities", "-npp", "1", "-nps", "1", "-device", "cpu", "--disable_tta"]
    nnunet.run("nnUNetv2_predict_from_modelfolder", "-i", images, "-o", tmp_path / "ours", "-m", model, *options)

    printed = nnunet.run("nnunet_nacl", "export", model, "-o", tmp_path / "exported")
    assert f"Wrote {tmp_path / 'exported'}" in printed
    assert TRAINER in (tmp_path / "exported" / NOTE_NAME).read_text()
    script = tmp_path / "stock_predict.py"
    script.write_text(STOCK_PREDICT)
    environment = {name: value for name, value in os.environ.items() if name != "nnUNet_extTrainer"}
    done = subprocess.run(
        [sys.executable, script, "-i", images, "-o", tmp_path / "stock", "-m", tmp_path / "exported", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for case in range(6):
        with (
            np.load(tmp_path / "ours" / f"toy_{case}.npz") as ours,
            np.load(tmp_path / "stock" / f"toy_{case}.npz") as stock,
        ):
            assert np.array_equal(ours["probabilities"], stock["probabilities"])


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
