"""Several models in one folder of figures and numbers, by the command."""

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import pandas as pd
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.nnunet import build_predictor
from nnunet_nacl.paper.logits import _measures, compare_logits, max_logit_history, mean_logits
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM
from tests.conftest import TRAINER
from tests.paper.logits.conftest import change_checkpoint, copy_of

NAME = TRAINER.removeprefix("nnUNetTrainer")


def test_figures_and_numbers_read_back(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    predictors: list[weakref.ref[Any]] = []

    def build(folder: Path, content: Any, device: str) -> Any:
        assert device == "cpu"
        gc.collect()
        assert sum(one() is not None for one in predictors) <= 1  # of many models, too
        opened.append(folder)
        predictor = build_predictor(folder, content, device)
        predictors.append(weakref.ref(predictor))
        return predictor

    monkeypatch.setattr(_measures, "build_predictor", build)
    other = copy_of(model, tmp_path).rename(tmp_path / "nnUNetTrainer_5epochs__nnUNetPlans__2d_small")
    change_checkpoint(other, lambda content: content["logging"].pop(MAX_LOGIT_HISTOGRAM))
    out = tmp_path / "out"
    out.mkdir()  # an empty folder may be there
    assert main(["paper", "logits", str(model), str(other), "-o", str(out), "-device", "cpu"]) == 0
    assert "5epochs is not in max_logits: " in capsys.readouterr().err
    assert opened == [model, other]
    for stem, shown in (("logits_by_class", [NAME, "5epochs", "true: core", "shell"]), ("max_logits", [NAME])):
        image = matplotlib.image.imread(out / f"{stem}.png")
        assert min(image.shape[:2]) > 300
        assert image[..., :3].std() > 0.05
        texts = "\n".join(ElementTree.parse(out / f"{stem}.svg").getroot().itertext())
        assert all(text in texts for text in shown)
    written = pd.read_csv(out / "logits_by_class.csv", index_col="method")
    for name, folder in ((NAME, model), ("5epochs", other)):
        pd.testing.assert_frame_equal(written.loc[name].reset_index(drop=True), mean_logits(folder))
    history = pd.read_csv(out / "max_logits.csv", index_col="epoch").rename(columns=str)
    assert set(history.pop("method")) == {NAME}
    pd.testing.assert_frame_equal(history, max_logit_history(model, 0).rename(columns=str))


def test_models_that_cannot_be_compared(model: Path, tmp_path: Path) -> None:
    """Of other labels, or on another grid, which has other voxels."""
    raw = model.parents[2] / "raw" / model.parent.name
    images = {}
    for part, ending in (("images", "_0000.nii.gz"), ("labels", ".nii.gz")):
        images[part] = tmp_path / part
        images[part].mkdir()
        shutil.copy(raw / f"{part}Tr" / f"toy_3{ending}", images[part])
    others = [copy_of(model, tmp_path).rename(tmp_path / name) for name in ("names", "grid")]
    described = json.loads((model / "dataset.json").read_text())
    described["labels"] = {"background": 0, "shell": 1, "kernel": 2}
    (others[0] / "dataset.json").write_text(json.dumps(described))
    plans = json.loads((model / "plans.json").read_text())
    plans["configurations"]["2d"]["spacing"] = [3.0, 3.0]
    (others[1] / "plans.json").write_text(json.dumps(plans))
    for other in others:
        with pytest.raises(ValueError, match=rf"NACL.* and {other.name} differ in their classes, or show different"):
            compare_logits([model, other], tmp_path / "out", **images)
    assert not (tmp_path / "out").exists()


def test_test_images_and_folds_by_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy, out = copy_of(model, tmp_path), tmp_path / "out"
    shutil.copytree(copy / "fold_0", copy / "fold_1")
    raw = model.parents[2] / "raw" / model.parent.name
    for part, ending in (("images", "_0000.nii.gz"), ("labels", ".nii.gz")):
        (tmp_path / part).mkdir()
        shutil.copy(raw / f"{part}Tr" / f"toy_3{ending}", tmp_path / part)
    images = ["-i", str(tmp_path / "images"), "-gt", str(tmp_path / "labels")]
    assert main(["paper", "logits", str(copy), "-f", "0", "1", *images, "-o", str(out)]) == 0
    capsys.readouterr()
    assert set(pd.read_csv(out / "max_logits.csv")["method"]) == {f"{NAME}, fold 0", f"{NAME}, fold 1"}
    written = pd.read_csv(out / "logits_by_class.csv")
    assert set(written["method"]) == {NAME}
    of_all_classes = written["voxels"].groupby(written["logit"]).sum()
    assert set(of_all_classes) == {2 * 20 * 24 * 24}  # an image, by two folds
    assert main(["paper", "logits", str(copy), *images[:2], "-o", str(tmp_path / "other")]) == 1
    assert "images and labels go together." in capsys.readouterr().err
