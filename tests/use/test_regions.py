"""Regions that overlap without nesting, which a label map cannot hold."""

from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from tests.generated import overlapping_case, write_overlapping

LOST = "A label map cannot hold the regions A, B as regions_class_order [1, 2] writes them"


def test_a_review_and_a_decoding_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth, folder = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate("ab")})
    out = str(tmp_path / "out")
    for command in (
        ["review", str(folder)],
        ["review", "fit", str(truth), str(folder)],
        ["decode", str(folder), "-o", out],
        ["decode", str(folder), "-o", out, "--threshold", "A=0.3"],
    ):
        assert main(command) == 1
        assert LOST in capsys.readouterr().err
    assert not Path(out).exists()
