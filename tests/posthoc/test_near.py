"""The voxel set near, and what voxels chosen by their label do to a fit."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scipy.ndimage import distance_transform_edt

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.nnunet import BLOCK, ArrayChannels, Predictions
from nnunet_nacl.posthoc import VOXELS, Fit, LocalTemperature, apply_folder
from nnunet_nacl.posthoc import fit as fit_predictions
from nnunet_nacl.posthoc._near import near_prediction
from tests.posthoc.generated import ENDING, SPACING, description, plans, structure_case, write_case

SETTINGS = Settings(voxels=("near", "image"))


def make(
    folder: Path, names: str, *, temperature: float = 2.0, first: int = 0, regions: bool = False
) -> tuple[Path, Path]:
    references, predictions = folder / "labels", folder / "predictions"
    references.mkdir(parents=True)
    predictions.mkdir()
    (predictions / "dataset.json").write_text(description(regions))
    (predictions / "plans.json").write_text(plans())
    for number, name in enumerate(names):
        p, y = structure_case(temperature, first + number, regions)
        write_case(references, predictions, name, p, y, regions)
    return references, predictions


def near_by_scipy(foreground: np.ndarray, margin_mm: float = 5.0) -> np.ndarray:
    return distance_transform_edt(~(foreground > 0.05), sampling=SPACING) <= margin_mm


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("regions", [False, True])
def test_near_against_scipy(regions: bool, dtype: type) -> None:
    p = np.random.default_rng(0).uniform(0.0, 0.04, (2, 9, 100, 150)).astype(dtype)
    assert p[0].size > 2 * BLOCK
    p[1, 2, 10, 20] = p[1, 8, 99, 149] = 0.7
    p[0, 5, 50, 0] = 0.6
    foreground = p.max(0)
    if not regions:  # the second channel must not matter: what is not background is foreground
        p = np.stack([1 - foreground, np.zeros_like(foreground)])
    for margin_mm in (5.0, 0.0):
        found = near_prediction(ArrayChannels(p), regions=regions, spacing_mm=SPACING, margin_mm=margin_mm)
        assert np.array_equal(found, near_by_scipy(foreground, margin_mm))
        assert found.sum() == 3 or margin_mm


def test_nothing_and_everything_is_near() -> None:
    p = np.array([np.ones((2, 3, 4)), np.zeros((2, 3, 4))])
    assert not near_prediction(ArrayChannels(p), regions=False, spacing_mm=SPACING, margin_mm=5).any()
    assert near_prediction(ArrayChannels(p[::-1].copy()), regions=False, spacing_mm=SPACING, margin_mm=0).all()


@pytest.mark.parametrize("regions", [False, True])
def test_a_known_temperature_and_the_sets(tmp_path: Path, regions: bool) -> None:
    """Labels of a true posterior, predictions of T = 2: near and image find it, sets chosen by labels do not."""
    folders = make(tmp_path, "abcdefgh", regions=regions)
    found = {
        v: fit_predictions(Predictions.of_folder(*folders), voxels=v, output=tmp_path / f"{v}.json") for v in VOXELS
    }
    temperatures = {v: fit.calibrator.parameters()["temperature"] for v, fit in found.items()}
    assert temperatures["near"] == pytest.approx(2, abs=0.05)
    assert temperatures["image"] == pytest.approx(2, abs=0.05)
    assert temperatures["foreground"] > 2.1
    assert temperatures["union"] > 2.4
    assert fit_predictions(Predictions.of_folder(*folders)).calibrator == found["near"].calibrator
    assert found["near"].bias is None
    assert "favour" not in found["near"].summary()
    for voxels in ("union", "foreground"):
        fit = found[voxels]
        assert fit.bias is not None
        assert fit.bias["parameters"] == {"temperature": temperatures["near"]}
        assert fit.bias["NLL"]["before"] == found["near"].fitted["before"]["NLL"]
        assert fit.bias["NLL"]["near"] == found["near"].fitted["after"]["NLL"] < fit.bias["NLL"]["this"]
        assert json.loads((tmp_path / f"{voxels}.json").read_text())["bias"] == fit.bias
        assert Fit.read(tmp_path / f"{voxels}.json") == fit
        assert (
            f"Fitted to the {voxels}: T = {temperatures[voxels]:.2f}. Voxels chosen by their label favour "
            f"under-confident models; over near T = {temperatures['near']:.2f}.\nNLL over near: 0." in fit.summary()
        )


@pytest.mark.parametrize("method", ["classwise", "irm"])
def test_the_bias_of_other_methods(tmp_path: Path, method: str) -> None:
    folders = make(tmp_path, "abcd")
    fit = fit_predictions(Predictions.of_folder(*folders), method=method, voxels="union")
    assert fit.bias is not None
    assert (
        fit.bias["parameters"]
        == fit_predictions(Predictions.of_folder(*folders), method=method).calibrator.parameters()
    )
    assert fit.bias["NLL"]["near"] < fit.bias["NLL"]["this"]
    assert re.search(
        r"union: T = [\d., ]+\. Voxels chosen.*; over near T = [\d., ]+\.\nNLL over near: 0", fit.summary()
    )


def test_a_bias_that_cannot_be_told(tmp_path: Path) -> None:
    """All that is missed is far from what the model sees."""
    references, predictions = make(tmp_path, "")
    for name in "ab":
        y = np.zeros((6, 40, 60), int)
        y[:, 3:6, 3:6] = 1
        p = np.stack([np.where(y == 1, 0.99, 0.02), np.where(y == 1, 0.005, 0.97), np.where(y == 1, 0.005, 0.01)])
        p[:, :, 10:] = np.array([0.98, 0.01, 0.01])[:, None, None, None]
        p[:, :, :10] = np.array([0.98, 0.01, 0.01])[:, None, None, None]
        p[:, :, 35:, 50:] = np.array([0.1, 0.8, 0.1])[:, None, None, None]
        y[:, 35:, 50:] = 1
        y[0, 3, 3] = 2
        write_case(references, predictions, name, p.astype(np.float32), y, regions=False)
    fit = fit_predictions(Predictions.of_folder(references, predictions), voxels="union", method="temperature")
    assert fit.bias is not None
    assert "are predicted rightly" in fit.bias["error"]
    assert "under-confident models; near cannot be fitted to: all " in fit.summary()


@pytest.mark.parametrize("regions", [False, True])
def test_the_sample_is_near(tmp_path: Path, regions: bool) -> None:
    """All voxels of it, without those that are ignored; for regions, what is near any of them."""
    references, predictions = make(tmp_path, "ab", regions=regions)
    content = json.loads((predictions / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    expected = {5.0: 0, 1.0: 0}
    for number, name in enumerate("ab"):
        p, y = structure_case(2.0, number, regions)
        y[:4] = 3
        write_case(references, predictions, name, p, y, regions)
        for margin_mm in expected:
            near = near_by_scipy(p.max(0) if regions else 1 - p[0], margin_mm)
            assert 0.02 < near.mean() < 0.8
            expected[margin_mm] += int((near & (y != 3)).sum())
    for margin_mm, count in expected.items():
        fit = fit_predictions(Predictions.of_folder(references, predictions), margin_mm=margin_mm)
        assert fit.sample["voxels"] == fit.sample["available"] == count
        assert fit.settings["margin_mm"] == margin_mm
        assert f"of {count:,} voxels (near) of 2 cases" in fit.summary()
    if not regions:
        whole = evaluate(
            Predictions.of_folder(references, predictions), settings=Settings(voxels=("near",), margin_mm=1.0)
        )
        figures = {metric: pytest.approx(whole.pooled("near")[metric], abs=1e-6) for metric in ("NLL", "ECE")}
        assert fit.fitted["before"] == figures


def test_held_out_figures_are_pooled(tmp_path: Path) -> None:
    """Two cases, one over- and one under-confident by as much: each is off, both together are not."""
    references, predictions = make(tmp_path, "")
    right = np.array([[[[0.75]]], [[[0.25]]], [[[0.0]]]])
    for name, share in (("a", 0.95), ("b", 0.55)):
        y = (np.arange(2000) >= 2000 * share).astype(int).reshape(2, 10, 100)
        write_case(references, predictions, name, np.broadcast_to(right, (3, *y.shape)).astype(np.float32), y, False)
    held_out = fit_predictions(Predictions.of_folder(references, predictions)).held_out
    assert [part["before"]["ECE"] for part in held_out["parts"]] == pytest.approx([0.2, 0.2])
    assert held_out["before"]["ECE"] == pytest.approx(0, abs=1e-6)
    parts = [part["after"]["NLL"] for part in held_out["parts"]]
    assert held_out["after"]["NLL"] == pytest.approx(np.mean(parts))


def probabilities(folder: Path, name: str) -> np.ndarray:
    with np.load(folder / f"{name}.npz") as archive:
        return archive["probabilities"]


@pytest.mark.parametrize("regions", [False, True])
def test_local_temperatures_reach_as_far_as_near(tmp_path: Path, regions: bool) -> None:
    """Beyond, where the network has seen nothing, it is one temperature; nothing gets worse, near gets better."""
    train = make(tmp_path / "train", "abc", regions=regions)
    test = make(tmp_path / "test", "xy", first=20, regions=regions)
    fits = {
        method: fit_predictions(Predictions.of_folder(*train), method=method, num_voxels=6_000)
        for method in ("local", "temperature")
    }
    local = fits["local"].calibrator
    assert isinstance(local, LocalTemperature)
    assert local.margin_mm == 5.0
    assert fits["local"].settings["voxels"] == "near"
    assert "margin_mm 5" in fits["local"].summary()
    assert Fit.read(train[1] / "posthoc_local.json") == fits["local"]
    results = {"before": evaluate(Predictions.of_folder(*test), settings=SETTINGS)}
    for method in fits:
        apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / method)
        results[method] = evaluate(Predictions.of_folder(test[0], tmp_path / method), settings=SETTINGS)
    for name in "xy":
        p = probabilities(test[1], name)
        near = near_by_scipy(p.max(0) if regions else 1 - p[0])
        assert 0.1 < near.mean() < 0.8
        by_place, by_one = (probabilities(tmp_path / method, name) for method in fits)
        assert by_place[:, ~near] == pytest.approx(by_one[:, ~near], rel=1e-5)
        assert abs(by_place - by_one)[:, near].max() > 1e-3
        labels = sitk.GetArrayFromImage(sitk.ReadImage(str(test[0] / f"{name}{ENDING}")))
        truth = np.stack([labels > 0, labels > 1]) if regions else np.arange(3)[:, None, None, None] == labels
        before, after = (nll_of(q, truth)[~near].mean() for q in (p, by_place))
        assert after < before + 1e-5
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    assert nll["local"] < nll["before"] - 0.05
    # One temperature is right everywhere: all that thousands of weights can find in 6,000 voxels is noise.
    assert nll["local"] < 1.03 * nll["temperature"]


def nll_of(p: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Of each voxel, whether p are classes or regions: what is true has p, what is not has 1 - p (regions)."""
    if len(truth) == 3:
        return -np.log(np.maximum((p * truth).sum(0), 1e-30))
    return -np.log(np.maximum(np.where(truth, p, 1 - p), 1e-30)).mean(0)


