"""The page docs/benchmark.md: converters that nnU-Net has, with the arguments that they take, and one by hand."""

import json
import re
import subprocess
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from nnunetv2.utilities.utils import get_filenames_of_train_images_and_targets

from nnunet_nacl.paper.datasets import CONVERTERS

PAGE = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text()


def source(module: str) -> str:
    spec = find_spec(f"nnunetv2.dataset_conversion.{module}")
    assert spec is not None, module
    return Path(str(spec.origin)).read_text()


def test_nnunets_converters_take_these_arguments() -> None:
    commands = re.findall(r"`python -m nnunetv2\.dataset_conversion\.(\w+) ([^`]+)`", PAGE)
    assert [module for module, _ in commands] == [
        "Dataset027_ACDC", "Dataset218_Amos2022_task1", "Dataset219_Amos2022_task2", "Dataset220_KiTS2023",
    ]  # fmt: skip
    for module, words in commands:
        first, *_ = words.split()
        assert f'"{"-i" if first == "-i" else "input_folder"}"' in source(module).replace("'", '"'), module
    assert entry_points(group="console_scripts", name="nnUNetv2_convert_MSD_dataset")
    for module in ("Dataset137_BraTS21", "Dataset042_BraTS18", "Dataset043_BraTS19"):
        assert module in PAGE
        assert re.search(r"^    brats_data_dir = ", source(module), re.MULTILINE)
        assert "argparse" not in source(module)
    assert "brats19_regions" in CONVERTERS


def test_btcv_by_hand(nnunet: Path, tmp_path: Path) -> None:
    downloaded = tmp_path / "Abdomen" / "RawData" / "Training"
    for part in ("img", "label"):
        (downloaded / part).mkdir(parents=True)
        for number in ("0001", "0040"):
            (downloaded / part / f"{part}{number}.nii.gz").write_text(part)
    (block,) = re.findall(r"```bash\n(btcv=.*?)```", PAGE, re.DOTALL)
    subprocess.run(["bash", "-euc", block], cwd=tmp_path, check=True)
    folder = nnunet / "raw" / "Dataset013_BTCV"
    found = get_filenames_of_train_images_and_targets(str(folder))
    assert list(found) == ["BTCV_0001", "BTCV_0040"]
    for files in found.values():
        assert Path(files["images"][0]).read_text() == "img"
        assert Path(files["label"]).read_text() == "label"
    labels = json.loads((folder / "dataset.json").read_text())["labels"]
    assert list(labels.values()) == list(range(14))
