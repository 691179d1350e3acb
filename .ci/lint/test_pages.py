"""What README, the docs and the commands' help tell users to type is parsed; lists in them are whole."""

import inspect
import re
import runpy
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from nnunet_nacl import losses
from nnunet_nacl.cli import COMMANDS, find_command
from nnunet_nacl.commands import MAIN_PATH
from nnunet_nacl.paper.studies import STUDIES, read_study
from nnunet_nacl.trainers import LOSSES

pytest.importorskip("mkdocs")  # of the extra docs
ROOT = Path(__file__).parents[2]
MADE = runpy.run_path(str(ROOT / "docs" / "pages.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if page.name != "commands.md"]
COMMAND = re.compile(r"(nnunet_nacl|nnUNetv2_\w+|python benchmarks/\w+\.py)(?= |$)")


def command_lines(text: str) -> Iterator[str]:
    """Those that stand alone, each joined to one line, and without their comments."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in re.split(r" (?:&&|\|) ", line.strip().removeprefix("$ ")):
            if COMMAND.match(part) and not part.endswith(":"):
                yield part.split("  #")[0].split(" > ")[0]


@pytest.mark.parametrize("page", NAMES)
def test_commands_that_pages_name(page: str) -> None:
    text = (ROOT / page).read_text()
    for line in command_lines(text):
        check_line(line)
    # Within sentences they may be cut short
    for quoted in re.findall(r"`nnunet_nacl ([^`\n]+)`", text):
        words = quoted.split()
        assert find_command(words) or words[0] in {"…", "--help", "--version", "paper"}, quoted


def test_command_lines_of_help() -> None:
    texts = [
        text.partition("examples:")[2]
        for name, text in MADE["command_help"]().items()
        if name != "nnunet_nacl"
    ]
    assert len(texts) == len(COMMANDS)
    lines = [line for text in ["\n".join(MAIN_PATH), *texts] for line in command_lines(text)]
    assert len(lines) > 20
    for line in lines:
        check_line(line)


def test_page_of_commands_has_every_option() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        section = page.split(f"## nnunet_nacl {name}\n")[1].split("\n## ")[0]
        options = {word for action in command.parser()._actions for word in action.option_strings}
        assert all(re.search(rf"(?<![\w-]){option}\b", section) for option in options), name


def test_reference_is_up_to_date() -> None:
    made = MADE["reference"]()
    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == made, "run python docs/pages.py"


def test_every_loss_has_its_row() -> None:
    train, readme = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("docs/train.md", "README.md")
    )
    for name in LOSSES:
        assert f"\n| `nnUNetTrainer{name}` |" in train, f"docs/train.md has no row of {name}"
        assert f"`{name}`" in readme, f"README does not name {name}"


def test_defaults_in_the_table_of_trainers() -> None:
    """Numbers stand in parentheses, and of words the default comes first."""
    rows = (ROOT / "docs" / "train.md").read_text(encoding="utf-8").splitlines()
    for name, loss in LOSSES.items():
        (row,) = (row for row in rows if row.startswith(f"| `nnUNetTrainer{name}` |"))
        parameters = inspect.signature(getattr(losses, loss.class_name)).parameters
        for setting in loss.settings:
            default = parameters[setting.name].default
            if setting.words:
                first = min(setting.words, key=lambda word: row.index(f"`{word}`"))
                assert setting.words[first] == default, (name, setting.name)
            else:
                suffix = setting.form.partition("<")[0]
                number = re.search(rf"`{suffix}`[^(;]*\(([\d.]+)\)", row)
                assert number is not None, (name, setting.name)
                assert float(number[1]) == default, (name, setting.name)


def test_readme_begins_with_the_commands_that_help_and_demo_name() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "\n".join(MAIN_PATH) in readme
    assert len(readme.split()) <= 1100


def test_the_cost_of_each_study() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    trainings = {
        study: {(row.trainer, row.training_cases, row.network) for row in read_study(study).methods}
        for study in STUDIES
    }
    trainings["all"] = set().union(
        *(some for study, some in trainings.items() if study not in {"backbones", "since"})
    )
    for study, some in trainings.items():
        assert f"| `{study}` | {len(some)} |\n" in text


@pytest.mark.parametrize("page", [name for name in NAMES if "tests/" in (ROOT / name).read_text()])
def test_tests_that_pages_name_exist(page: str) -> None:
    for path, function in named_tests((ROOT / page).read_text()):
        assert (ROOT / path).exists(), path
        if function:
            assert f"\ndef {function}(" in (ROOT / path).read_text(), f"{path} has no {function}"


@pytest.mark.parametrize("page", [name for name in NAMES if name.startswith("docs/decisions/0")])
def test_every_decision_names_the_test_that_holds_it(page: str) -> None:
    assert any(path.endswith(".py") for path, _ in named_tests((ROOT / page).read_text()))


def test_the_index_of_decisions_has_a_line_for_each() -> None:
    folder = ROOT / "docs" / "decisions"
    linked = re.findall(r"\]\((\d{4}-[\w-]+\.md)\) \| \d", (folder / "index.md").read_text())
    assert linked == sorted(file.name for file in folder.glob("0*.md"))
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(f"decisions/{name}" in navigation for name in linked)


def test_every_promise_names_the_test_that_holds_it() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text().partition("## What is not promised")[0]
    rows = re.findall(r"^\| \*\*.*", page, re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        assert all(path.endswith(".py") for path, _ in named_tests(row)), row
        assert named_tests(row), row


def named_tests(text: str) -> list[tuple[str, str]]:
    """Files or folders of tests, and the function that stands after ``::``, if any."""
    return re.findall(r"`((?:tests|\.ci/lint)/[\w./]+)(?:::(\w+))?`", text)


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
    unknown = {
        word
        for word in words
        if re.match(r"--?[A-Za-z]", word) and f'"{word}"' not in _quoted(source)
    }
    assert not unknown, f"{line}: {unknown}"


@cache
def _quoted(source: Path) -> str:
    return source.read_text().replace("'", '"')


def nnunet_source(command: str) -> Path:
    (entry_point,) = entry_points(group="console_scripts", name=command)
    spec = find_spec(entry_point.module)
    assert spec is not None
    return Path(str(spec.origin))