def test_fits_of_earlier_versions(tmp_path: Path) -> None:
    """Without a margin local temperatures reach everywhere, and nothing is known of a bias."""
    train, test = make(tmp_path / "train", "abc"), make(tmp_path / "test", "x", first=20)
    fit_predictions(Predictions.of_folder(*train), method="local", voxels="image", num_voxels=6000)
    file = train[1] / "posthoc_local.json"
    content = json.loads(file.read_text())
    assert content["margin_mm"] is None
    apply_folder(file, test[1], tmp_path / "now")
    del content["margin_mm"], content["bias"], content["settings"]["margin_mm"]
    file.write_text(json.dumps(content))
    apply_folder(file, test[1], tmp_path / "then")
    assert np.array_equal(probabilities(tmp_path / "now", "x"), probabilities(tmp_path / "then", "x"))

    fit_predictions(Predictions.of_folder(*train), voxels="union")
    file = train[1] / "posthoc_temperature.json"
    content = json.loads(file.read_text())
    del content["bias"], content["settings"]["margin_mm"]
    file.write_text(json.dumps(content))
    assert "Voxels chosen by their label favour under-confident models." in Fit.read(file).summary()
    apply_folder(file, test[1], tmp_path / "union")


def test_which_sets_a_method_takes(tmp_path: Path) -> None:
    train = make(tmp_path, "ab")
    for method in ("temperature", "classwise", "irm", "local"):
        assert (
            fit_predictions(Predictions.of_folder(*train), method=method, num_voxels=2000).settings["voxels"] == "near"
        )
    assert fit_predictions(Predictions.of_folder(*train), method="vector").settings["voxels"] == "image"
    for method, voxels, possible in (("vector", "near", "image"), ("local", "union", "near or image")):
        with pytest.raises(ValueError, match=f"{method} scaling .*; voxels must be {possible}; got {voxels}"):
            fit_predictions(Predictions.of_folder(*train), method=method, voxels=voxels)  # type: ignore[arg-type]
    for margin_mm in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"margin_mm must be at least 0 and finite; got {margin_mm}"):
            fit_predictions(Predictions.of_folder(*train), margin_mm=margin_mm)
    fit_predictions(Predictions.of_folder(*train), method="local", num_voxels=2000)
    file = train[1] / "posthoc_local.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"margin_mm": -2}))
    with pytest.raises(ValueError, match=r"is no fit of nnunet_nacl: margin_mm must be at least 0 and finite; got -2"):
        Fit.read(file)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(folder) for folder in make(tmp_path, "abcd")]
    assert main(["calibrate", "fit", *folders, "--margin_mm", "3"]) == 0
    assert "voxels (near) of 4 cases" in capsys.readouterr().out
    content = json.loads((tmp_path / "predictions" / "posthoc_temperature.json").read_text())
    assert (content["settings"]["voxels"], content["settings"]["margin_mm"]) == ("near", 3.0)
    assert main(["calibrate", "fit", *folders, "--voxels", "union"]) == 0
    printed = capsys.readouterr().out
    assert re.search(
        r"Fitted to the union: T = [345]\.\d\d\. Voxels chosen by .*; over near T = (1\.9|2\.0)\d\.", printed
    )


def test_a_model_that_sees_nothing(tmp_path: Path) -> None:
    references, predictions = make(tmp_path, "")
    p, y = structure_case(2.0)
    p[1:], p[0] = 0.01, 0.98
    write_case(references, predictions, "a", p, y, regions=False)
    with pytest.raises(ValueError, match="No voxel in the set near in any of 1 cases"):
        fit_predictions(Predictions.of_folder(references, predictions))
    assert not list(predictions.glob(f"*{ENDING}.json"))
