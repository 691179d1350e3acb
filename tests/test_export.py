"""A trained model, exported, gives a stock nnU-Net the same probabilities to the last bit."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.cli import main
from nnunet_nacl.export import NOTE_NAME, export_model
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import read_checkpoint
from tests.commands import run_forked
from tests.conftest import KINDS, TRAINER, Planned, Trained

CHECKPOINT = {"init_args": {"configuration": "2d"}, "network_weights": {}}
# As nnUNetv2_predict_from_modelfolder does, in an nnU-Net that cannot import this package.
STOCK = """
import sys
sys.modules["nnunet_nacl"] = None
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
predictor = nnUNetPredictor(use_mirroring=False, device=torch.device("cpu"), allow_tqdm=False)
predictor.initialize_from_trained_model_folder(sys.argv[1], (0,))
predictor.predict_from_files_sequential(sys.argv[2], sys.argv[3], save_probabilities=True)
"""

# As its command does, with weights of one's own
TOTALSEGMENTATOR = """
import sys
from pathlib import Path
sys.modules["nnunet_nacl"] = None
from totalsegmentator.config import setup_nnunet
setup_nnunet()
from totalsegmentator.nnunet import nnUNetv2_predict
if __name__ == "__main__":
    nnUNetv2_predict(sys.argv[1], sys.argv[2], int(sys.argv[3]), folds=[0], device="cpu", num_threads_preprocessing=1,
                     num_threads_nifti_save=1, save_probabilities_path=Path(sys.argv[4]))
"""


def test_a_stock_nnunet_runs_the_exported_model(
    planned: Planned, trained: Trained, predicted: Trained, tmp_path: Path
) -> None:
    nnunet, _ = planned("labels")
    model, ours = (make("labels", "2d_small", TRAINER) for make in (trained, predicted))
    images, stock, exported = tmp_path / "images", tmp_path / "stock", model.with_name(f"{model.name}_stock")
    images.mkdir()
    stock.mkdir()
    for case in ("toy_0", "toy_1"):
        shutil.copy(nnunet.folder / "raw" / KINDS["labels"][0] / "imagesTr" / f"{case}_0000.nii.gz", images)
    assert f"Wrote {exported}" in nnunet.run("nnunet_nacl", "export", model)
    assert TRAINER in (exported / NOTE_NAME).read_text()
    log = tmp_path / "log"
    assert run_forked(["-c", STOCK, str(exported), str(images), str(stock)], os.environ, log) == 0, log.read_text()
    for case in ("toy_0", "toy_1"):
        assert np.array_equal(*(np.load(folder / f"{case}.npz")["probabilities"] for folder in (ours, stock)))


@pytest.mark.slow
def test_totalsegmentator_runs_the_exported_model(
    planned: Planned, trained: Trained, predicted: Trained, tmp_path: Path
) -> None:
    pytest.importorskip("totalsegmentator", reason="it is too large for the extra test: pip install totalsegmentator")
    nnunet, _ = planned("labels")
    model, ours = (make("labels", "2d_small", TRAINER) for make in (trained, predicted))
    name = KINDS["labels"][0]
    copy = Path(shutil.copytree(model, tmp_path / name / model.name))
    export_model(copy).rename(copy.with_name("nnUNetTrainer__nnUNetPlans__3d_fullres"))
    images, theirs = tmp_path / "images", tmp_path / "theirs"
    images.mkdir()
    theirs.mkdir()
    shutil.copy(nnunet.folder / "raw" / name / "imagesTr" / "toy_0_0000.nii.gz", images / "s01_0000.nii.gz")
    arguments = [str(images), str(theirs), name[7:10], str(tmp_path / "p.npz")]
    environment = {**os.environ, "TOTALSEG_WEIGHTS_PATH": str(tmp_path)}
    log = tmp_path / "log"
    assert run_forked(["-c", TOTALSEGMENTATOR, *arguments], environment, log) == 0, log.read_text()
    found, expected = (np.load(file)["probabilities"] for file in (theirs / "s01.npz", ours / "toy_0.npz"))
    assert np.array_equal(found, expected)


@pytest.mark.slow
def test_monai_converts_the_exported_model(
    planned: Planned, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network in MONAI's bundle predicts as the calibrated one, here by nnU-Net: MONAI's call does not fit 2.8."""
    from monai.apps.nnunet import convert_nnunet_to_monai_bundle

    name, source = KINDS["labels"][0], trained("labels", "2d_small", TRAINER)
    model = tmp_path / name / source.name
    shutil.copytree(source, model)
    final = model / "fold_0" / "checkpoint_final.pth"
    content = read_checkpoint(final)
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):  # why MONAI needs the export
        torch.load(final, weights_only=True)
    weights = {key: value / 2 if "seg_layers" in key else value for key, value in content["network_weights"].items()}
    torch.save({**content, "network_weights": weights}, final.with_name("checkpoint_calibrated.pth"))
    exported = export_model(model, as_final="checkpoint_calibrated.pth")
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    models = tmp_path / "bundle" / "models"
    models.mkdir(parents=True)
    described = {"dataset_name_or_id": name, "nnunet_trainer": TRAINER, "nnunet_configuration": "2d_small_stock"}
    convert_nnunet_to_monai_bundle(described, str(models.parent))
    parts = [torch.load(models / part, weights_only=True) for part in ("nnunet_checkpoint.pth", "fold_0/model.pt")]
    torch.save(parts[0] | parts[1], models / "fold_0" / "checkpoint_final.pth")
    images = tmp_path / "images"
    images.mkdir()
    shutil.copy(planned("labels")[0].folder / "raw" / name / "imagesTr" / "toy_0_0000.nii.gz", images)
    predictions = []
    for folder in (models, exported):
        output, log = tmp_path / f"by_{folder.name}", tmp_path / "log"
        output.mkdir()
        assert run_forked(["-c", STOCK, str(folder), str(images), str(output)], os.environ, log) == 0, log.read_text()
        predictions.append(np.load(output / "toy_0.npz")["probabilities"])
    assert np.array_equal(*predictions)


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "nnUNetTrainerNACL__nnUNetPlans__2d"
    (folder / "fold_0").mkdir(parents=True)
    (folder / "dataset.json").write_text("{}")
    (folder / "plans.json").write_text(
        '{"configurations": {"2d": {"architecture": {"network_class_name": "PlainConvUNet"}}}}'
    )
    write_checkpoint(folder)
    return folder


