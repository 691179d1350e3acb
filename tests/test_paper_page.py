"""docs/paper.md: a line for everything in the paper, and commands, trainers and links that exist."""

import os
import re
import shlex
from pathlib import Path

import pytest

from nnunet_nacl.cli import find_command
from nnunet_nacl.experiments import STUDIES
from nnunet_nacl.report import published
from nnunet_nacl.trainers import parse_name

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
FIRST_TABLE = PAGE.split("## What is where")[1].split("## Published values")[0]
LINES = re.findall(r"^\| (.+?) \|", FIRST_TABLE, re.MULTILINE)
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("nnunet_nacl ")
]


def counted() -> dict[str, int]:
    """How many equations, tables and figures the paper's tex has, which is not in this repository."""
    given = os.environ.get("NNUNET_NACL_DATA")
    shared = Path(given).parent if given else ROOT / ".." / "shared"
    file = shared / "paper" / "neighbor-aware-calibration.tex"
    if not file.is_file():
        pytest.skip(f"the paper is not in {file}")
    text = file.read_text(encoding="utf-8")
    aligned = re.findall(r"\\begin\{align\}(.*?)\\end\{align\}", text, re.DOTALL)
    return {
        "equation": len(re.findall(r"\\begin\{equation\}", text)) + sum(1 + one.count("\\\\\n") for one in aligned),
        "table": len(re.findall(r"\\begin\{table\*?\}", text)),
        "figure": len(re.findall(r"\\begin\{figure\*?\}", text)),
        "subsubsection": len(re.findall(r"\\subsubsection", text)),
    }


def numbers(what: str) -> set[int]:
    """Those of equations, tables or figures that have a line."""
    found = [line for line in LINES if line.startswith(what)]
    return {int(number) for line in found for number in re.findall(r"\d+", line)}


def test_every_equation_table_figure_and_section_has_a_line() -> None:
    assert numbers("equation") == set(range(1, 12))
    assert numbers("table") == set(range(1, 5)) == set(published()["table"])
    assert numbers("figure") == set(range(1, 12))
    sections = [
        "1, 2",
        "3.1",
        "3.2",
        "3.3",
        *(f"4.1.{n}" for n in range(1, 4)),
        *(f"4.2.{n}" for n in range(1, 10)),
        "5",
    ]
    assert [line for line in LINES if line.startswith("section") and "backbones" not in line] == [
        f"section {number}" for number in sections
    ]


def test_the_numbers_are_the_papers() -> None:
    there = counted()
    for what in ("equation", "table", "figure"):
        assert numbers(what) == set(range(1, there[what] + 1))
    assert there["subsubsection"] == sum(line.startswith("section 4.") and "," not in line for line in LINES)


def test_every_study_of_ours_has_a_line() -> None:
    assert all(re.search(rf"`{study}`|experiment {study}\b", FIRST_TABLE) for study in STUDIES)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_ours(command: str) -> None:
    words = shlex.split(command)[1:]
    found = find_command(words)
    assert found is not None
    found.parser().parse_args(words[len(found.name.split()) :])


def test_each_data_set_has_a_recipe_from_its_splits_to_its_report() -> None:
    recipes = PAGE.split("## Recipes")[1]
    for number in (127, 121, 143, 105, 119, 18):
        assert f"nnUNetv2_plan_and_preprocess -d {number} " in recipes
        assert f"nnunet_nacl experiment main -d {number} -c 2d" in recipes


def test_suffixes_of_trainers_exist() -> None:
    suffixes = {one for one in re.findall(r"`(_[a-zA-Z0-9]+)`", PAGE) if one != "_neighborhood"}
    assert {"_classSum", "_borderBackground", "_plainGaussian", "_margin8", "_classMean", "_l2"} <= suffixes
    of_others = {"_classMean": "ECP", "_margin8": "MbLS"}
    for suffix in suffixes:
        assert parse_name(f"nnUNetTrainer{of_others.get(suffix, 'NACL')}{suffix}") is not None


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#h][^)]*|#[^)]*)\)", PAGE):
        file, _, anchor = target.partition("#")
        path = ROOT / "docs" / file if file else ROOT / "docs" / "paper.md"
        assert path.is_file(), target
        heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        known = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        assert not anchor or anchor in known, target
