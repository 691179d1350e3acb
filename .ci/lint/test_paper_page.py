"""docs/paper.md: a line for everything in the paper, and commands, trainers and links that exist."""

import re
from pathlib import Path

from nnunet_nacl.paper.report import published
from nnunet_nacl.paper.studies import STUDIES
from nnunet_nacl.trainers import parse_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
FIRST_TABLE = PAGE.split("## What is where")[1].split("## Published values")[0]
LINES = re.findall(r"^\| (.+?) \|", FIRST_TABLE, re.MULTILINE)


def numbers(what: str) -> set[int]:
    """Those of equations, tables or figures that have a line, which may name their section first."""
    found = [one for line in LINES for one in re.findall(rf"\b{what}s? ([\d, and]+)", line)]
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
    assert [
        re.split(r", (?=equation|table|figure)", line)[0] for line in LINES if "section" in line
    ] == [f"section {number}" for number in sections]


def test_every_study_of_ours_has_a_line() -> None:
    """But for the one that the paper does not have."""
    ours = {*STUDIES} - {"since"}
    assert all(re.search(rf"`{study}`|experiment {study}\b", FIRST_TABLE) for study in ours)


def test_each_data_set_has_a_recipe_from_its_splits_to_its_report() -> None:
    recipes = PAGE.split("## Recipes")[1]
    made = set(re.findall(r"paper split .*-o (\d+)", recipes))
    looped = re.search(r"for data_set in ([\d ]+); do", recipes)
    assert looped
    assert made == set(looped[1].split()) == {"127", "121", "143", "105", "119"}
    assert "paper convert mrbrains18 MRBrainS18 -d 18" in recipes


def test_suffixes_of_trainers_exist() -> None:
    suffixes = {one for one in re.findall(r"`(_[a-zA-Z0-9]+)`", PAGE) if one != "_neighborhood"}
    assert {
        "_classSum",
        "_borderBackground",
        "_plainGaussian",
        "_margin8",
        "_classMean",
        "_l2",
    } <= suffixes
    of_others = {"_classMean": "ECP", "_margin8": "MbLS"}
    for suffix in suffixes:
        assert parse_name(f"nnUNetTrainer{of_others.get(suffix, 'NACL')}{suffix}") is not None
