"""Our trainers in nnU-Net's own commands, as users run them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.trainers._progress import MAX_LOGIT_HISTOGRAM, PICTURE_NAME, VALUES
from tests.conftest import KINDS, NNUNet, Preprocessed, Trained

BRIEF = "2epochs_2iterations"
CLASS_NAMES = {"NACL": "NACLLoss", "DiceNACL": "NACLLoss", "DiceFL": "FocalLoss", "SVLS": "SVLSLoss"}


def train(nnunet: NNUNet, number: str, configuration: str, trainer: str, *options: object) -> Path:
    """Train fold 0; returns its folder."""
    nnunet.run("nnUNetv2_train", number, configuration, 0, "-tr", trainer, *(options or ["-device", "cpu"]))
    (fold,) = (nnunet.folder / "results").glob(f"Dataset{number}_*/{trainer}__nnUNetPlans__{configuration}/fold_0")
    return fold


def log(fold: Path) -> str:
    return "\n".join(file.read_text() for file in sorted(fold.glob("training_log_*.txt")))


@pytest.mark.parametrize(
    ("kind", "configuration", "trainer"),
    [
        ("labels", "2d_small", "nnUNetTrainerNACL"),
        ("regions", "3d_small", "nnUNetTrainerDiceNACL"),
        pytest.param("ignore", "3d_small", "nnUNetTrainerDiceFL", marks=pytest.mark.slow),
        pytest.param("regions_ignore", "2d_small", "nnUNetTrainerSVLS", marks=pytest.mark.slow),
    ],
)
def test_train_predict_evaluate(
    preprocessed: Preprocessed, trained: Trained, tmp_path: Path, kind: str, configuration: str, trainer: str
) -> None:
    nnunet, number = preprocessed(kind, configuration)
    fold = trained(kind, configuration, f"{trainer}_{BRIEF}") / "fold_0"
    printed = log(fold)
    assert f"nnunet_nacl trains with {CLASS_NAMES[trainer.removeprefix('nnUNetTrainer')]}(" in printed
    assert f"ignore_label={3 if 'ignore' in kind else None}, regions={'regions' in kind}" in printed
    assert ("MemoryEfficientSoftDiceLoss" in printed) == ("Dice" in trainer)
    assert "nan" not in [line.split()[-1] for line in printed.splitlines() if "_loss" in line]
    check_progress(fold, printed)
    raw = nnunet.folder / "raw" / KINDS[kind][0]
    predictions = tmp_path / "predictions"
    nnunet.run(
        "nnUNetv2_predict", "-d", number, "-c", configuration, "-f", 0, "-tr", f"{trainer}_{BRIEF}",
        "-i", raw / "imagesTr", "-o", predictions, "--save_probabilities", "-npp", 0, "-nps", 0,
        "-device", "cpu", "--disable_tta",
    )  # fmt: skip
    with np.load(predictions / "toy_0.npz") as archive:
        assert len(archive["probabilities"]) == (2 if "regions" in kind else 3)
    nnunet.run("nnunet_nacl", "evaluate", raw / "labelsTr", predictions)
    summary = json.loads((predictions / "calibration_summary.json").read_text())
    assert summary["skipped"] == []
    assert summary["num_cases"]["evaluated"] == 6
    assert all(0 < summary["mean"][voxels]["ECE"] < 1 for voxels in ("foreground", "union"))


def check_progress(fold: Path, printed: str) -> None:
    """Of two epochs, and of the final validation with --npz."""
    logged = torch.load(fold / "checkpoint_final.pth", weights_only=False)["logging"]
    for name in VALUES:
        assert len(logged[name]) == 2
        assert np.isfinite(logged[name]).all()
    assert all(0 <= error <= 1 for name in VALUES[:2] for error in logged[name])
    assert all(abs(over) < ece + 1e-9 for over, ece in zip(logged[VALUES[2]], logged[VALUES[0]], strict=True))
    assert [len(histogram) for histogram in logged[MAX_LOGIT_HISTOGRAM]] == [70, 70]
    assert (fold / PICTURE_NAME).stat().st_size > 10_000
    assert (fold / "progress.png").is_file()
    assert printed.count("ECE over near") == 3
    summary = json.loads((fold / "validation" / "calibration_summary.json").read_text())
    assert len(summary["metric_per_case"]) == len(list((fold / "validation").glob("*.npz"))) > 0
    near, nll = summary["pooled"]["near"], summary["pooled"]["image"]["NLL_per_foreground"]
    assert (
        f"Validation: NLL per foreground voxel {nll:.4f}, ECE over near {near['ECE']:.4f} "
        f"(confidence - accuracy {near['over_confidence']:+.4f}); all" in printed
    )


def test_wrong_suffix_is_explained_by_nnunets_train_command(tmp_path: Path) -> None:
    printed = NNUNet(tmp_path).run(
        "nnUNetv2_train", 901, "2d_small", 0, "-tr", "nnUNetTrainerNACL_lambda2", fails=True, as_user=True
    )
    explained = "Trainer name nnUNetTrainerNACL_lambda2 does not know the suffix '_lambda2'. Valid suffixes"
    assert f"\nnnUNetv2_train: error: {explained}" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_validate_and_continue(preprocessed: Preprocessed) -> None:
    nnunet, number = preprocessed("labels", "2d_small")
    trainer = "nnUNetTrainerNACL_paperSchedule_4epochs_2iterations"
    fold = train(nnunet, number, "2d_small", trainer)
    shutil.rmtree(fold / "validation")
    train(nnunet, number, "2d_small", trainer, "-device", "cpu", "--val", "--npz")
    assert list((fold / "validation").glob("*.npz"))
    final = fold / "checkpoint_final.pth"
    checkpoint = torch.load(final, weights_only=False)
    checkpoint["current_epoch"] = 3  # as an interruption after the third epoch leaves it
    before = {name: values[:3] for name, values in checkpoint["logging"].items() if isinstance(values, list)}
    checkpoint["logging"] |= before
    torch.save(checkpoint, fold / "checkpoint_latest.pth")
    final.unlink()
    for file in fold.glob("training_log_*.txt"):
        file.unlink()
    train(nnunet, number, "2d_small", trainer, "-device", "cpu", "--c")
    logged = torch.load(final, weights_only=False)["logging"]
    assert {len(logged[name]) for name in (*VALUES, MAX_LOGIT_HISTOGRAM)} == {4}
    assert logged[VALUES[3]][:3] == before[VALUES[3]]
    assert np.isfinite(logged[VALUES[0]]).all()
    rates = [line.split()[-1] for line in log(fold).splitlines() if "Current learning rate" in line]
    assert rates == ["0.0001"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("configuration", ["2d_small", "3d_small"])
def test_train_on_cuda_with_autocast_and_compile(preprocessed: Preprocessed, configuration: str) -> None:
    nnunet, number = preprocessed("labels", configuration)
    trainer = f"nnUNetTrainerDiceNACL_{BRIEF}"
    assert "Using torch.compile..." in log(train(nnunet, number, configuration, trainer, "-device", "cuda"))
