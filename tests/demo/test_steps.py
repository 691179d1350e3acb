import os
from pathlib import Path

import pytest

from nnunet_nacl.demo._steps import Steps


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command on the PATH that counts its runs and fails if told so."""
    script = tmp_path / "bin" / "toy_command"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "Epoch 7"\necho "not shown"\necho ran >> "$RUNS"\nexit "${1:-0}"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    return script.name


def runs(tmp_path: Path) -> int:
    file = tmp_path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path / "work", {"RUNS": str(tmp_path / "runs")}, total=2)


def test_a_step_is_run_once(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    steps(tmp_path).run("toy", "A toy", [command])
    printed = capsys.readouterr().out
    assert "[1/2] A toy" in printed
    assert f"$ {command}" in printed
    assert "Epoch 7" in printed
    assert "not shown" not in printed
    assert "not shown" in (tmp_path / "work" / "logs" / "toy.log").read_text()
    steps(tmp_path).run("toy", "A toy", [command])
    assert "done in an earlier run" in capsys.readouterr().out
    assert runs(tmp_path) == 1
    steps(tmp_path).run("toy", "A toy", [command, "0"])  # another command line is another step
    assert runs(tmp_path) == 2


def test_a_step_is_repeated_after_the_one_that_it_builds_on(tmp_path: Path, command: str) -> None:
    for count in (2, 2):  # the second round finds both done
        steps(tmp_path).run("first", "First", [command])
        steps(tmp_path).run("second", "Second", [command], after="first")
        assert runs(tmp_path) == count
    mark = tmp_path / "work" / "done" / "first"
    os.utime(mark, (mark.stat().st_atime, mark.stat().st_mtime + 10))
    steps(tmp_path).run("second", "Second", [command], after="first")
    assert runs(tmp_path) == 3


def test_a_failed_step_is_explained_and_repeated(tmp_path: Path, command: str) -> None:
    for count in (1, 2):
        with pytest.raises(RuntimeError) as error:
            steps(tmp_path).run("toy", "A toy", [command, "3"])
        assert "toy_command 3 failed with status 3." in str(error.value)
        assert "logs/toy.log" in str(error.value)
        assert str(error.value).endswith("Epoch 7\nnot shown\n")
        assert runs(tmp_path) == count


def test_a_command_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^nnUNetv2_nothing was not found; is nnU-Net"):
        steps(tmp_path).run("toy", "A toy", ["nnUNetv2_nothing"])
