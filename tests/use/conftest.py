"""Commands work on one case at a time, which starts no processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture(scope="package", autouse=True)
def one_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("nnUNet_def_n_proc", "1")
        yield


def judged(folder: Path) -> pd.DataFrame:
    """What a review compared, by case and structure."""
    rows = json.loads((folder / "review.json").read_text())["judged"]
    return pd.DataFrame(rows).set_index(["case", "structure"]).astype(float)
