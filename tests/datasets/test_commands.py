"""The commands convert and split."""

import json
from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from tests.datasets.conftest import write_image


def test_convert_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("raw", "preprocessed"):
        monkeypatch.setenv(f"nnUNet_{part}", str(tmp_path / part))
    for number in range(8):
        case = tmp_path / "kits" / "data" / f"case_{number:05}"
        write_image(case / "imaging.nii.gz")
        write_image(case / "segmentation.nii.gz", [0, 1, 2])
    assert main(["paper", "convert", "kits19", str(tmp_path / "kits"), "-d", "19"]) == 0
    assert main(["paper", "split", "-d", "19", "--test", "25%", "-o", "119", "--val", "1"]) == 0
    new = next((tmp_path / "raw").glob("Dataset119_*"))
    assert len(list((new / "labelsTs").iterdir())) == 2
    (fold,) = json.loads((tmp_path / "preprocessed" / new.name / "splits_final.json").read_text())
    assert (len(fold["train"]), len(fold["val"])) == (5, 1)
    assert capsys.readouterr().out.count("Wrote ") == 3
    assert main(["paper", "convert", "kits19", str(tmp_path / "nowhere"), "-d", "20"]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [[], ["--test", "3"], ["--val", "1", "-o", "7"], ["--val", "1", "--folds", "5"]])
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["paper", "split", "-d", "19", *wrong])
    assert "usage: nnunet_nacl paper split" in capsys.readouterr().err
