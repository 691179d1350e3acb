"""Several models in one folder of figures and numbers."""

import json
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
import torch

from nnunet_nacl.logits import _compare, compare_logits, max_logit_history, mean_logits
from nnunet_nacl.nnunet import furthest_checkpoint
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM
from tests.logits.conftest import Model, change_checkpoint


def test_figures_and_numbers_read_back(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = model.copy(tmp_path / "other")
    change_checkpoint(other, lambda content: content["logging"].pop(MAX_LOGIT_HISTOGRAM))
    read: list[object] = []
    load = torch.load
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", lambda *what, **how: read.append(what) or load(*what, **how))
        without = compare_logits([model.folder, other], tmp_path / "out", names=["NACL & σ", "other"])
    assert len(read) == 2  # each checkpoint once; it was four times
    assert list(without) == ["other"]
    assert "trainers of nnunet_nacl keep them" in without["other"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "logits.json", "logits_by_class.png", "logits_by_class.svg", "max_logits.png", "max_logits.svg",
    ]  # fmt: skip
    for stem, shown in (("logits_by_class", ["NACL & σ", "other", "true: core"]), ("max_logits", ["NACL & σ"])):
        image = matplotlib.image.imread(tmp_path / "out" / f"{stem}.png")
        assert min(image.shape[:2]) > 300
        assert image[..., :3].std() > 0.05
        texts = "\n".join(ElementTree.parse(tmp_path / "out" / f"{stem}.svg").getroot().itertext())
        assert all(text in texts for text in shown)
    numbers = json.loads((tmp_path / "out" / "logits.json").read_text())
    assert numbers["fold"] == 0
    methods = numbers["methods"]
    means, history = mean_logits(model.folder, 0), max_logit_history(*furthest_checkpoint(model.folder, 0))
    for name in ("NACL & σ", "other"):
        np.testing.assert_array_equal(methods[name]["mean_logits"]["mean_absolute"], means.mean_absolute)
        assert methods[name]["mean_logits"]["cases"] == list(means.cases)
    assert methods["other"]["max_logits"] is None
    assert methods["NACL & σ"]["max_logits"]["histograms"] == history.histograms.tolist()
    assert methods["NACL & σ"]["max_logits"]["checkpoint"] == str(history.checkpoint)


def test_what_is_wrong_is_said_before_any_work(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compare, "mean_logits", lambda *_, **__: pytest.fail("this takes hours"))
    copy = model.copy(tmp_path / "copy")
    with pytest.raises(ValueError, match=r"would both be called 'NACL_2epochs_2iterations'; .* with --names\.$"):
        compare_logits([model.folder, copy], tmp_path / "out")
    with pytest.raises(ValueError, match=r"^names: expected one for each of the 1 models; got 2\.$"):
        compare_logits([model.folder], tmp_path / "out", names=["a", "b"])
    with pytest.raises(FileExistsError, match=r"copy exists\."):
        compare_logits([model.folder], tmp_path / "copy")
    with pytest.raises(FileNotFoundError, match=r"fold_1/checkpoint_final\.pth does not exist"):
        compare_logits([model.folder], tmp_path / "out", fold=1)


def test_a_class_without_voxels_is_null() -> None:
    assert _compare._plain((np.array([1.5, np.nan]), 3, "a", Path("b"))) == [[1.5, None], 3, "a", "b"]
