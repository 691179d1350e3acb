import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from pathlib import Path
from typing import Literal, get_args

import pytest

from nnunet_nacl import __version__, cli
from nnunet_nacl.commands import Command, measure
from nnunet_nacl.commands._parser import CommandLine
from nnunet_nacl.commands.benchmark import Converter, Network
from nnunet_nacl.metrics import VOXEL_SETS
from nnunet_nacl.paper.datasets import CONVERTERS
from nnunet_nacl.paper.networks import NETWORKS
from nnunet_nacl.paper.report import PLOTS, TABLES
from nnunet_nacl.trainers import LOSSES, TERMS
from tests.generated import write_folder


def status_of(*arguments: str) -> int:
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("arguments", [["--help"], ["evaluate", "-h"], ["paper", "networks"], ["experiment", "sigma"]])
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys, runpy; sys.argv = ['nnunet_nacl', *sys.argv[1:]]\n"
        "try: runpy.run_module('nnunet_nacl', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'nnunetv2', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Group:
    _: KW_ONLY
    d: int
    f: Sequence[int] = (0, 1)


def example(
    kind: Literal["a", "b"],
    folders: Sequence[str],
    group: Group,
    *,
    np: int | None = None,
    what: Sequence[str] | None = None,
    by: str | bool = False,
    share: float = 0.5,
    overwrite: bool = False,
    typed: CommandLine,
) -> int:
    """Do something.

    With 20% of it.

    Args:
        kind: of thing
        folders: folders of it
        what: NAME or names of
            more, 10%
        by: REGEX
        share: SHARE of it
        overwrite: replace it

    Examples:
        nnunet_nacl example a x -d 1
    """
    if np == 7:
        raise argparse.ArgumentError(None, "not seven.")
    print((kind, folders, group.d, tuple(group.f), np, what, by, share, overwrite, typed))
    return 3


