"""The files of fits: damaged ones, and those of earlier versions."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.posthoc import Fit, apply_folder
from nnunet_nacl.posthoc._methods import METHODS
from tests.posthoc.generated import fit_folder, probabilities, write_folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [1], "is no fit of nnunet_nacl"),
        (lambda content: {}, "is no fit of nnunet_nacl: it has no 'method'"),
        (lambda content: {**content, "method": "guess"}, "method must be one of"),
        (
            lambda content: {**content, "cases": {**content["cases"], "names": ["a"]}},
            "the list of cases is not the one",
        ),
        (lambda content: {key: content[key] for key in content if key != "held_out"}, "it has no 'held_out'"),
    ],
)
def test_a_damaged_fit(train: tuple[Path, Path], change: Any, message: str) -> None:
    fit_folder(train)
    file = train[1] / "posthoc_temperature.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}.*{re.escape(message)}"):
        Fit.read(file)
    file.write_text("{")
    with pytest.raises(ValueError, match="is not valid JSON"):
        Fit.read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Fit.read(file)


WEIGHTS = base64.b64encode(np.full(7 * 3 * 125 + 7, np.inf, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("temperature", {"temperature": "2"}, 'temperature: expected a number; got "2"'),
        ("temperature", {"temperature": [2]}, "temperature: expected a number; got [2]"),
        ("temperature", {"temperature": -1}, "expected temperature to be from 0.01 to 100.0; got -1"),
        ("temperature", {"temperature": float("nan")}, "expected finite numbers; got NaN"),
        ("temperature", {"model": {"labels": {"background": 0, "one": 1.0}}}, "model.labels.one: expected an int"),
        ("temperature", {"model": {"channels": 4}}, "model.channels: expected 3, as its labels say; got 4"),
        ("temperature", {"model": {"channels": 10**9}}, "model.channels: expected 3, as its labels say; got 1000"),
        ("temperature", {"cases": {"names": 5}}, "cases.names: expected a list; got 5"),
        ("temperature", {"sample": {"voxels": 1.5}}, "sample.voxels: expected an integer; got 1.5"),
        ("temperature", {"sample": {"voxels": -1}}, "sample.voxels: expected at least 0; got -1"),
        ("temperature", {"held_out": {"parts": [{"part": "x", "cases": [], "voxels": 1}]}}, "held_out.parts[0]: exp"),
        ("temperature", {"skipped": [1]}, "skipped[0]: expected a JSON object; got 1"),
        ("temperature", {"bias": {}}, "bias: expected parameters and NLL, or error"),
        ("temperature", {"versions": []}, "versions: expected a JSON object; got []"),
        ("classwise", {"temperatures": [1, -1, 1]}, "expected temperatures to be from 0.01 to 100.0; got -1"),
        ("classwise", {"temperatures": [1, 1]}, "expected temperatures to be a list of 3; got 2"),
        ("classwise", {"shared_temperature": 0}, "expected shared_temperature to be from 0.01 to 100.0; got 0"),
        ("classwise", {"shared_by": [7]}, "expected shared_by to be of the channels 0 to 2, each once; got [7]"),
        ("vector", {"weights": [1, float("inf"), 1]}, "expected finite numbers; got Infinity"),
        ("vector", {"biases": {"0": 1}}, "biases: expected a list; got {"),
        ("irm", {"values": [[0.5, float("nan"), 1]]}, "expected finite numbers; got NaN"),
        ("irm", {"thresholds": [[0.0, 1.0]], "values": [[1.0, 0.0]]}, "expected values to be lists of numbers that"),
        ("irm", {"thresholds": [[0.0, 1.0]], "values": [[0.0, 9.0]]}, "expected values from 0 to 1; got 0.0 to 9.0"),
        ("irm", {"thresholds": [[0.0, 1.0]], "values": [[0.0]]}, "expected values to be a list of 2; got 1"),
        ("irm", {"thresholds": [[]], "values": [[]]}, "lists of at least one number"),
        ("irm", {"thresholds": [0.0, 1.0]}, "thresholds[0]: expected a list; got 0.0"),
        ("local", {"weights": "AAAA"}, "expected weights to"),
        ("local", {"weights": "?"}, "expected weights to be float32 in Base64"),
        ("local", {"weights": WEIGHTS}, "expected weights to be finite"),
        ("local", {"image_channels": -1}, "image_channels: expected at least 0; got -1"),
        ("local", {"image_channels": 10**12}, "expected weights to hold"),
    ],
)  # fmt: skip
def test_a_fit_is_checked_as_a_whole(
    fitted: dict[str, dict[str, Any]], method: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "fit.json"
    content = dict(fitted[method])
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(content[key], dict)
        content[key] = {**content[key], **value} if both and value else value
    file.write_text(json.dumps(fitted[method]))
    Fit.read(file)
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError) as raised:
        Fit.read(file)
    assert str(raised.value).startswith(str(file))
    assert message in str(raised.value)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The content of a fit of each method."""
    train = write_folder(tmp_path_factory.mktemp("fitted"), "ab")
    for method in METHODS:
        fit_folder(train, method=method, **({"num_voxels": 300} if method == "local" else {}))
    return {method: json.loads((train[1] / f"posthoc_{method}.json").read_text()) for method in METHODS}


def test_fits_of_earlier_versions(tmp_path: Path) -> None:
    """Without a margin local temperatures reach everywhere, and nothing is known of a bias."""
    train, test = write_folder(tmp_path / "train", "abc"), write_folder(tmp_path / "test", "x", first=20)
    fit_folder(train, method="local", voxels="image", num_voxels=300)
    file = train[1] / "posthoc_local.json"
    content = json.loads(file.read_text())
    assert content["margin_mm"] is None
    apply_folder(file, test[1], tmp_path / "now")
    del content["margin_mm"], content["bias"], content["settings"]["margin_mm"]
    file.write_text(json.dumps(content))
    apply_folder(file, test[1], tmp_path / "then")
    assert np.array_equal(probabilities(tmp_path / "now", "x"), probabilities(tmp_path / "then", "x"))

    fit_folder(train, voxels="union")
    file = train[1] / "posthoc_temperature.json"
    content = json.loads(file.read_text())
    del content["bias"], content["settings"]["margin_mm"]
    file.write_text(json.dumps(content))
    assert "Voxels chosen by their label favour under-confident models." in Fit.read(file).summary()
    apply_folder(file, test[1], tmp_path / "union")
