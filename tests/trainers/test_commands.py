"""Our trainers in nnU-Net's own commands, as users run them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from tests.conftest import KINDS, TRAINER, TRAINER_OF_REGIONS, NNUNet, Planned, Preprocessed, Trained

VALUES = ("ece", "over_confidence", *MAX_LOGIT_QUANTILES)


def log(fold: Path) -> str:
    return "\n".join(file.read_text() for file in sorted(fold.glob("training_log_*.txt")))


@pytest.mark.parametrize(
    ("kind", "configuration", "trainer"),
    [
        ("labels", "2d_small", TRAINER),
        ("regions", "3d_small", TRAINER_OF_REGIONS),
        pytest.param("regions_ignore", "2d_small", "nnUNetTrainerSVLS_1epochs_2iterations", marks=pytest.mark.slow),
    ],
)
def test_train_predict_evaluate(
    planned: Planned, trained: Trained, predicted: Trained, tmp_path: Path, kind: str, configuration: str, trainer: str
) -> None:
    nnunet, _ = planned(kind)
    fold = trained(kind, configuration, trainer) / "fold_0"
    printed = log(fold)
    assert f"nnunet_nacl trains with {'SVLS' if 'SVLS' in trainer else 'NACL'}Loss(" in printed
    assert f"ignore_label={3 if 'ignore' in kind else None}, regions={'regions' in kind}" in printed
    assert ("MemoryEfficientSoftDiceLoss" in printed) == ("Dice" in trainer)
    check_progress(fold, printed, epochs=2 if trainer == TRAINER else 1)
    predictions, output = predicted(kind, configuration, trainer), tmp_path / "summary.json"
    labels = nnunet.folder / "raw" / KINDS[kind][0] / "labelsTr"
    nnunet.run("nnunet_nacl", "evaluate", labels, predictions, "-o", output)
    summary = json.loads(output.read_text())
    assert summary["num_cases"]["evaluated"] == 6
    assert all(0 < summary["mean"][voxels]["ECE"] < 1 for voxels in ("foreground", "union"))


def check_progress(fold: Path, printed: str, epochs: int) -> None:
    """Of the epochs, and of the final validation with --npz."""
    logged = torch.load(fold / "checkpoint_final.pth", weights_only=False)["logging"]
    ece, over, *_ = values = np.array([logged[name] for name in VALUES])
    assert values.shape == (7, epochs)
    assert np.isfinite(values).all()
    assert ((ece >= 0) & (np.abs(over) < ece + 1e-9)).all()
    assert [len(histogram) for histogram in logged[MAX_LOGIT_HISTOGRAM]] == [70] * epochs
    assert (fold / "calibration_progress.png").stat().st_size > 10_000
    assert printed.count("where the foreground probability is above 0.05") == epochs
    summary = json.loads((fold / "validation" / "calibration_summary.json").read_text())
    assert len(summary["metric_per_case"]) == len(list((fold / "validation").glob("*.npz"))) > 0
    near, nll = summary["pooled"]["near"], summary["pooled"]["image"]["NLL_per_foreground"]
    assert (
        f"Validation: NLL per foreground voxel {nll:.4f}, ECE over near {near['ECE']:.4f} "
        f"(confidence - accuracy {near['over_confidence']:+.4f}); all" in printed
    )


@pytest.mark.slow
def test_wrong_suffix_is_explained_by_nnunets_train_command(tmp_path: Path) -> None:
    printed = NNUNet(tmp_path).run("nnUNetv2_train", 901, "2d_small", 0, "-tr", "nnUNetTrainerNACL_lambda2", fails=True)
    explained = "Trainer name nnUNetTrainerNACL_lambda2 does not know the suffix '_lambda2'. Valid suffixes"
    assert any(line.startswith(f"nnUNetv2_train: error: {explained}") for line in printed.splitlines())
    assert "Traceback" not in printed


@pytest.mark.slow
def test_it_goes_on_after_an_interruption(preprocessed: Preprocessed) -> None:
    nnunet, number = preprocessed("labels", "2d_small")
    trainer = "nnUNetTrainerNACL_paperSchedule_4epochs_2iterations"
    command = ["nnUNetv2_train", number, "2d_small", 0, "-tr", trainer, "-device", "cpu"]
    nnunet.run(*command)
    (fold,) = (nnunet.folder / "results").glob(f"*/{trainer}__nnUNetPlans__2d_small/fold_0")
    final = fold / "checkpoint_final.pth"
    checkpoint = torch.load(final, weights_only=False)
    before = {name: values[:3] for name, values in checkpoint["logging"].items() if isinstance(values, list)}
    checkpoint["logging"] |= before
    checkpoint["current_epoch"] = 3  # as an interruption after the third epoch leaves it
    torch.save(checkpoint, fold / "checkpoint_latest.pth")
    for file in (final, *fold.glob("training_log_*.txt")):
        file.unlink()
    nnunet.run(*command, "--c")
    logged = torch.load(final, weights_only=False)["logging"]
    assert {len(logged[name]) for name in (*VALUES, MAX_LOGIT_HISTOGRAM)} == {4}
    assert logged[VALUES[3]][:3] == before[VALUES[3]]
    assert np.isfinite(logged[VALUES[0]]).all()
    assert [line.split()[-1] for line in log(fold).splitlines() if "Current learning rate" in line] == ["0.0001"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("configuration", ["2d_small", "3d_small"])
def test_train_on_cuda_with_autocast_and_compile(preprocessed: Preprocessed, configuration: str) -> None:
    nnunet, number = preprocessed("labels", configuration)
    trainer = TRAINER_OF_REGIONS
    nnunet.run("nnUNetv2_train", number, configuration, 0, "-tr", trainer, "-device", "cuda")
    (fold,) = (nnunet.folder / "results").glob(f"*/{trainer}__nnUNetPlans__{configuration}/fold_0")
    assert "Using torch.compile..." in log(fold)
