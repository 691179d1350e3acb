"""Figures in the text of the docs, and the rows of docs/results/data that they are of."""

import re

import pandas as pd
from cells import read
from tables import MARKED

from nnunet_nacl.paper.report import published
from tests.results import ROOT

HIPPOCAMPUS = "data_set.str.endswith('Hippocampus') and trainer.str.endswith('_paperSchedule')"
"""The trainings of 25,000 steps of which each case was kept."""
ACDC = "data_set.str.endswith('ACDC') and trainer.str.endswith('_24epochs')"
"""Those of 6,000 steps."""
SINCE = "DicePP|DiceACE|CRaC"
"""Losses published since the paper, whose own page since.md is."""


def stated(page: str, *figures: float | str) -> None:
    """Each figure stands in the text of a page of docs/, outside of its tables; numbers without sign, to 0.001."""
    text = MARKED.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8")).replace("*", "")
    text = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).split())
    for figure in figures:
        written = figure if isinstance(figure, str) else f"{abs(figure):.3f}"
        assert re.search(rf"(?<![\d.]){re.escape(written)}(?!\d)", text), f"{page}: {written}"


def with_interval(value: float, low: float, high: float, *, digits: int = 3) -> str:
    """A difference and its interval, as pages write them."""
    form = f"+.{digits}f"
    return f"{value:{form}} ({low:{form}} to {high:{form}})".replace("-", "−")


def trained(data_set: str, steps: int, training: int = 1) -> pd.DataFrame:
    """Trainings with Adam on fold 0, by their loss."""
    return _trained(data_set, steps).query(f"training == {training}").set_index("method")


def means(data_set: str, steps: int) -> pd.DataFrame:
    """Means over the trainings with Adam on fold 0, by their loss."""
    return _trained(data_set, steps).groupby("method").mean(numeric_only=True)


def _trained(data_set: str, steps: int) -> pd.DataFrame:
    rows = read("losses", f"data_set.str.endswith('{data_set}') and configuration.isin(['2d_bs8', '2d_bs4'])")
    return rows.query(f"steps == {steps} and optimizer == 'Adam' and fold == '0'")


def in_usgra() -> pd.DataFrame:
    """The longest trainings on USGRA, with SGD."""
    return read("losses", "data_set == 'Dataset051_USGRA' and steps == 12500").set_index("method")


def means_of_the_paper() -> pd.DataFrame:
    """Over its six data sets, by our names of the losses."""
    rows = published().query("structure == '' and table < 3")
    means = rows.pivot_table(index="method", columns="metric", values="value")
    return means.rename(index={"CE+DSC": "DiceCE"})