def test_a_function_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With its options, and those of a group."""
    command = Command(example)
    assert command.summary == "Do something"
    for line, values in (
        ("b x y -d 4", ("b", ["x", "y"], 4, (0, 1), None, None, False, 0.5, False)),
        (
            "a x -f 2 -f 3 -np 2 --by --what m n --share .1 -d 4 --overwrite",
            ("a", ["x"], 4, (2, 3), 2, ["m", "n"], True, 0.1, True),
        ),
    ):
        assert command.run(line.split()) == 3
        assert capsys.readouterr().out == f"{(*values, ['nnunet_nacl', 'example', *line.split()])}\n"
    text = " ".join(command.parser().format_help().split())
    for part in (
        "{a,b} of thing FOLDERS folders of it",
        "-d DATASET DATASET, by name or number -f FOLD [FOLD ...] FOLD or folds (default: 0 1)",
        "--what NAME [NAME ...] NAME or names of more, 10% --by [REGEX]",
        "SHARE of it (default: 0.5) --overwrite replace it examples: nnunet_nacl example a x -d 1",
    ):
        assert part in text
    for wrong in ("a x", "c x -d 1", "a x -d 1 -np x", "a x -d 1 -np 7"):
        with pytest.raises(SystemExit, match="2"):
            command.run(wrong.split())
    assert "nnunet_nacl example: error: not seven." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("", 2, "expected a command"),
        ("evalute", 2, "there is no command 'evalute'"),
        ("evaluate", 2, "expected either GT_FOLDER PRED_FOLDER or -d DATASET"),
        ("evaluate gt pred -d 4 -c 2d", 2, "expected either GT_FOLDER PRED_FOLDER or -d DATASET"),
        ("calibrate gt pred", 2, "expected either -d DATASET -c CONFIGURATION [-i IMAGES -gt LABELS] or"),
        ("calibrate -d 4 -c 2d -i images", 2, "[-i IMAGES -gt LABELS] or"),
        ("calibrate -d 4 -c 2d -device cuda:1", 2, "invalid choice: 'cuda:1' (choose from"),
        ("link zzz", 2, "nnunet_nacl link: error: unrecognized arguments: zzz"),
        ("paper networks unet", 2, "NETWORK goes with -d DATASET -c CONFIGURATION."),
        ("experiment main -d 901", 2, "the following arguments are required: -d, -c"),
        ("experiment all -d 901 -c 2d --methods DiceCE", 1, "Study hyperparameters has no method 'DiceCE'"),
        ("experiment mian -d 901 -c 2d", 1, "mian does not exist; there are main, hyperparameters"),
    ],
)
def test_wrong_usage(line: str, status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*line.split()) == status
    assert message in capsys.readouterr().err


def test_the_choices_are_what_there_is() -> None:
    """The commands copy them, so that help imports neither the report nor NumPy."""
    kind = signature(measure.plot).parameters["kind"].annotation
    assert [set(get_args(one)) for one in (measure.Table, kind)] == [{*TABLES}, {*PLOTS}]
    assert get_args(measure.VoxelSet) == VOXEL_SETS
    assert [set(get_args(one)) for one in (Converter, Network)] == [{*CONVERTERS}, {*NETWORKS}]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out == f"nnunet_nacl {__version__}\n"
    assert status_of("-h") == 0
    text = capsys.readouterr().out
    first = re.findall(r"^  (?:nnunet_nacl )?(\w+)", text, re.MULTILINE)[:5]
    assert first == ["nnUNetv2_train", "nnUNetv2_predict", "evaluate", "experiment", "calibrate"]
    assert re.findall(r"^(\w+).*:$", text, re.MULTILINE)[1:] == ["train", "measure", "benchmark", "calibrate", "use"]
    for name, command in cli.COMMANDS.items():
        assert f"\n  {name:<14} {command.summary}\n" in text
        assert all(action.help for action in command.parser()._actions), name


def test_trainers_are_listed_with_settings_and_the_papers_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("link", "--list") == 0
    printed = capsys.readouterr().out
    parts = ["_mean | gaussian | plainGaussian", "paper: 0.1, 0.2, 0.3", "_paperSchedule"]
    for name in (*LOSSES, *TERMS):
        parts += [f" {name}", f"\n{name}: "]
    assert [part for part in parts if part not in printed] == []


def test_from_predictions_to_a_list_of_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One call of each command that reads predictions, as users type them."""
    monkeypatch.setenv("nnUNet_def_n_proc", "1")
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "val", "abcdef")
    write_folder(tmp_path / "new", "xyz", first=100)
    for line in (
        "calibrate val/labels val/predictions -o fit.json --method temperature",
        "apply fit.json new/predictions -o calibrated",
        "evaluate new/labels calibrated",
        "evaluate new/labels new/predictions -o all.json",
        "report all.json calibrated --names before after",
        "table all.json calibrated --names before after --table ece",
        "plot reliability all.json -o plot.svg",
        "review calibrated -gt new/labels",
        "decode calibrated -o decoded",
        "maps calibrated -o maps --what confidence entropy",
    ):
        assert cli.main(line.split()) == 0, line
    made = {"report.html", "plot.svg", "decoded", "maps", "calibrated/review.csv"}
    assert all((tmp_path / name).exists() for name in made)
    assert "| before" in capsys.readouterr().out
    assert cli.main(["report", "maps"]) == 1
    assert re.fullmatch("nnunet_nacl report: error: .*\n", capsys.readouterr().err)


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_a_model_that_is_not_there(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    (tmp_path / "Dataset004_X" / "nnUNetTrainer__nnUNetPlans__2d").mkdir(parents=True)
    assert cli.main([command, "-d", "Dataset004_X", "-c", "2d", "-tr", "nnUNetTrainerNACCL"]) == 1
    message = "NACCL__nnUNetPlans__2d does not exist; trained models there: nnUNetTrainer__nnUNetPlans__2d."
    assert message in capsys.readouterr().err
