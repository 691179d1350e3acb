"""Commands work on one case at a time, which starts no processes."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("nnUNet_def_n_proc", "1")
        yield
