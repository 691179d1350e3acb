"""What is read of a checkpoint, what is refused (damaged, foreign, objects), and nnU-Net's predictor of it."""

import functools
import json
import os
import shutil
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import pytest
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

from nnunet_nacl.calibrate import calibrate_model
from nnunet_nacl.cli import main
from nnunet_nacl.export import export_model
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import read_checkpoint
from tests.conftest import KINDS, TRAINER, Planned, Trained, copy_data_set, load_predictor

SLIM = {"network_weights", "trainer_name", "init_args"}
PREFIX = "cannot be read as a checkpoint of nnU-Net: "
COMMANDS = {
    "export": ["export", "MODEL"],
    "calibrate": ["calibrate", "-d", "Dataset901_Toy", "-c", "2d", "-tr", "nnUNetTrainerNACL", "-f", "0"],
    "paper logits": ["paper", "logits", "MODEL"],
}


CONTENT = {
    "network_weights": {"w": torch.arange(2000.0)},
    "trainer_name": "Some",
    "init_args": {"configuration": "2d"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint with a weight of 8 kB."""
    file = tmp_path / "checkpoint_final.pth"
    torch.save(CONTENT, file)
    return file


def repack(file: Path, **renamed: str) -> None:
    """Write the archive anew, with other words in its pickle."""
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            for old, new in renamed.items():
                data = data.replace(old.encode(), new.encode()) if name.endswith("data.pkl") else data  # noqa: PLW2901
            archive.writestr(name, data)


def refused(file: Path) -> str:
    with pytest.raises(ValueError, match=PREFIX) as raised:
        read_checkpoint(file)
    message = str(raised.value)
    assert message.startswith(str(file))
    return message.partition(PREFIX)[2]


def flip(file: Path, position: int, bit: int = 0) -> bytes:
    """Flip a bit; returns what was there."""
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[position] ^= 1 << bit
    file.write_bytes(changed)
    return whole


def test_no_flipped_bit_changes_what_is_read(file: Path) -> None:
    generator = np.random.default_rng(0)
    harmless = 0
    for position in generator.choice(file.stat().st_size, 200, replace=False):
        whole = flip(file, position, generator.integers(8))
        try:
            content = read_checkpoint(file)
        except ValueError:
            pass
        else:  # padding
            harmless += 1
            assert torch.equal(content.pop("network_weights")["w"], CONTENT["network_weights"]["w"])
            assert content == {name: value for name, value in CONTENT.items() if name != "network_weights"}
        file.write_bytes(whole)
    assert 0 < harmless < 50


def test_cut_short(file: Path) -> None:
    whole = file.read_bytes()
    for kept in (0, 30, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:kept])
        assert "File is not a zip file" in refused(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint_final\.pth does not exist"):
        read_checkpoint(file)


def run_recipe(message: str) -> None:
    """Run the lines of Python in a message."""
    lines = [line.strip() for line in message.splitlines()[1:]]
    exec("\n".join(lines), {})


@pytest.mark.parametrize(
    ("added", "kind"),
    [(functools.partial(int), "functools.partial"), (np.zeros(2, [("a", "f4")]), "numpy.dtypes.VoidDType")],
)
def test_what_is_whole_can_be_slimmed(file: Path, added: object, kind: str) -> None:
    path = file.with_name("it's.pth")
    torch.save({**CONTENT, "logging": added}, path)
    message = refused(path)
    assert message.startswith(f"it holds {kind}; only numbers, text, paths and arrays of them are read")
    run_recipe(message)
    slim = read_checkpoint(path)
    assert torch.equal(slim["network_weights"]["w"], CONTENT["network_weights"]["w"])
    assert slim["init_args"] == {"configuration": "2d"}
    assert set(slim) == SLIM | {"inference_allowed_mirroring_axes"}


@pytest.mark.parametrize("numpy_name", ["numpy._core.multiarray", "numpy.core.multiarray"])
def test_numbers_text_arrays_and_paths(file: Path, numpy_name: str) -> None:
    """NumPy's by the names that they have in its version 2 and in version 1."""
    plain = {
        **{code: np.dtype(code).type(1) for code in "?bhilBHILefdgFDG"},
        "text": [np.str_("2d"), np.bytes_(b"2d"), np.datetime64("2020-02-02")],
        "types": [np.float32, np.dtype("float32")],
        "paths": [Path("a") / "b", PurePosixPath("/c"), PureWindowsPath("d")],
    }
    arrays = [np.arange(6.0).reshape(2, 3).T, np.arange(3, dtype=">i2"), np.array(["a", "bc"]), np.array([True])]
    torch.save({**CONTENT, "plain": plain, "arrays": arrays}, file)
    repack(file, **{"numpy._core.multiarray": numpy_name})
    content = read_checkpoint(file)
    assert content["plain"] == plain
    assert [type(value) for value in content["plain"].values()] == [type(value) for value in plain.values()]
    for array, expected in zip(content["arrays"], arrays, strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype.newbyteorder("=")  # which NumPy makes of it


def test_paths_of_another_system(file: Path) -> None:
    torch.save({**CONTENT, "path": PureWindowsPath("a/b")}, file)
    repack(file, PureWindowsPath="WindowsPath")
    assert read_checkpoint(file)["path"] == PureWindowsPath("a/b")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reads_a_damaged_checkpoint(
    command: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = file.parent / "Dataset901_Toy" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    (model / "fold_0").mkdir(parents=True)
    file = file.rename(model / "fold_0" / file.name)
    flip(file, file.read_bytes().index(np.float32(1000).tobytes()))
    monkeypatch.setenv("nnUNet_results", str(file.parents[3]))
    before = sorted(file.parents[3].rglob("*"))
    assert main([str(model) if part == "MODEL" else part for part in COMMANDS[command]]) == 1
    assert f"{file} {PREFIX}the checksum of checkpoint_final/data/0" in capsys.readouterr().err
    assert sorted(file.parents[3].rglob("*")) == before


@pytest.fixture
def slimmed(planned: Planned, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trained model whose final checkpoint has only what predictions need, in a folder to write into."""
    source = trained("labels", "2d_small", TRAINER)  # preprocesses what is copied next
    copy_data_set(planned("labels")[0], "labels", tmp_path, monkeypatch)
    model = tmp_path / "results" / KINDS["labels"][0] / source.name
    shutil.copytree(source, model, ignore=shutil.ignore_patterns("validation", "checkpoint_best.pth"))
    content = read_checkpoint(source / "fold_0" / "checkpoint_final.pth")
    slim = {name: content[name] for name in SLIM}
    torch.save(slim | {"init_args": {"configuration": "2d_small"}}, model / "fold_0" / "checkpoint_final.pth")
    # As if its trainer had logged an object
    torch.save(content | {"logging": functools.partial(int)}, model / "fold_0" / "checkpoint_object.pth")
    return model


def test_a_slimmed_checkpoint_predicts_the_same(slimmed: Path, trained: Trained) -> None:
    """In our predictor and in nnU-Net's."""
    run_recipe(refused(slimmed / "fold_0" / "checkpoint_object.pth"))
    whole = trained("labels", "2d_small", TRAINER)
    image = torch.randn(1, 3, 20, 24)
    for name, use_mirroring in (("checkpoint_final.pth", False), ("checkpoint_object.pth", True)):
        stock = nnUNetPredictor(use_mirroring=use_mirroring, device=torch.device("cpu"), allow_tqdm=False)
        stock.initialize_from_trained_model_folder(str(slimmed), (0,), name)
        ours = load_predictor(slimmed, name, use_mirroring=use_mirroring)
        expected = load_predictor(whole, use_mirroring=use_mirroring)
        logits = [one.predict_logits_from_preprocessed_data(image) for one in (expected, stock, ours)]
        assert torch.equal(logits[0], logits[1])
        assert torch.equal(logits[0], logits[2])


def test_a_slimmed_checkpoint_is_calibrated_and_exported(slimmed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnunet_nacl.calibrate._draw.NUM_VALUES", 50_000)
    (slimmed / "fold_0" / "checkpoint_object.pth").unlink()
    cases = [f"toy_{number}" for number in range(6)]
    splits = slimmed.parents[2] / "preprocessed" / KINDS["labels"][0] / "splits_final.json"
    splits.write_text(json.dumps([{"train": cases[5:], "val": cases[:5]}]))
    ((_, calibrated),) = calibrate_model(slimmed, [0], use_mirroring=False, method="temperature")
    exported = export_model(slimmed)
    for file in (calibrated, exported / "fold_0" / calibrated.name):
        assert set(read_checkpoint(file)) == SLIM | {"nnunet_nacl_calibration"}
    stock = nnUNetPredictor(use_mirroring=False, device=torch.device("cpu"), allow_tqdm=False)
    stock.initialize_from_trained_model_folder(str(exported), (0,), calibrated.name)
    ours = load_predictor(slimmed, calibrated.name, use_mirroring=False)
    image = torch.randn(1, 3, 20, 24)
    logits = [one.predict_logits_from_preprocessed_data(image) for one in (stock, ours)]
    assert torch.equal(*logits)


OLD = """
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans


class nnUNetTrainerOfOld(nnUNetTrainer):
    @staticmethod
    def build_network_architecture(name, arguments, imported, channels, heads, enable_deep_supervision=True):
        shape = channels, heads
        return get_network_from_plans(name, arguments, imported, *shape, deep_supervision=enable_deep_supervision)
"""


def test_a_trainer_that_builds_its_network_as_before_nnunet_2_7(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(trained("labels", "2d_small", TRAINER), tmp_path / "model")
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "old.py").write_text(OLD)
    monkeypatch.setenv("nnUNet_extTrainer", os.pathsep.join([str(tmp_path / "trainers"), str(trainers_path())]))
    content = read_checkpoint(model / "fold_0" / "checkpoint_final.pth")
    torch.save(content | {"trainer_name": "nnUNetTrainerOfOld"}, model / "fold_0" / "checkpoint_old.pth")
    image = torch.randn(1, 3, 20, 24)
    names = ("checkpoint_old.pth", "checkpoint_final.pth")
    old, expected = (load_predictor(model, name).predict_logits_from_preprocessed_data(image) for name in names)
    assert torch.equal(old, expected)
