"""What README, the docs and the commands' help tell users to type: Python blocks run, command lines are parsed."""

import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
import pytest

from nnunet_nacl.cli import COMMANDS, command_help, find_command
from nnunet_nacl.commands._shared import MAIN_PATH
from nnunet_nacl.evaluation import write_result
from nnunet_nacl.experiments._study import STUDIES, read_study
from nnunet_nacl.trainers import LOSSES
from tests.evaluation.generated import add_case, random_case
from tests.generated import probabilities, write_folder, write_model
from tests.report.generated import make_result, write_predictions

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
COMMAND = re.compile(r"(nnunet_nacl|nnUNetv2_\w+|python benchmarks/\w+\.py)(?= |$)")
TRIED = [
    "docs/arrays.md",
    "docs/evaluate.md",
    "docs/metrics.md",
    "docs/calibrate.md",
    "docs/report.md",
    "docs/train.md",
    "docs/use.md",
]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[str]:
    """Those that stand alone, each joined to one line, and without their comments."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in re.split(r" (?:&&|\|) ", line.strip().removeprefix("$ ")):
            if COMMAND.match(part) and not part.endswith(":"):
                yield part.split("  #")[0].split(" > ")[0]


@pytest.mark.parametrize("page", TRIED)
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    known = PREPARED[page](tmp_path, monkeypatch) if page in PREPARED else {}
    for block in python_blocks(page):
        fitting = block.replace("num_processes=8", "num_processes=1").replace('"anterior"', '"one"')
        exec(compile(fitting, page, "exec"), known)


def test_every_page_with_python_is_tried() -> None:
    """But for the one whose example is trained by tests/experiments."""
    assert [name for name in NAMES if python_blocks(name)] == sorted([*TRIED, "docs/experiments.md"])


def prepare_evaluation(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    gt_folder, predictions = folder / "labelsTs", folder / "predictions" / "CE"
    gt_folder.mkdir()
    predictions.mkdir(parents=True)
    (predictions / "dataset.json").write_text('{"labels": {"background": 0, "a": 1, "b": 2}, "file_ending": ".nii.gz"}')
    add_case(gt_folder, predictions, "case_0", *random_case(0))
    return {}


def prepare_summary(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    (folder / "predictions").mkdir()
    write_result(make_result(), folder / "predictions" / "calibration_summary.json")
    return {}


def prepare_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    model, preprocessed = write_model(folder, ["abcd", "efgh", "ijkl", "mnop", "qrst"])
    for name in ("nnUNetTrainer__nnUNetPlans__3d_fullres", "nnUNetTrainerCE__nnUNetPlans__2d"):
        shutil.copytree(model, folder / "results" / "Dataset004_Hippocampus" / name)
    preprocessed.rename(preprocessed.with_name("Dataset004_Hippocampus"))
    monkeypatch.setenv("nnUNet_results", str(folder / "results"))
    monkeypatch.setenv("nnUNet_preprocessed", str(folder / "preprocessed"))
    _, made = write_folder(folder / "new", "xyz", first=100)
    made.rename(folder / "predictions")
    for plans in folder.rglob("plans.json"):
        plans.write_text(plans.read_text().replace("Dataset001_Toy", "Dataset004_Hippocampus"))
    return {"probabilities": probabilities(folder / "predictions", "x")}


def prepare_comparison(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    temperatures = {"DiceCE": 0.5, "NACL": 1.5, "SVLS_1": 0.8, "SVLS_2": 0.9, "NACL_1": 1.4, "NACL_2": 1.6}
    cases = ("one", "two", "three")
    for name, predicted in write_predictions(folder, temperatures, cases=cases).items():
        write_result(make_result(temperatures[name], cases=cases), predicted / "calibration_summary.json")
    return {}


def prepare_validation(folder: Path, _: pytest.MonkeyPatch) -> dict[str, object]:
    for made, first, names in (("old", 0, "abcdef"), ("new", 100, "xyz")):
        labels, predictions = write_folder(folder / made, names, first=first)
        predictions.rename(folder / ("validation_predictions" if made == "old" else "predictions"))
        labels.rename(folder / ("labelsVal" if made == "old" else "labelsTs"))
    return {}


PREPARED = {
    "docs/evaluate.md": prepare_evaluation,
    "docs/metrics.md": prepare_summary,
    "docs/calibrate.md": prepare_validation,
    "docs/report.md": prepare_comparison,
    "docs/use.md": prepare_model,
}


@pytest.mark.parametrize("page", NAMES)
def test_commands_that_pages_name(page: str) -> None:
    text = (ROOT / page).read_text()
    for line in command_lines(text):
        check_line(line)
    for quoted in re.findall(r"`nnunet_nacl ([^`\n]+)`", text):  # within sentences they may be cut short
        words = quoted.split()
        assert find_command(words) or words[0] in {"…", "--help", "--version", "paper"}, quoted


def test_command_lines_of_help() -> None:
    texts = [text.partition("examples:")[2] for name, text in command_help().items() if name != "nnunet_nacl"]
    assert len(texts) == len(COMMANDS)
    lines = [line for text in ["\n".join(MAIN_PATH), *texts] for line in command_lines(text)]
    assert len(lines) > 20
    for line in lines:
        check_line(line)


def test_page_of_commands_has_every_option() -> None:
    pytest.importorskip("mkdocs")
    page = runpy.run_path(str(ROOT / "docs" / "pages.py"))["commands"]()
    for name, command in COMMANDS.items():
        section = page.split(f"## nnunet_nacl {name}\n")[1].split("\n## ")[0]
        options = {word for action in command.parser()._actions for word in action.option_strings}
        assert all(re.search(rf"(?<![\w-]){option}\b", section) for option in options), name


def test_every_loss_has_its_row() -> None:
    train, readme = ((ROOT / page).read_text(encoding="utf-8") for page in ("docs/train.md", "README.md"))
    assert all(f"\n| `nnUNetTrainer{name}` |" in train for name in LOSSES)
    assert all(f"`{name}`" in readme for name in LOSSES)


def test_readme_begins_with_the_commands_that_help_and_demo_name() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "\n".join(MAIN_PATH) in readme
    assert len(readme.split()) <= 900


def test_the_cost_of_each_study() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    trainings = {
        study: {(row.trainer, row.training_cases, row.network) for row in read_study(study).runs} for study in STUDIES
    }
    trainings["all"] = set().union(*(some for study, some in trainings.items() if study != "backbones"))
    for study, some in trainings.items():
        assert f"| `{study}` | {len(some)} |\n" in text


def check_line(line: str) -> None:
    """A command of ours is parsed; of nnU-Net's and of benchmarks, options are looked for in the source."""
    words = shlex.split(line)
    if words[0] == "nnunet_nacl":
        command = find_command(words[1:])
        assert command is not None, line
        try:
            command.parser().parse_args(words[1 + len(command.name.split()) :])
        except SystemExit as end:
            pytest.fail(f"{line}: status {end.code}")
        return
    source = ROOT / words[1] if words[0] == "python" else nnunet_source(words[0])
    unknown = {word for word in words if re.match(r"--?[A-Za-z]", word) and f'"{word}"' not in _quoted(source)}
    assert not unknown, f"{line}: {unknown}"


@cache
def _quoted(source: Path) -> str:
    return source.read_text().replace("'", '"')


def nnunet_source(command: str) -> Path:
    (entry_point,) = entry_points(group="console_scripts", name=command)
    spec = find_spec(entry_point.module)
    assert spec is not None
    return Path(str(spec.origin))
