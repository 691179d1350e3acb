from pathlib import Path

import pytest

from tests.calibrate.generated import write_folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Ground truth and predictions of four cases with a structure in two parts."""
    return write_folder(tmp_path / "test", "abcd", structure=True)
