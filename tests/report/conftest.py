import shutil
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import Comparison, compare_all, compare_methods, read_results, write_report
from tests.report.generated import make_result, write_predictions


@pytest.fixture(scope="session")
def results() -> dict[str, FolderResult]:
    """Three methods: one too sure, one right, one too unsure."""
    return {"sharp": make_result(0.4), "right": make_result(1.0), "soft": make_result(1.8)}


@pytest.fixture(scope="session")
def comparison(results: dict[str, FolderResult]) -> Comparison:
    return compare_methods(results, "Dataset004_Demo")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Method -> evaluated folder of predictions, with images and references beside them."""
    folder = tmp_path_factory.mktemp("runs") / "Dataset004_Demo"
    predictions = write_predictions(folder, {"sharp": 0.4, "right": 1.0, "soft": 1.8})
    for predicted in predictions.values():
        evaluate(Predictions.of_folder(folder / "labelsTs", predicted), settings=Settings(surface=True))
    return predictions


@pytest.fixture(scope="session")
def page_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of these runs."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_report(compare_all(read_results([*runs.values()])), file, parts=page_parts())
    return file


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A data set of one's own, with the evaluated predictions of soft."""
    folder = tmp_path / "Dataset004_Copy"
    shutil.copytree(runs["soft"].parents[1], folder)
    evaluate(Predictions.of_folder(folder / "labelsTs", folder / "predictions" / "soft"))
    return folder
