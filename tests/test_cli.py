import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnunet_nacl import __version__, cli
from nnunet_nacl.calibrate import METHODS
from nnunet_nacl.linking import trainers_path


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "nnunet_nacl.cli", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [["--help"], ["networks"], ["trainers"], ["trainers", "--path"], ["--version"]])
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys, runpy; sys.argv = ['nnunet_nacl', *sys.argv[1:]]\n"
        "try: runpy.run_module('nnunet_nacl.cli', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'nnunetv2', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_is_quick() -> None:
    """By the processor's time: machines are busy."""
    assert children_seconds(lambda: run("--help")) < 0.3 + children_seconds(
        lambda: subprocess.run([sys.executable, "-c", "import argparse"], check=True)
    )


def children_seconds(call: Callable[[], object]) -> float:
    before = os.times()
    call()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_version() -> None:
    assert run("--version").stdout == f"nnunet_nacl {__version__}\n"


def test_trainers_lists_names_settings_and_the_papers_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trainers"]) == 0
    printed = capsys.readouterr().out
    for name in ("NACL", "CE", "FL", "ECP", "LS", "SVLS", "MbLS"):
        assert f"    nnUNetTrainer{name}\n    nnUNetTrainer" in printed or f"    nnUNetTrainer{name}\n\n" in printed
        assert f"    nnUNetTrainerDice{name}\n" in printed
        assert f"\n{name}: " in printed
    assert "_mean | gaussian | plainGaussian" in printed
    assert "paper: 0.1, 0.2, 0.3" in printed
    assert "_paperSchedule" in printed


def test_trainers_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trainers", "--path"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == trainers_path()
    assert [file.name for file in folder.glob("*.py")] == ["nnunet_nacl_trainers.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes to head")
def test_a_reader_that_has_seen_enough() -> None:
    done = subprocess.run(
        f"{sys.executable} -m nnunet_nacl.cli trainers | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("Trainers (")
    assert done.stderr == ""


def test_wrong_usage_exits_with_2() -> None:
    done = run("evaluate")
    assert done.returncode == 2
    assert "expected either GT_FOLDER PRED_FOLDER or -d DATASET" in done.stderr
    assert run().returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evalute"], "Did you mean 'evaluate'?"),
        (["evaluate", "gt", "pred", "--voxels", "nera"], "Did you mean 'near'?"),
        (
            ["evaluate", "gt", "pred", "--overwrites"],
            "unrecognized arguments: --overwrites. Did you mean '--overwrite'?",
        ),
        (["calibrate", "fit", "gt", "pred", "--metod=local"], "--metod=local. Did you mean '--method'?"),
        (["review", "fit", "gt", "pred", "--covrage", "0.8"], "--covrage 0.8. Did you mean '--coverage'?"),
        (["calibrate", "aply"], "Did you mean 'apply'?"),
        (["plot", "reliabilty", "pred"], "Did you mean 'reliability'?"),
        (["link", "zzz"], "nnunet_nacl link: error: unrecognized arguments: zzz\n"),
    ],
)
def test_did_you_mean(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("usage: nnunet_nacl ")


def test_help_begins_with_what_a_newcomer_does() -> None:
    text = run("--help").stdout
    sections = [line for line in text.splitlines() if line.endswith(":")]
    first = ["link", "nnUNetv2_train", "nnUNetv2_predict", "evaluate", "report"]
    assert [
        line.split()[0 if line.startswith("  nnUNet") else 1] for line in text.split(sections[0])[1].splitlines()[1:6]
    ] == first
    listed = [line.split()[0] for line in text.split(sections[1])[1].splitlines() if line.startswith("  ")]
    assert listed[:4] == ["link", "trainers", "evaluate", "report"]
    known = run("nothing").stderr.partition("choose from ")[2].partition(")")[0]
    assert sorted(name.strip(" '") for name in known.split(",")) == sorted(listed[:-1])  # the last is COMMAND --help


@pytest.mark.parametrize("command", [["evaluate"], ["table"], ["plot"], ["calibrate", "fit"]])
def test_each_voxel_set_is_explained(command: list[str]) -> None:
    text = run(*command, "--help").stdout
    (offered,) = set(re.findall(r"--voxels\s\{([a-z,]+)\}", text))
    explained = re.findall(r"^  (\w+) ", text.partition("voxel sets:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert explained == [*offered.split(","), "Over"]


def test_a_fit_is_of_a_trainer_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["calibrate", "fit", "-d", "4", "-c", "2d"])
    assert "expected -tr TRAINER with -d -c" in capsys.readouterr().err
    assert "--npz" in run("calibrate", "fit", "--help").stdout


def test_completion(tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    done = run("completion", "bash")
    assert done.returncode == 0, done.stderr
    assert "--margin_mm" in done.stdout
    script = tmp_path / "script"
    script.write_text(
        f'{done.stdout}\nCOMP_WORDS=(nnunet_nacl evalu); COMP_CWORD=1\n_shtab_nnunet_nacl; echo "${{COMPREPLY[@]}}"\n'
    )
    assert subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout.strip() == "evaluate"


def test_completion_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert "completion needs shtab: pip install shtab" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnunet_nacl.linking.link", interrupt)
    assert cli.main(["link"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_choices_are_those_of_the_package() -> None:
    """They stand in the command line too, so that its help need not import what takes seconds."""
    assert f"{{{','.join(METHODS)}}}" in run("calibrate", "--help").stdout


@pytest.mark.parametrize(
    ("variable", "value", "lowest"),
    [("nnUNet_def_n_proc", "abc", 1), ("nnUNet_def_n_proc", "0", 1), ("nnUNet_n_proc_DA", "", 0)],
)
def test_a_variable_that_is_no_number_is_named(
    variable: str, value: str, lowest: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert cli.main(["evaluate", "gt", "pred"]) == 1
    expected = f"The environment variable {variable} must be a whole number of at least {lowest}; got {value!r}."
    assert expected in capsys.readouterr().err