def write_checkpoint(model_folder: Path, **content: object) -> Path:
    file = model_folder / "fold_0" / "checkpoint_final.pth"
    torch.save({**CHECKPOINT, "trainer_name": "nnUNetTrainerNACL", **content}, file)
    return file


def test_no_segmentation_of_a_case_goes_with_the_model(model_folder: Path) -> None:
    """As nnUNetv2_export_model_to_zip, also of images that are PNG or JPEG."""
    kept = {"crossval_results_folds_0/postprocessing.pkl", "crossval_results_folds_0/summary.json"}
    kept |= {"fold_0/validation/summary.json", "fold_0/progress.png"}
    segmentations = {f"crossval_results_folds_0/{name}" for name in ("a.png", "b.jpg", "y.p2.nii.gz", "plans.json")}
    for name in kept | segmentations | {"fold_0/validation/a.png"}:
        (model_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (model_folder / name).write_bytes(b"")
    output = export_model(model_folder)
    files = {str(file.relative_to(output)) for file in output.rglob("*") if file.is_file()}
    assert files == kept | {"dataset.json", "plans.json", "fold_0/checkpoint_final.pth", NOTE_NAME}


def test_a_network_of_this_package_stays_needed(model_folder: Path) -> None:
    architecture = {"network_class_name": "nnunet_nacl.paper.networks.TransUNet"}
    configurations = {"2d_transunet": {"architecture": architecture}, "2d_bs8": {"inherits_from": "2d_transunet"}}
    plans = {"image_reader_writer": "SimpleITKIO", "configurations": configurations}
    (model_folder / "plans.json").write_text(json.dumps(plans))
    write_checkpoint(model_folder, init_args={"configuration": "2d_bs8"})
    output = export_model(model_folder)
    assert output == model_folder.with_name("nnUNetTrainerNACL__nnUNetPlans__2d_stock")
    assert "nnunet_nacl.paper.networks.TransUNet: it needs nnunet_nacl" in (output / NOTE_NAME).read_text()
    with pytest.raises(FileExistsError, match="2d_stock"):
        export_model(model_folder)


def test_the_calibrated_network_takes_the_name_that_others_read(model_folder: Path) -> None:
    final, weights = model_folder / "fold_0" / "checkpoint_final.pth", torch.ones(3)
    write_checkpoint(model_folder, network_weights={"w": weights})
    final.rename(final.with_name("checkpoint_calibrated.pth"))
    for other in ("final", "best"):
        write_checkpoint(model_folder, network_weights={"w": 2 * weights})
        final.rename(final.with_name(f"checkpoint_{other}.pth"))
    output = export_model(model_folder, as_final="checkpoint_calibrated.pth")
    written = {file.name: torch.load(file, weights_only=True) for file in output.glob("fold_0/*.pth")}
    assert {name: one["network_weights"]["w"].tolist() for name, one in written.items()} == {
        "checkpoint_final.pth": [1, 1, 1], "checkpoint_best.pth": [2, 2, 2],
    }  # fmt: skip
    assert "checkpoint_final.pth is the original's checkpoint_calibrated.pth" in (output / NOTE_NAME).read_text()


MINE = """
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation.nnUNetTrainerDA5 import nnUNetTrainerDA5
from nnunet_nacl.trainers import CalibratedLossMixin, Recipe
class nnUNetTrainerMine(CalibratedLossMixin, nnUNetTrainerDA5):
    recipe = Recipe("NACL")
class nnUNetTrainerMineLarger(nnUNetTrainerMine):
    @staticmethod
    def build_network_architecture(*_, **__):
        raise NotImplementedError
"""


def test_which_trainer_of_nnunet_predicts_alike(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of ours, of one's own, of nnU-Net's with a budget that nnU-Net does not know, and of nnU-Net's."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text(MINE)
    monkeypatch.setenv("nnUNet_extTrainer", os.pathsep.join([str(tmp_path / "mine"), str(trainers_path())]))
    for name, expected in {
        "nnUNetTrainerDiceNACL_5epochs": "nnUNetTrainer",
        "nnUNetTrainerDA5_20epochs_10iterations": "nnUNetTrainerDA5",
        "nnUNetTrainerMine": "nnUNetTrainerDA5",
        "nnUNetTrainerAdam": "nnUNetTrainerAdam",
    }.items():
        write_checkpoint(model_folder, trainer_name=name)
        output = export_model(model_folder)
        copied = torch.load(output / "fold_0" / "checkpoint_final.pth", weights_only=False)
        assert copied["trainer_name"] == expected
        shutil.rmtree(output)
    write_checkpoint(model_folder, trainer_name="nnUNetTrainerMineLarger")
    with pytest.raises(ValueError, match="nnUNetTrainerMineLarger builds a network of its own, which nnU-Net lacks"):
        export_model(model_folder)


def test_what_cannot_be_exported(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"it has no fold_\*/checkpoint_\*\.pth\."):
        export_model(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"fold_0/checkpoint_calibrated\.pth does not exist"):
        export_model(model_folder, as_final="checkpoint_calibrated.pth")
    assert list(model_folder.parent.iterdir()) == [model_folder]


class Runs(str):
    """What runs when it is unpickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self),)


@pytest.mark.parametrize("command", ["export", "paper logits"])
def test_nothing_in_a_checkpoint_runs(
    model_folder: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_checkpoint(model_folder, evil=Runs(tmp_path / "ran"))
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        assert main([*command.split(), str(model_folder)]) == 1
        assert sorted(tmp_path.rglob("*")) == before
        file.write_bytes(pickle.dumps(Runs(tmp_path / "ran")))  # no archive
    printed = capsys.readouterr().err
    assert f"{file} cannot be read as a checkpoint of nnU-Net: it holds posix.mkdir; only" in printed


def test_what_checkpoints_hold_becomes_pythons_own(model_folder: Path) -> None:
    scalars = {code: np.dtype(code).type(1) for code in "?bhilqBHILQefd"}
    content = {
        "logging": {"ema": [scalars["d"]], "loss": [1.5, None], "all": scalars}, "_best_ema": scalars["f"],
        "optimizer_state": torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], momentum=0.9).state_dict(),
        "init_args": {"plans": {"a": [1, {"b": (2,)}]}, "device": torch.device("cpu"), "configuration": "2d"},
        "moments": [np.arange(2.0)], "read_from": Path("plans.json"),
        "grad_scaler_state": {}, "inference_allowed_mirroring_axes": (0, 1),
    }  # fmt: skip
    weights = torch.rand(3)
    write_checkpoint(model_folder, network_weights={"w": weights}, **content)
    copied = torch.load(export_model(model_folder) / "fold_0" / "checkpoint_final.pth", weights_only=True)
    expected = {**content, "moments": [[0, 1]], "read_from": "plans.json"}
    del expected["optimizer_state"]
    assert {name: copied.get(name) for name in content} == {**expected, "optimizer_state": None}
    assert copied["trainer_name"] == "nnUNetTrainer"
    assert torch.equal(copied["network_weights"]["w"], weights)
