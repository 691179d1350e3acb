"""The Python that README and the docs show runs. (test_pages.py reads the rest of the pages.)"""

import re
import shutil
from pathlib import Path

import matplotlib as mpl
import pytest

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from tests.generated import probabilities, write_folder, write_model
from tests.report.generated import make_result, write_predictions, write_summary

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
TRIED = [
    f"docs/{name}.md"
    for name in ("arrays", "evaluate", "metrics", "calibrate", "report", "train", "use")
]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", TRIED)
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    known = PREPARED[page](tmp_path, monkeypatch) if page in PREPARED else {}
    for block in python_blocks(page):
        fitting = block.replace("num_processes=8", "num_processes=1").replace('"anterior"', '"one"')
        fitting = fitting.replace("CASE.npz", "case_00.npz")
        exec(compile(fitting, page, "exec"), known)


def test_every_page_with_python_is_tried() -> None:
    """But for the one whose example is trained by tests/paper/experiments."""
    assert [name for name in NAMES if python_blocks(name)] == sorted(
        [*TRIED, "docs/experiments.md"]
    )


def prepare_evaluation(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    labels, predictions = write_folder(folder / "predictions", ["case_0"])
    labels.rename(folder / "labelsTs")
    predictions.rename(predictions.with_name("CE"))
    return {}


def prepare_summary(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    labels, predictions = write_folder(folder / "generated", ["case_00"])
    evaluate(Predictions.of_folder(labels, predictions.rename(folder / "predictions")))
    return {}


def prepare_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    model, preprocessed = write_model(folder, ["abcd", "efgh", "ijkl", "mnop", "qrst"])
    for name in ("nnUNetTrainer__nnUNetPlans__3d_fullres", "nnUNetTrainerCE__nnUNetPlans__2d"):
        shutil.copytree(model, folder / "results" / "Dataset004_Hippocampus" / name)
    preprocessed.rename(preprocessed.with_name("Dataset004_Hippocampus"))
    monkeypatch.setenv("nnUNet_results", str(folder / "results"))
    monkeypatch.setenv("nnUNet_preprocessed", str(folder / "preprocessed"))
    _, made = write_folder(folder / "new", "xyz", first=100)
    made.rename(folder / "predictions")
    for plans in folder.rglob("plans.json"):
        plans.write_text(plans.read_text().replace("Dataset001_Toy", "Dataset004_Hippocampus"))
    return {"probabilities": probabilities(folder / "predictions", "x")}


def prepare_comparison(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    temperatures = {
        "DiceCE": 0.5,
        "NACL": 1.5,
        "SVLS_1": 0.8,
        "SVLS_2": 0.9,
        "NACL_1": 1.4,
        "NACL_2": 1.6,
    }
    cases = ("one", "two", "three")
    for name, predicted in write_predictions(folder, temperatures, cases=cases).items():
        write_summary(
            make_result(temperatures[name], cases=cases), predicted / "calibration_summary.json"
        )
    return {}


def prepare_validation(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    for made, first, names in (("old", 0, "abcdef"), ("new", 100, "xyz")):
        labels, predictions = write_folder(folder / made, names, first=first)
        predictions.rename(folder / ("validation_predictions" if made == "old" else "predictions"))
        labels.rename(folder / ("labelsVal" if made == "old" else "labelsTs"))
    return {}


PREPARED = {
    "docs/evaluate.md": prepare_evaluation,
    "docs/metrics.md": prepare_summary,
    "docs/calibrate.md": prepare_validation,
    "docs/report.md": prepare_comparison,
    "docs/use.md": prepare_model,
}
