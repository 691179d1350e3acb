"""What pages of the docs say, and the rows of docs/results/data that they say it of."""

import re

import pandas as pd
from cells import read

from nnunet_nacl.metrics import Estimate, Interval
from nnunet_nacl.paper.report import published
from tests.results import ROOT


def said(page: str, *sentences: str) -> None:
    """Each of them stands in the page, whatever is emphasized or linked there."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("*", "")
    text = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).split())
    for sentence in sentences:
        assert sentence in text, f"{page}: {sentence}"


def trained(data_set: str, steps: int, training: int = 1) -> pd.DataFrame:
    """Trainings with Adam on fold 0, by their loss."""
    rows = read("losses", f"data_set.str.endswith('{data_set}') and configuration.isin(['2d_bs8', '2d_bs4'])")
    chosen = f"steps == {steps} and optimizer == 'Adam' and fold == '0' and training == {training}"
    return rows.query(chosen).set_index("method")


def means_of_the_paper() -> pd.DataFrame:
    """Over its six data sets, by our names of the losses."""
    rows = published().query("structure == '' and table < 3")
    means = rows.pivot_table(index="method", columns="metric", values="value")
    return means.rename(index={"CE+DSC": "DiceCE"})


def interval_by_patient(metric: str, trainer: str, other: str) -> Interval:
    """Of the difference of two trainings on ACDC, whose cases are two images of each patient."""
    cases = read("losses_cases", "data_set == 'Dataset027_ACDC' and training == 1")
    cases["Dice"] = cases.filter(like="Dice_").mean(axis=1)
    values = cases.pivot(index="case", columns="trainer", values=metric)
    patients = pd.factorize(values.index.str.partition("_").get_level_values(0))[0]
    return Estimate.of_means((values[trainer] - values[other]).to_numpy()[:, None], patients).interval
