from pathlib import Path

import pytest

from tests.posthoc.generated import write_folder


@pytest.fixture
def train(tmp_path: Path) -> tuple[Path, Path]:
    """Ground truth and predictions to fit to."""
    return write_folder(tmp_path / "train", "abcdef")
