"""The files of fits: damaged ones, and those of earlier versions."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnunet_nacl.posthoc import Fit, apply_folder
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
