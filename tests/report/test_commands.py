"""The commands report, table and plot on real files."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnunet_nacl import cli
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import read_results
from nnunet_nacl.report._formats import FORMATS
from nnunet_nacl.report._results import default_name
from nnunet_nacl.report._tables import TABLES
from tests.report.generated import make_result

KINDS = ("reliability", "classes", "tradeoff", "radar", "ranks", "case")
SIGNATURES = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


def test_report_from_another_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    """As a user runs it: by the command's name, from elsewhere, with the default output."""
    program = str(Path(sys.executable).with_name("nnunet_nacl"))
    command = [program, "report", *map(str, runs.values()), "--baseline", "soft", "--names", "sharp", "a b", "soft"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page_address = (tmp_path / "report.html").as_uri()
    assert done.stdout.startswith(f"Wrote report.html\nNext:\n    open {page_address} in a browser\n")
    assert "drawing: 100%" in done.stderr
    assert "6/6" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "a b is calibrated best" in page
    assert ", the baseline: 0." in page
    assert "nnunet_nacl report" in page
    assert "--names sharp &#39;a b&#39; soft" in page
    assert "Not shown" not in page  # images, references and predictions are found


def test_table(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = list(map(str, runs.values()))
    assert cli.main(["table", *folders]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "**Methods: Dataset004\\_Demo**\n\n| method | Dice ↑ | HD95 (mm) ↓ | NLL per foreground voxel ↓ | "
        "Brier per foreground voxel ↓ | ECE near ↓ | confidence − accuracy near |\n"
    )
    for name, expected in (
        ("differences", "Differences to sharp: "),
        ("paper", "| ECE foreground ↓ | ECE foreground if perfectly calibrated | ECE union ↓ |"),
        ("structures", "| cortex |"),
        ("scores", "Further metrics over the union"),
        ("ranks", "Ranks by Dice, NLL per foreground voxel and ECE near"),
        ("sum-rank", "first in resamples"),
        ("mean-case-rank", "Mean-case-rank"),
        ("cases", "| case\\_03 |"),
    ):
        assert cli.main(["table", *folders, "--table", name, "--voxels", "union"]) == 0
        assert expected in capsys.readouterr().out
    file = tmp_path / "table.tex"
    assert cli.main(["table", *folders, "--format", "latex", "-o", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {file}\nNext: nnunet_nacl plot ")
    assert file.read_text().startswith("\\begin{table}")


@pytest.mark.parametrize("kind", KINDS)
def test_plot(runs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    ending = list(SIGNATURES)[KINDS.index(kind) % 3]
    file = tmp_path / f"figure.{ending}"
    assert cli.main(["plot", kind, *map(str, runs.values()), "-o", str(file)]) == 0
    assert file.read_bytes().startswith(SIGNATURES[ending])
    assert file.stat().st_size > 5000
    assert list(tmp_path.iterdir()) == [file]


def test_plot_options(runs: dict[str, Path], tmp_path: Path) -> None:
    folders = list(map(str, runs.values()))
    file = tmp_path / "figure.svg"
    assert cli.main(["plot", "classes", *folders, "-o", str(file), "--classes", "core", "--voxels", "union"]) == 0
    assert ">core</text>" in file.read_text()
    assert ">cortex</text>" not in file.read_text()
    assert cli.main(["plot", "case", *folders, "-o", str(file), "--case", "case_05"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "{missing}"], "{missing} does not exist; nnunet_nacl evaluate writes it."),
        (["report", "{soft}", "{sharp}", "--names", "a"], "names: expected one for each of the 2 summaries; got 1."),
        (["report", "{soft}", "--datasets", "a", "b"], "datasets: expected one for each of the 1 summaries; got 2."),
        (["report", "{soft}", "--baseline", "DiceCE"], "Dataset004_Demo: baseline: expected one of soft; got DiceCE."),
        (
            ["report", "{soft}", "{soft}"],
            "are all called 'soft', but are not folds of one method: the case case_00 is in two",
        ),
        (["report", "{soft}", "-o", "{soft}"], "{soft} is a folder; expected the path of a file."),
        (
            ["table", "{soft}", "--voxels", "boundary"],
            "voxels: expected one of foreground, union, near, image; got boundary.",
        ),
        (
            ["plot", "radar", "{soft}", "--voxels", "boundary"],
            "voxels: expected one of foreground, union, near, image; got boundary.",
        ),
        (
            ["table", "{soft}", "{sharp}", "--table", "mean-case-rank", "--voxels", "near"],
            "mean-case-rank needs the ECE of each case; over the near it is pooled over cases.",
        ),
        (["plot", "classes", "{soft}", "--classes", "liver"], "one of background, cortex, medulla, core; got liver."),
        (["plot", "case", "{soft}", "--case", "x"], "case: expected one that all methods share; got x."),
        (
            ["plot", "radar", "{soft}", "-o", "radar.gif"],
            "radar.gif: expected a name that ends with .svg, .pdf or .png.",
        ),
        (
            ["table", "{soft}", "{sharp}", "--datasets", "A", "B", "--format", "csv"],
            "format: csv holds one table; got 2 data sets.",
        ),
    ],
)
def test_errors(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    places = {**{name: str(folder) for name, folder in runs.items()}, "missing": str(tmp_path / "missing.json")}
    assert cli.main([argument.format(**places) for argument in arguments]) == 1
    printed = capsys.readouterr().err
    assert message.format(**places) in printed
    assert printed.startswith(f"nnunet_nacl {arguments[0]}: error: ")
    assert list(tmp_path.iterdir()) == []


def test_damaged_bins_and_lost_bins(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "soft"
    shutil.copytree(runs["soft"], folder)
    (folder / "calibration_bins.zip").write_bytes(b"PK")
    assert cli.main(["report", str(folder), "-o", str(tmp_path / "x.html")]) == 1
    assert f"{folder / 'calibration_bins.zip'} cannot be read as bin tables" in capsys.readouterr().err
    (folder / "calibration_bins.zip").unlink()
    assert cli.main(["report", str(folder), "-o", str(tmp_path / "x.html")]) == 1
    assert f"or {folder / 'calibration_bins.zip'} is no longer beside it." in capsys.readouterr().err


def test_nnunets_summary_is_no_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"foreground_mean": {}}))
    assert cli.main(["report", str(tmp_path / "summary.json")]) == 1
    assert "summary.json is not a summary of nnunet_nacl evaluate" in capsys.readouterr().err


def test_the_command_line_knows_all_tables_and_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """It lists them itself, so that --help need not import what makes them."""
    for option, known in (("--table", TABLES), ("--format", FORMATS)):
        with pytest.raises(SystemExit):
            cli.main(["table", "x", option, "?"])
        message = capsys.readouterr().err.splitlines()[-1]
        assert re.findall(r"[\w-]+", message.split("choose from")[1]) == list(known)


def test_default_names() -> None:
    model = Path("/results/Dataset004_Hippocampus/nnUNetTrainerNACL_weight0p2__nnUNetPlans__2d")
    assert default_name(model / "fold_0" / "validation" / "calibration_summary.json") == "NACL_weight0p2"
    assert default_name(model / "calibration_folds_0_1_summary.json") == "NACL_weight0p2"
    assert default_name(Path("/predictions/DiceCE/calibration_summary.json")) == "DiceCE"
    assert default_name(Path("/results/nacl_summary.json")) == "nacl"
    study = Path("/studies/Dataset004_Hippocampus__nnUNetPlans__2d/predictions")
    assert default_name(study / "nnUNetTrainerNACL" / "fold_0" / "calibration_summary.json") == "NACL"
    assert default_name(study / "ensemble" / "calibration_summary.json") == "ensemble"
    default = Path("/results/Dataset004/nnUNetTrainer__nnUNetPlans__2d/fold_0/validation/calibration_summary.json")
    assert default_name(default) == "nnUNetTrainer"


def test_folds_of_one_method_are_put_together(runs: dict[str, Path], tmp_path: Path) -> None:
    """Two folders of one name, each with half of the cases; and the data sets' names."""
    root = runs["soft"].parents[1]
    halves = []
    for number in (0, 1):
        folder = tmp_path / f"fold_{number}" / "soft"
        folder.mkdir(parents=True)
        references = tmp_path / "Dataset004_Demo" / f"labels{number}"
        references.mkdir(parents=True)
        shutil.copy(runs["soft"] / "dataset.json", folder)
        for file in sorted((root / "labelsTs").iterdir())[number::2]:
            shutil.copy(file, references)
            name = file.name.removesuffix(".nii.gz")
            for ending in (".nii.gz", ".npz"):
                shutil.copy(runs["soft"] / f"{name}{ending}", folder)
        evaluate(Predictions.of_folder(references, folder))
        halves.append(folder)
    with pytest.raises(ValueError, match=r"would all be called 'soft'; name them with --names"):
        read_results([*halves, runs["sharp"]])
    results = read_results([*halves, runs["sharp"]], names=["soft", "soft", "sharp"])
    assert {dataset: list(methods) for dataset, methods in results.items()} == {"Dataset004_Demo": ["soft", "sharp"]}
    assert len(results["Dataset004_Demo"]["soft"].cases) == 8
    assert list(read_results([runs["soft"], runs["sharp"]], datasets=["A", "B"])) == ["A", "B"]


def test_bins_that_differ_are_said_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """15 and 20 bins share 5; figures of 5 bins must not pass for either."""
    files = []
    for name, bins in (("one", 15), ("other", 20)):
        result = make_result(1.0, settings=Settings(num_bins=bins), cases=["case_00", "case_01"])
        files.append(tmp_path / f"{name}.json")
        result.write(files[-1])
    text = "The methods were evaluated with different numbers of bins (one: 15, other: 20); compared with 5."
    for form in ("markdown", "latex", "csv"):
        assert cli.main(["table", *map(str, files), "--format", form]) == 0
        printed = capsys.readouterr()
        assert f"Note: {text}" in printed.err
        assert (text in printed.out) == (form != "csv")
    assert cli.main(["plot", "tradeoff", *map(str, files), "-o", str(tmp_path / "plot.svg")]) == 0
    assert f"Note: {text}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["classes", "--classes", "zzz"], "expected a class, one of background, "),
        (["reliability", "--classes", "zzz"], "classes: only the plot classes looks at it; got ['zzz']"),
        (["radar", "--case", "case_00"], "case: only the plot case looks at it; got case_00 for radar."),
        (["ranks", "--images", "."], "images: only the plot case looks at it; got . for ranks."),
        (["case", "--images", "nope"], "images: nope is not a folder."),
        (["case", "--case", "zzz"], "case: expected one that all methods share; got zzz."),
    ],
)  # fmt: skip
def test_options_of_plots_that_mean_nothing(
    options: list[str], message: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *more = options
    assert cli.main(["plot", kind, str(runs["soft"]), *more, "-o", str(tmp_path / "plot.svg")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "plot.svg").exists()


def test_a_report_of_images_that_are_not_there(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(runs["soft"]), "--images", "nope", "-o", str(tmp_path / "page.html")]) == 1
    assert "images: nope is not a folder." in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
