"""What report, table and plot replace, and what they say of a full disk."""

import resource
from pathlib import Path

import pytest

from nnunet_nacl import cli
from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report import write_table
from nnunet_nacl.report._tables import TABLES

COMMANDS = {
    "report.html": ["report"],
    "table.md": ["table"],
    "table.tex": ["table"],
    "table.csv": ["table"],
    "plot.svg": ["plot", "radar"],
    "plot.pdf": ["plot", "radar"],
    "plot.png": ["plot", "radar"],
}
OPTIONS = {"table.tex": ["--format", "latex"], "table.csv": ["--format", "csv"]}


def run(runs: dict[str, Path], name: str, file: Path, *options: str) -> int:
    command, *kind = COMMANDS[name]
    return cli.main([command, *kind, *map(str, runs.values()), "-o", str(file), *OPTIONS.get(name, []), *options])


@pytest.mark.parametrize("name", COMMANDS)
def test_only_files_of_ours_are_replaced(
    runs: dict[str, Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text("precious")
    assert run(runs, name, file) == 1
    assert f"{file} exists and is not a " in capsys.readouterr().err
    assert file.read_text() == "precious"
    assert run(runs, name, file, "--overwrite") == 0
    assert run(runs, name, file) == 0
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["report.html", "table.csv", "plot.svg", "plot.pdf", "plot.png"])
def test_a_full_disk_is_named(
    runs: dict[str, Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        status = run(runs, name, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 1
    assert capsys.readouterr().err.endswith(f"error: [Errno 27] File too large: '{file}'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_known_again(results: dict[str, FolderResult], table: str, form: str, tmp_path: Path) -> None:
    results = dict(zip(["DiceCE", "CE", "NACL"], results.values(), strict=True))  # names that the paper has values of
    for _ in range(2):
        write_table({"Demo": results}, table, output=tmp_path / "table", form=form)
    with (tmp_path / "table").open("a") as stream:
        stream.write("My notes.\n")
    if form != "csv":
        with pytest.raises(FileExistsError):
            write_table({"Demo": results}, table, output=tmp_path / "table", form=form)
    (tmp_path / "table").write_text("case,Dice,HD95\na,0.9,1\n")
    with pytest.raises(FileExistsError):
        write_table({"Demo": results}, table, output=tmp_path / "table", form=form)


def test_methods_that_spreadsheets_would_take_for_formulas(results: dict[str, FolderResult]) -> None:
    renamed = dict(zip(["=1+1", "-right", "@soft"], results.values(), strict=True))
    lines = write_table({"Demo": renamed}, form="csv").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["'=1+1", "'-right", "'@soft"]
    assert any(cell.startswith("-0.") for line in lines for cell in line.split(","))


@pytest.mark.parametrize("name", ["calibration_summary.json", "dataset.json", "x.npz"])
def test_other_outputs_of_ours_are_not_replaced_either(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes((runs["sharp"] / "calibration_summary.json").read_bytes())
    before = file.read_bytes()
    assert run(runs, "report.html", file) == 1
    assert run(runs, "table.csv", file) == 1
    assert file.read_bytes() == before
