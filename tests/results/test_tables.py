"""The tables of README and the docs are those of docs/results/data, and so are the numbers in the text beside them."""

import re
from pathlib import Path

import pandas as pd
import pytest
from cells import read
from models import loss_name
from tables import MARKED, TABLES, pages, written

from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.trainers import Recipe, parse_name
from tests.results import ROOT

MARKED_PAGES = [page for page in pages() if "<!-- table" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", MARKED_PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_data(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- table ") == len(MARKED.findall(text)) == text.count("<!-- end -->")
    assert text == written(text), f"{page}: run python benchmarks/tables.py"
    assert not re.search(r"\bnan\b", text)


def test_every_table_is_in_a_page() -> None:
    assert {name for page in MARKED_PAGES for _, name, _ in MARKED.findall(page.read_text("utf-8"))} == set(TABLES)


@pytest.mark.parametrize(
    ("page", "data", "others"),
    [
        ("results/losses.md", ["losses", "losses_paired", "checkpoints", "calibrate"], set()),
        # The most Dice lost.
        ("results/losses-short.md", ["losses", "calibrate"], {"0.008", "0.060"}),
        ("results/last-layer.md", ["calibrate"], set()),
        ("limitations.md", ["losses"], set()),
        ("paper.md", ["losses"], set()),
        ("tutorial.md", ["checkpoints", "losses"], {"0.079", "0.019"}),  # of review -gt
        ("use.md", ["use", "members", "losses"], set()),
        (
            "results/calibrate.md",
            ["checkpoints", "ensemble", "few_cases", "resampled"],
            # The means over the models.
            {"0.872", "0.591", "0.614", "1.813", "1.549", "1.557"},
        ),
    ],
)
def test_numbers_in_the_text(page: str, data: list[str], others: set[str]) -> None:
    """Those with three or four decimals, outside of the tables and the code, are in the data, wherever.

    What is said with them is tested in the modules beside this one.
    """
    # With intervals, from the values of each case: held by test_paper.py
    paired = "## The paper's statements, one by one.*?## What is where"
    text = re.sub(f"```.*?```|{paired}", "", MARKED.sub("", (ROOT / "docs" / page).read_text("utf-8")), flags=re.DOTALL)
    values = [abs(value) for name in data for value in read(name).select_dtypes("number").to_numpy().ravel()]
    known = {f"{value:.{digits}f}" for value in values for digits in (3, 4)}
    assert (found := set(re.findall(r"(?<![\d/])\d\.\d{3,4}\b", text)))
    assert not found - known - others


def test_rows_of_the_main_study_are_its_losses() -> None:
    """A row that a table names like a method of the study was trained with the method's loss and settings."""
    study = {method.name: parse_name(method.trainer) for method in read_study("main").methods}
    found = set()
    for file in (ROOT / "docs" / "results" / "data").glob("*.csv"):
        rows = pd.read_csv(file)
        if "trainer" not in rows:
            continue
        names = rows["method"] if file.stem in {"losses", "logits", "max_logits"} else rows["trainer"].map(loss_name)
        for name, trainer in {*zip(names, rows["trainer"], strict=True)}:
            recipe = parse_name(trainer)
            if name in study:
                assert recipe is not None, f"{file.name}: {trainer}"
                assert loss_of(recipe) == loss_of(study[name]), f"{file.name}: {name} is {trainer}"
                found.add(name)
            else:
                assert recipe is None or loss_of(recipe) not in map(loss_of, study.values()), f"{file.name}: {trainer}"
    assert found == set(study)


def loss_of(recipe: Recipe) -> tuple[object, ...]:
    return recipe.loss, recipe.term, recipe.settings, recipe.term_settings
