"""Several models in one folder of figures and numbers, by the command."""

from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import pandas as pd
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.paper.logits import max_logit_history, mean_logits
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM
from tests.conftest import TRAINER
from tests.paper.logits.conftest import change_checkpoint, copy_of

NAME = TRAINER.removeprefix("nnUNetTrainer")


def test_figures_and_numbers_read_back(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = copy_of(model, tmp_path).rename(tmp_path / "nnUNetTrainer_5epochs__nnUNetPlans__2d_small")
    change_checkpoint(other, lambda content: content["logging"].pop(MAX_LOGIT_HISTOGRAM))
    out = tmp_path / "out"
    out.mkdir()  # an empty folder may be there
    assert main(["paper", "logits", str(model), str(other), "-o", str(out), "-device", "cpu"]) == 0
    assert "5epochs is not in max_logits: " in capsys.readouterr().err
    assert main(["paper", "logits", str(model), "-f", "7", "-o", str(tmp_path / "other"), "-device", "cpu"]) == 1
    assert "fold_7" in capsys.readouterr().err
    for stem, shown in (("logits_by_class", [NAME, "5epochs", "true: core", "shell"]), ("max_logits", [NAME])):
        image = matplotlib.image.imread(out / f"{stem}.png")
        assert min(image.shape[:2]) > 300
        assert image[..., :3].std() > 0.05
        texts = "\n".join(ElementTree.parse(out / f"{stem}.svg").getroot().itertext())
        assert all(text in texts for text in shown)
    written = pd.read_csv(out / "logits_by_class.csv", index_col="method")
    for name, folder in ((NAME, model), ("5epochs", other)):
        pd.testing.assert_frame_equal(written.loc[name].reset_index(drop=True), mean_logits(folder)[0])
    history = pd.read_csv(out / "max_logits.csv", index_col="epoch").rename(columns=str)
    assert set(history.pop("method")) == {NAME}
    pd.testing.assert_frame_equal(history, max_logit_history(model, 0).rename(columns=str))
