"""What voxels chosen by their label do to a fit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.posthoc import VOXELS, Fit
from tests.posthoc.generated import fit_folder, write_case, write_folder


@pytest.mark.parametrize("regions", [False, True])
def test_a_known_temperature_and_the_sets(tmp_path: Path, regions: bool) -> None:
    """Labels of a true posterior, predictions of T = 2: near and image find it, sets chosen by labels do not."""
    folders = write_folder(tmp_path, "abcdefgh", regions=regions, structure=True, temperature=2)
    fits = {v: fit_folder(folders, voxels=v, output=tmp_path / f"{v}.json") for v in VOXELS}
    temperatures = {v: fit.calibrator.parameters()["temperature"] for v, fit in fits.items()}
    assert temperatures["near"] == pytest.approx(2, abs=0.05)
    assert temperatures["image"] == pytest.approx(2, abs=0.05)
    assert temperatures["foreground"] > 2.1
    assert temperatures["union"] > 2.4
    assert fit_folder(folders).calibrator == fits["near"].calibrator
    assert fits["near"].bias is None
    assert "favour" not in fits["near"].summary()
    for voxels in ("union", "foreground"):
        fit = fits[voxels]
        assert fit.bias is not None
        assert fit.bias.near == fits["near"].calibrator
        assert fit.bias.nll_before == fits["near"].fitted.before.NLL
        assert fit.bias.nll_near == fits["near"].fitted.after.NLL < fit.bias.nll_this
        assert json.loads((tmp_path / f"{voxels}.json").read_text())["bias"] == {
            "parameters": {"temperature": temperatures["near"]},
            "NLL": {"before": fit.bias.nll_before, "this": fit.bias.nll_this, "near": fit.bias.nll_near},
        }
        assert Fit.read(tmp_path / f"{voxels}.json") == fit
        assert (
            f"Fitted to the {voxels}: T = {temperatures[voxels]:.2f}. Voxels chosen by their label favour "
            f"under-confident models; over near T = {temperatures['near']:.2f}.\nNLL over near: 0." in fit.summary()
        )


@pytest.mark.parametrize("method", ["classwise", "irm"])
def test_the_bias_of_other_methods(tmp_path: Path, method: str) -> None:
    folders = write_folder(tmp_path, "abcd", structure=True, temperature=2)
    fit = fit_folder(folders, method=method, voxels="union")
    assert fit.bias is not None
    assert fit.bias.near == fit_folder(folders, method=method).calibrator
    assert fit.bias.nll_near < fit.bias.nll_this
    assert re.search(
        r"union: T = [\d., ]+\. Voxels chosen.*; over near T = [\d., ]+\.\nNLL over near: 0", fit.summary()
    )


def test_a_bias_that_cannot_be_told(tmp_path: Path) -> None:
    """All that is missed is far from what the model sees."""
    ground_truth, predictions = write_folder(tmp_path, "")
    for name in "ab":
        y = np.zeros((6, 40, 60), int)
        y[:, 3:6, 3:6] = 1
        p = np.stack([np.where(y == 1, 0.99, 0.02), np.where(y == 1, 0.005, 0.97), np.where(y == 1, 0.005, 0.01)])
        p[:, :, 10:] = np.array([0.98, 0.01, 0.01])[:, None, None, None]
        p[:, :, :10] = np.array([0.98, 0.01, 0.01])[:, None, None, None]
        p[:, :, 35:, 50:] = np.array([0.1, 0.8, 0.1])[:, None, None, None]
        y[:, 35:, 50:] = 1
        y[0, 3, 3] = 2
        write_case(ground_truth, predictions, name, p.astype(np.float32), y, regions=False)
    fit = fit_folder((ground_truth, predictions), voxels="union")
    assert fit.bias is not None
    assert "are predicted correctly" in fit.bias.error
    assert json.loads((predictions / "posthoc_temperature.json").read_text())["bias"] == {"error": fit.bias.error}
    assert repr(Fit.read(predictions / "posthoc_temperature.json")) == repr(replace(fit, file=None))  # NaN is not NaN
    assert "under-confident models; near cannot be fitted to: all " in fit.summary()
