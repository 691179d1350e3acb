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


def test_nnunets_converters_are_there() -> None:
    """With the arguments that the page gives; those of BraTS have their folder in their source."""
    modules = re.findall(r"nnunetv2\.dataset_conversion\.(\w+)", PAGE) + re.findall(r"Dataset\d+_BraTS\d\d", PAGE)
    assert len(modules) >= 7
    for module in modules:
        spec = find_spec(f"nnunetv2.dataset_conversion.{module}")
        assert spec is not None, module
        source = Path(str(spec.origin)).read_text().replace("'", '"')
        given = re.search(rf"{module} (\S+)", PAGE)
        argument = "brats_data_dir" if "BraTS" in module else "-i" if given and given[1] == "-i" else "input_folder"
        assert re.search(rf'"{argument}"|^    {argument} = ', source, re.MULTILINE), module
    assert entry_points(group="console_scripts", name="nnUNetv2_convert_MSD_dataset")
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
