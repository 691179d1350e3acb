import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report import Comparison, compare
from tests.report.generated import make_result


@pytest.fixture(scope="session")
def results() -> dict[str, FolderResult]:
    """Three methods: one too sure, one right, one too unsure."""
    return {"sharp": make_result(0.4), "right": make_result(1.0), "soft": make_result(1.8)}


@pytest.fixture(scope="session")
def comparison(results: dict[str, FolderResult]) -> Comparison:
    return compare(results, "Dataset004_Demo")
