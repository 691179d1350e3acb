"""The tables of README and the docs are those of docs/results/data, and so are the numbers in the text beside them."""

import math
import os
import re
import runpy
import sys
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from nnunet_nacl.metrics import Estimate, Interval
from nnunet_nacl.paper.experiments import read_study
from nnunet_nacl.paper.report import published
from nnunet_nacl.trainers import LOSSES, Recipe, parse_name
from nnunet_nacl.trainers._calibrated import STARTS_LATE

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from calibration_tables import checkpoints  # noqa: E402
from cells import crossed, fill, read, table  # noqa: E402
from models import loss_name  # noqa: E402
from tables import MARKED, TABLES, pages, written  # noqa: E402

MARKED_PAGES = [page for page in pages() if "<!-- table" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", MARKED_PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_data(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- table ") == len(MARKED.findall(text)) == text.count("<!-- end -->")
    assert text == written(text), f"{page}: run python benchmarks/tables.py"
    assert not re.search(r"\bnan\b", text)


def test_every_table_is_in_a_page() -> None:
    assert {name for page in MARKED_PAGES for _, name, _ in MARKED.findall(page.read_text("utf-8"))} == set(TABLES)


def test_a_table() -> None:
    rows = pd.DataFrame({"loss": ["CE", "NACL"], "steps": [500, 1500], "gap": [0.0126, -0.5], "low": [math.nan, 1]})
    assert table(rows, {"loss": "{loss}", "gap, steps": "{gap:+.2f}, {steps:,}", "low": "{low:.1f}"}) == (
        "| loss | gap, steps | low |\n|---|---|---|\n| CE | +0.01, 500 | – |\n| NACL | −0.50, 1,500 | 1.0 |\n"
    )
    columns = {"short": "steps == 500", "long": "steps == 1500"}
    assert crossed(rows, columns, "{gap}", by="loss") == (
        "| loss | short | long |\n|---|---|---|\n| CE | 0.0126 | – |\n| NACL | – | −0.5 |\n"
    )
    with pytest.raises(ValueError, match="at most one row of 'CE' for each of"):
        crossed(pd.concat([rows, rows]), columns, "{gap}", by="loss")
    assert fill("2026-11-22", {}) == "2026-11-22"


def test_a_page() -> None:
    page = "a\n<!-- table losses-usgra -->\nold\n<!-- end -->\nb\n"
    assert written(page) == "a\n<!-- table losses-usgra -->\n" + TABLES["losses-usgra"]() + "<!-- end -->\nb\n"
    with pytest.raises(ValueError, match="There is no table 'x'; expected one of"):
        written("<!-- table x -->\n<!-- end -->")


@pytest.mark.parametrize(
    ("page", "data", "others"),
    [
        ("results/losses.md", ["losses", "losses_paired", "checkpoints", "calibrate"], set()),
        # The most Dice lost.
        ("results/losses-short.md", ["losses", "calibrate"], {"0.008", "0.060"}),
        ("results/last-layer.md", ["calibrate"], set()),
        ("limitations.md", ["calibrate", "checkpoints"], set()),
        ("paper.md", ["losses"], {"0.867", "0.868"}),  # the paper's
        ("tutorial.md", ["checkpoints", "losses"], {"0.079", "0.019"}),  # of review -gt
        ("use.md", ["use", "members", "losses"], set()),
        ("yardstick.md", ["losses"], set()),
        (
            "results/calibrate.md",
            ["checkpoints", "ensemble", "few_cases", "resampled"],
            # The means over the models, Dice without one image.
            {"0.842", "0.593", "0.614", "1.861", "1.553", "1.578", "0.751"},
        ),
    ],
)
def test_numbers_in_the_text(page: str, data: list[str], others: set[str]) -> None:
    """Those with three or four decimals, outside of the tables and the code, are in the data, wherever.

    What is said with them is tested below.
    """
    text = re.sub(r"```.*?```", "", MARKED.sub("", (ROOT / "docs" / page).read_text("utf-8")), flags=re.DOTALL)
    values = [abs(value) for name in data for value in read(name).select_dtypes("number").to_numpy().ravel()]
    known = {f"{value:.{digits}f}" for value in values for digits in (3, 4)}
    assert (found := set(re.findall(r"(?<![\d/])\d\.\d{3,4}\b", text)))
    assert not found - known - others


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


def test_what_readme_says() -> None:
    long, acdc = trained("Hippocampus", 25000), trained("ACDC", 6000)
    small = "NACL, λ = 0.01"
    said(
        "../README.md",
        "NACL, with the paper's λ = 0.1, lowers DiceCE's ECE over foreground (on ACDC, perhaps by chance) and union at "
        f"nearly its Dice (on ACDC, {acdc.loc['DiceCE', 'Dice'] - acdc.loc['NACL', 'Dice']:.3f} below), but is "
        "under-confident, with higher CECE and NLL and, on regions, ECE.",
        "With λ = 0.01 it is well calibrated near the structures, as is plain cross-entropy, whose NLL is lower at the "
        "same Dice. On ACDC, DiceCE has the highest Dice.",
        "`calibrate` gives an existing DiceCE model most of that, and hardly changes segmentations.",
    )
    written = read("checkpoints", "checkpoint == 'best' and fold == '0' and training == 1").set_index("trainer")
    for rows in (long, acdc):
        dice_ce, ce, nacl = (rows.loc[name] for name in ("DiceCE", "CE", "NACL"))
        for metric in ("ECE_foreground", "ECE_union"):
            assert nacl[metric] < dice_ce[metric]
        for metric in ("CECE_foreground", "NLL"):
            assert nacl[metric] > dice_ce[metric]
        assert nacl["over_confidence"] < -0.02
        assert max(ce["ECE_near"], rows.loc[small, "ECE_near"]) < 0.01
        assert ce["NLL"] < rows.loc[small, "NLL"]
        assert rows.loc[small, "Dice"] == pytest.approx(ce["Dice"], abs=0.001)
        calibrated = written.loc[dice_ce["trainer"]]
        assert dice_ce["NLL"] - calibrated["NLL"] > 0.7 * (dice_ce["NLL"] - ce["NLL"])
        assert dice_ce["ECE_near"] - calibrated["ECE"] > 0.7 * (dice_ce["ECE_near"] - ce["ECE_near"])
        assert dice_ce["Dice"] == pytest.approx(calibrated["Dice"], abs=0.001)
    assert abs(long.loc["DiceCE", "Dice"] - long.loc["NACL", "Dice"]) < 0.002
    assert acdc["Dice"].idxmax() == "DiceCE"
    low, high = interval_by_patient("ECE_foreground", acdc.loc["NACL", "trainer"], acdc.loc["DiceCE", "trainer"])
    assert low < 0 < high
    wbc = trained("WBC", 2000)
    assert wbc.loc["NACL", "ECE_foreground"] > wbc.loc["DiceCE", "ECE_foreground"]


def test_what_we_advise() -> None:
    long, acdc = trained("Hippocampus", 25000), trained("ACDC", 6000)
    nll, near, dice = (long[metric].map("{:.3f}".format) for metric in ("NLL", "ECE_near", "Dice"))
    small, larger = "NACL, λ = 0.01", "NACL, λ = 0.03"
    both = f"{nll[small]} or {nll[larger]}"
    of_acdc = acdc[["Dice", "NLL"]].map("{:.3f}".format)
    assert of_acdc.loc[small, "Dice"] == of_acdc.loc["CE", "Dice"]
    said(
        "questions.md",
        "With the paper's λ = 0.1, NACL halves DiceCE's ECE over foreground and union, but is under-confident: its NLL "
        f"is {nll['NACL']} (DiceCE {nll['DiceCE']}, CE {nll['CE']}).",
        f"With λ = 0.01 or 0.03 it keeps these gains, and its NLL is {both}.",
        "On ACDC, after 6,000 steps, NACL with λ = 0.01 and CE have the same Dice "
        f"({of_acdc.loc['CE', 'Dice']}). CE's NLL is {of_acdc.loc['CE', 'NLL']}, NACL's {of_acdc.loc[small, 'NLL']}. "
        f"DiceCE's Dice is {of_acdc.loc['DiceCE', 'Dice']}, its NLL {of_acdc.loc['DiceCE', 'NLL']}.",
    )
    assert dice[small] == dice["NACL"]
    said(
        "train.md",
        f"at the same Dice ({dice[small]}), its NLL is {nll[small]} in place of {nll['NACL']}, its ECE near "
        f"{near[small]} in place of {near['NACL']}.",
    )
    ece = long[["ECE_foreground", "ECE_union"]]
    first, second = (ece.loc[name].map("{:.3f}".format) for name in ("NACL", "DiceCE"))
    said(
        "tutorial.md",
        f"{first.iloc[0]} over the foreground and {first.iloc[1]} over the union (DiceCE: {second.iloc[0]} and "
        f"{second.iloc[1]}). By NLL it is worse, with {nll['NACL']} (DiceCE: {nll['DiceCE']}), because",
        f"With λ = 0.01 the NLL is {nll[small]}.",
    )
    assert (ece.loc[[small, larger], "ECE_union"] < 0.6 * ece.loc["DiceCE", "ECE_union"]).all()


def test_what_starts_late() -> None:
    sgd = read("losses", "data_set == 'Dataset004_Hippocampus' and optimizer == 'SGD' and fold == '0'")
    short, long = (sgd[sgd["steps"] == steps].groupby("method")["Dice"].max() for steps in (1500, 25000))
    adam = trained("Hippocampus", 1500)["Dice"]
    apart = (long["DiceCE"] - long[["CE", "NACL"]]).max()
    said(
        "train.md",
        f"After 1,500 steps on Hippocampus, CE's Dice was {short['CE']:.3f}, DiceCE's {short['DiceCE']:.3f} and "
        f"DiceNACL's {short['DiceNACL']:.3f}; after 25,000 steps CE and NACL were within "
        f"{math.ceil(1000 * apart) / 1000:.3f} of DiceCE. With Adam, CE had {adam['CE']:.3f} and NACL "
        f"{adam['NACL']:.3f} after 1,500 steps.",
    )
    told = f"CE had a Dice of {short['CE']:.3f} after 1,500 steps, DiceCE {short['DiceCE']:.3f}."
    assert told in STARTS_LATE


def interval_by_patient(metric: str, trainer: str, other: str) -> Interval:
    """Of the difference of two trainings on ACDC, whose cases are two images of each patient."""
    cases = read("losses_cases", "data_set == 'Dataset027_ACDC' and training == 1")
    values = cases.pivot(index="case", columns="trainer", values=metric)
    patients = pd.factorize(values.index.str.partition("_").get_level_values(0))[0]
    return Estimate.of_means((values[trainer] - values[other]).to_numpy()[:, None], patients).interval


def test_what_the_long_trainings_say() -> None:
    said(
        "results/losses.md",
        "NACL halves the ECE of nnU-Net's default loss (DiceCE) at nearly its Dice.",
        "(CE) gets most of that gain and, with ECP, the lowest NLL.",
        "By ECE, NACL is better calibrated than DiceCE, as in the paper, but by CECE over the foreground worse. "
        "CE, SVLS, MbLS and ECP have a lower ECE over the foreground than NACL, and SVLS over the union, too.",
        "By NLL, NACL is worse than CE and DiceCE.",
        "By the Brier score it lies between CE ({:.3f}) and DiceCE: {:.3f} and {:.3f}.".format(
            *trained("Hippocampus", 25000).loc[["CE", "NACL", "DiceCE"], "Brier"]
        ),
    )
    both = ["ECE_foreground", "ECE_union"]
    first = trained("Hippocampus", 25000)
    first = first[~first.index.str.contains("softmax")]  # a variant, below
    for rows in (first, trained("Hippocampus", 25000, 2)):
        dice_ce, ce, nacl, svls = (rows.loc[name] for name in ("DiceCE", "CE", "NACL", "SVLS"))
        assert (nacl[both] / dice_ce[both]).between(0.45, 0.55).all()
        assert (dice_ce[both] - ce[both] > 0.5 * (dice_ce[both] - nacl[both])).all()
        assert (svls[both] < nacl[both]).all()
        assert nacl["CECE_foreground"] > dice_ce["CECE_foreground"]
        assert nacl["NLL"] > dice_ce["NLL"] > ce["NLL"]
        assert 0 < dice_ce["Dice"] - nacl["Dice"] < 0.003
    assert set(first["NLL"].nsmallest(2).index) == {"CE", "ECP"}
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 25000")
    repeated = rows.groupby(["trainer", "fold"])[["NLL", "Dice"]].agg(["size", np.ptp])
    assert (repeated["NLL", "size"] == 2).sum() == 6
    said(
        "results/losses.md",
        f"by at most {repeated['NLL', 'ptp'].max():.3f} in NLL and {repeated['Dice', 'ptp'].max():.3f} in Dice.",
    )
    lower = first.index[first["ECE_foreground"] < first.loc["NACL", "ECE_foreground"]]
    assert {name for name in lower if "λ" not in name} == {"CE", "SVLS", "MbLS", "ECP", "ECP (sum)"}


def test_how_far_a_smaller_weight_is_ahead_of_ce() -> None:
    """By both trainings of CE, of which the table has the second."""
    small = trained("Hippocampus", 25000).loc["NACL, λ = 0.03"]
    first, again = (trained("Hippocampus", 25000, training).loc["CE"] for training in (1, 2))
    union, foreground = (
        f"{first[ece] - small[ece]:.3f} and {again[ece] - small[ece]:.3f}" for ece in ("ECE_union", "ECE_foreground")
    )
    apart = abs(first["ECE_foreground"] - again["ECE_foreground"])
    said(
        "results/losses.md",
        f"By ECE over the union, λ = 0.03 is ahead of CE, by {union} of its two trainings. "
        f"Over the foreground it is by {foreground}, but the two differ by {apart:.3f}. By CECE it is not.",
    )
    for voxels in ("foreground", "union"):
        cece = f"CECE_{voxels}"
        assert first[cece] < small[cece] < again[cece]


def test_what_the_short_trainings_say() -> None:
    said(
        "results/losses-short.md",
        "After 1,000 to 6,000 steps of Adam, cross-entropy alone (CE) has the lowest NLL of the study's losses on "
        "Hippocampus and USGRA (on ACDC after 6,000), and DiceCE is over-confident.",
        "Nothing that we tried does both in each of these short trainings.",
    )
    study = {method.name for method in read_study("main").methods}
    for data_set, steps in (("Hippocampus", 1500), ("Hippocampus", 3000), ("Hippocampus", 6000), ("USGRA", 1000)):
        rows = trained(data_set, steps)
        assert rows.loc[rows.index.isin(study), "NLL"].idxmin() == "CE"
        assert rows.loc["DiceCE", "over_confidence"] > 0
    acdc = trained("ACDC", 2000)
    long = trained("ACDC", 6000)
    assert (acdc["NLL"].idxmin(), long["NLL"].idxmin()) == ("DiceCE", "CE")
    assert (long["NLL"]["DiceCE"] > long["NLL"][["CE", "NACL, λ = 0.01"]]).all()
    ahead = [rows.loc["DiceCE", "Dice"] - rows.loc["NACL, λ = 0.01", "Dice"] for rows in (acdc, long)]
    nacl_6000, ce_6000 = long["NLL"][["NACL, λ = 0.01", "CE"]]
    dice_ce, nacl = (trained("WBC", 2000).loc[name] for name in ("DiceCE", "NACL"))
    said(
        "results/losses.md",
        f"NACL has an NLL of {nacl['NLL']:.3f} (DiceCE {dice_ce['NLL']:.3f}) and a Dice of {nacl['Dice']:.3f} "
        f"({dice_ce['Dice']:.3f}). By the paper's metrics, too, it is worse: ECE foreground "
        f"{nacl['ECE_foreground']:.3f} ({dice_ce['ECE_foreground']:.3f}), union {nacl['ECE_union']:.3f} "
        f"({dice_ce['ECE_union']:.3f}).",
        "On ACDC, λ = 0.01 has a higher Dice than CE after 2,000 steps, by 0.014 (0.004 to 0.030), but not after "
        "6,000. There neither Dice nor ECE tells the two apart, and CE's NLL is lower by "
        f"{nacl_6000 - ce_6000:.3f}.",
        f"DiceCE's Dice is {ahead[0]:.3f} higher. After 6,000 it is by {ahead[1]:.3f}, and its NLL is above both.",
    )


def test_penalty_prior_and_constraint_at_length() -> None:
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 6000 and optimizer == 'Adam'")
    ece, nll, near = (rows.groupby("method")[metric].mean() for metric in ("ECE_foreground", "NLL", "ECE_near"))
    assert ece["NACL"] == pytest.approx(ece["NACL Gaussian, σ = 1"], abs=0.001)
    for metric in (ece, nll, near):
        assert metric["NACL l2"] > metric["NACL"]
    said(
        "results/losses-short.md",
        "After 25,000 steps, too, the two are alike by every metric. ECE over the union is 0.080 then, 0.068 with the "
        "penalty on logits.",
        f"After 6,000 steps the NLLs are {nll['NACL']:.3f} and {nll['NACL Gaussian, σ = 1']:.3f}, ECE near "
        f"{near['NACL']:.3f} and {near['NACL Gaussian, σ = 1']:.3f}.",
        "l1 (NACL's default) is better calibrated than l2, as in the paper, also after 6,000 steps.",
    )
    said(
        "paper.md",
        "Ours has the lower ECE over the foreground on softmax, also after 25,000 steps, but there it is no better "
        "than CE.",
        "After 6,000 steps mean and Gaussian have the same ECE, and l2 a higher one.",
    )
    rows = trained("Hippocampus", 25000)
    again = trained("Hippocampus", 25000, 2).loc["CE"]
    ce, softmax, nacl = (rows.loc[name] for name in ("CE", "NACL softmax", "NACL"))
    for metric in ("Dice", "NLL", "ECE_near", "ECE_foreground", "CECE_foreground", "ECE_union"):
        assert abs(softmax[metric] - ce[metric]) <= 1.1 * abs(again[metric] - ce[metric])
    assert [f"{one['ECE_union']:.3f}" for one in (softmax, nacl)] == ["0.080", "0.068"]
    assert softmax["ECE_foreground"] < nacl["ECE_foreground"]


def test_where_we_agree_with_the_paper_and_where_not() -> None:
    said(
        "paper.md",
        "They agree: NACL has about half the ECE of DiceCE, and a lower one than LS and FL. FL has the lowest Dice and "
        "the highest CECE.",
        "They differ: here FL has the highest ECE, in the paper DiceCE. NACL's ECE is not below that of SVLS, MbLS and "
        "ECP. Its CECE is above DiceCE's, its Dice no higher.",
    )
    theirs = means_of_the_paper()
    names = {"Dice": "DSC", "ECE_foreground": "ECE", "CECE_foreground": "CECE"}
    long = trained("Hippocampus", 25000).rename(columns=names)
    ours = long.loc[theirs.index]
    for rows in (ours, theirs):
        ece = rows["ECE"]
        assert ece["NACL"] / ece["DiceCE"] == pytest.approx(0.5, abs=0.05)
        assert (ece["NACL"] < ece[["LS", "FL"]]).all()
        assert rows["DSC"].idxmin() == rows["CECE"].idxmax() == "FL"
    assert (ours["ECE"].idxmax(), theirs["ECE"].idxmax()) == ("FL", "DiceCE")
    assert (ours.loc["NACL", "ECE"] > long.loc[["SVLS", "MbLS", "ECP", "ECP (sum)"], "ECE"]).all()
    assert ours.loc["NACL", "CECE"] > ours.loc["DiceCE", "CECE"]
    assert ours.loc["NACL", "DSC"] <= ours.loc["DiceCE", "DSC"]
    assert theirs["DSC"].idxmax() == theirs["ECE"].idxmin() == theirs["CECE"].idxmin() == "NACL"


def test_where_we_agree_with_the_paper_on_acdc() -> None:
    rows = trained("ACDC", 6000)
    ece = rows["ECE_foreground"]
    low, high = interval_by_patient("ECE_foreground", rows.loc["NACL", "trainer"], rows.loc["DiceCE", "trainer"])
    gap = f"{ece['DiceCE'] - ece['NACL']:.3f}, over patients {-high:.3f} to {-low:.3f}".replace("-", "−")
    said(
        "paper.md",
        f"After 6,000 steps they agree: NACL has a lower ECE than DiceCE (by {gap}), SVLS, LS and FL, which has the "
        "lowest Dice and the highest ECE and CECE. They differ: MbLS's ECE is no higher than NACL's, and CE, which the "
        "paper does not test, has the lowest. NACL's Dice is lower than DiceCE's and its CECE higher, also with "
        "λ = 0.01 and after 2,000 steps. The paper ranks NACL first by each mean. Here DiceCE is first by all but ECE. "
        "By NLL, NACL with λ = 0.1, FL and LS are last.",
    )
    for other in ("SVLS", "LS", "FL"):
        assert interval_by_patient("ECE_foreground", rows.loc["NACL", "trainer"], rows.loc[other, "trainer"])[1] < 0
    assert ece["MbLS"] < ece["NACL"]
    assert ece.idxmin() == "CE"
    assert rows["NLL"].nsmallest(8).index[-3:].tolist() == ["NACL", "FL", "LS"]
    assert rows["Dice"].idxmin() == ece.idxmax() == rows["CECE_foreground"].idxmax() == "FL"
    for length in (rows, trained("ACDC", 2000)):
        assert length["Dice"].idxmax() == length["HD95"].idxmin() == length["CECE_foreground"].idxmin() == "DiceCE"
    theirs = published().query("dataset == 'ACDC' and table in (1, 2)")
    means = theirs.groupby(["metric", "method"])["value"].mean()
    for metric, best in (("DSC", max), ("HD", min), ("ECE", min), ("CECE", min)):
        assert best(means[metric].items(), key=lambda pair: pair[1])[0] == "NACL"
    assert means["DSC"].idxmin() == means["ECE"].idxmax() == means["CECE"].idxmax() == "FL"


def test_nacl_and_svls_with_the_same_gaussian() -> None:
    said(
        "paper.md",
        "They agree: with the same Gaussian, NACL has the higher Dice. They differ: its ECE over the foreground is "
        "higher, too, as is ECE near, over the union about the same, and its NLL twice as high.",
    )
    lines = TABLES["paper-sigma"]().splitlines()[2:]
    for line in lines:
        low, high = zip(*re.findall(r"\(([-+][\d.]+) to ([-+][\d.]+)\)", line.replace("−", "-")), strict=True)
        dice, foreground, union, nll, near = zip(map(float, low), map(float, high), strict=True)
        assert min(*dice, *foreground, *nll, *near) > 0
        assert union[0] < 0 < union[1]
    rows = trained("Hippocampus", 6000)
    for nacl, svls in ((1, "SVLS, σ = 1"), (2, "SVLS"), (3, "SVLS, σ = 3")):
        assert rows["NLL"][f"NACL Gaussian, σ = {nacl}"] / rows["NLL"][svls] == pytest.approx(2, abs=0.05)


def test_three_values_of_each_losss_setting() -> None:
    said(
        "paper.md",
        "They agree in Dice: only FL's depends much on the setting, and NACL's hardly. They differ in calibration: the "
        "paper finds NACL consistent and the others sensitive. Here ECE over the foreground, ECE near and NLL rise "
        "with NACL's λ as with the settings of FL and LS; MbLS's NLL and ECE near fall with its margin, and ECP and "
        "SVLS hardly react.",
        "After 25,000 steps smaller λ have better proper scores.",
    )
    metrics = ["Dice", "ECE_foreground", "ECE_union", "NLL", "ECE_near"]
    values = {}
    for line in TABLES["paper-hyperparameters"]().splitlines()[2:]:
        name, *cells = line.strip("| ").split(" | ")
        of_loss = [[float(value) for value in cell.split(", ")] for cell in cells]
        values[name.partition(":")[0]] = pd.DataFrame(dict(zip(metrics, of_loss, strict=True)))
    ranges = pd.DataFrame({name: of_loss.max() - of_loss.min() for name, of_loss in values.items()}).T
    assert ranges["Dice"]["FL"] > 0.012
    assert ranges["Dice"].drop("FL").max() <= 0.006
    for name in ("NACL", "FL", "LS"):
        for metric in ("ECE_foreground", "ECE_near", "NLL"):
            assert values[name][metric].is_monotonic_increasing
        assert ranges["ECE_foreground"][name] > 0.03
    for name in ("ECP", "SVLS"):
        assert ranges["ECE_foreground"][name] < 0.006
        assert ranges["NLL"][name] < 0.03
    assert values["MbLS"]["NLL"].is_monotonic_decreasing
    assert values["MbLS"]["ECE_near"].is_monotonic_decreasing
    scores = trained("Hippocampus", 25000)[["NLL", "Brier"]]
    smaller = scores.loc[["NACL, λ = 0.01", "NACL, λ = 0.03"]]
    larger = scores.loc[["NACL", "NACL, λ = 0.3"]]
    assert (smaller.max() < larger.min()).all()


def test_in_how_many_of_the_papers_data_sets_l1_and_the_mean_are_better() -> None:
    said(
        "paper.md",
        "The paper's ECE is lower with l1 than with l2 on four of six data sets, and with the mean than with the "
        "Gaussian on four. So is ours after 1,500 steps, but our Gaussian has the higher DSC.",
    )
    rows = published().query("table > 2 and metric == 'ECE'").drop_duplicates(["dataset", "method"])
    ece = rows.pivot(index="dataset", columns="method", values="value")
    assert (ece["NACL"] < ece["NACL l2"]).sum() == 4
    assert (ece["NACL"] < ece["NACL Gaussian"]).sum() == 4
    ours = trained("Hippocampus", 1500)
    mean, square, gaussian, softmax = (
        ours.loc[f"NACL{setting}"] for setting in ("", " l2", " Gaussian, σ = 1", " softmax")
    )
    assert mean["ECE_foreground"] < min(square["ECE_foreground"], gaussian["ECE_foreground"])
    assert mean["Dice"] < gaussian["Dice"]
    assert softmax["Dice"] > mean["Dice"]
    assert softmax["ECE_foreground"] < mean["ECE_foreground"]


def test_what_calibrated_checkpoints_say() -> None:
    rows = checkpoints()
    fall = 1 - rows["NLL_best"] / rows["NLL_trained"]
    of_default = fall[rows["model"].str.startswith("DiceCE")]
    relabeled = rows["changed_best"].max()
    loses = rows["Dice_trained"] - rows["Dice_best"]
    worst = loses.idxmax()
    assert rows.loc[worst, "data_set"] == "Dataset051_USGRA"
    assert loses.drop(worst).max() <= 0.001
    better = (rows["NLL_best"] < rows["NLL_temperature"]).groupby(rows["model"].str.split(" Adam| SGD").str[0]).all()
    assert set(better.index[~better]) == {"CE"}
    hippocampus, usgra = (rows.loc[rows["data"] == data] for data in ("Hippocampus", "USGRA"))
    names = ["NLL_trained", "NLL_best", "NLL_temperature"]
    said(
        "results/calibrate.md",
        f"lowers the NLL of nnU-Net's default loss (DiceCE) by {100 * of_default.min():.0f} to "
        f"{100 * of_default.max():.0f} %",
        f"but one pixel cost {loses[worst]:.3f} Dice. At most {100 * relabeled:.1f} % of the foreground is relabeled, "
        "and in all other models Dice falls by at most 0.001.",
        "The written checkpoint beats a temperature in each model of DiceCE, ECP (sum), LS, MbLS, NACL and SVLS. Over "
        f"all {len(hippocampus)} models of Hippocampus the mean NLL falls from "
        "{:.3f} to {:.3f} (temperature: {:.3f}), over ".format(*hippocampus[names].mean())
        + f"the {len(usgra)} of USGRA from "
        + "{:.3f} to {:.3f} ({:.3f}).".format(*usgra[names].mean()),
    )
    said("../README.md", f"at most {100 * relabeled:.1f} % of the predicted foreground got another label")
    said(
        "limitations.md",
        f"A new last layer relabels up to {100 * relabeled:.1f} % of the foreground.",
        f"rounding: up to {100 * rows['changed_temperature'].max():.2f} %",
    )


def test_from_how_many_cases_on_a_head_is_better() -> None:
    rows = read("few_cases", "method.str.contains(' cases, ')")
    rows[["of", "cases", "draw"]] = rows["method"].str.extract(r"(\w+) of (\d+) cases, (\d+)")
    nll = rows.pivot(index=["cases", "draw"], columns="of", values="NLL")
    wins = (nll["head"] < nll["temperature"]).groupby("cases").sum()
    assert (rows["NLL_minus_as_trained"] < 0).all()
    said(
        "results/calibrate.md",
        "From ten cases on, head beats a temperature fitted to the same cases in at least "
        f"{wins.drop('5').min()} of 20 draws. With five it loses in {20 - wins['5']}, yet every draw is better than",
    )


def test_what_is_left_of_a_gain_that_is_not_chosen() -> None:
    rows = read("calibrate", "nested_NLL.notna() and method == 'as trained'")
    above = rows["nested_NLL"] - rows["held_out_NLL_written"]
    assert len(rows) == 12
    assert above.min() >= 0
    small = rows["data_set"].str.endswith("Hippocampus") & rows["trainer"].str.contains("TrainerCE|TrainerECP")
    left = (rows["held_out_NLL"] - rows["nested_NLL"])[small]
    assert len(left) == 3
    said(
        "results/calibrate.md",
        f"In twelve longer trainings it is higher by 0 to {above.max():.3f}. On Hippocampus that leaves CE and ECP "
        f"(sum) a gain of at most {math.ceil(1000 * left.max()) / 1000:.3f}.",
    )


def test_what_a_last_layer_says_that_may_change_labels() -> None:
    rows = read("calibrate", "decoded.isna() and data_set.str.endswith('Hippocampus') and configuration == '2d_bs8'")
    some = rows[rows["trainer"].str.contains("TrainerDiceCE|TrainerNACL|TrainerLS")]
    changed = some.loc[some["method"] == "head by CE alone", "changed"]
    said(
        "results/last-layer.md",
        f"For DiceCE, NACL and LS it then relabels {100 * changed.min():.0f} to {100 * changed.max():.0f} % of the",
        "Isotonic regression has the lowest NLL in 2D for DiceCE, NACL and LS after 25,000 steps.",
    )
    said(
        "limitations.md", "After 25,000 steps of DiceCE, isotonic regression, which no checkpoint can hold, had a lower"
    )
    for (trainer, _), of_model in rows.groupby(["trainer", "training"]):
        nll = of_model.set_index("method")["NLL"]
        lowest = re.search("TrainerDiceCE|TrainerNACL|TrainerLS", trainer) and "300epochs" not in trainer
        assert (nll.idxmin() == "isotonic") == bool(lowest), trainer
        if re.search("TrainerCE|TrainerECP", trainer):
            assert nll["isotonic"] > nll["as trained"], trainer


def test_which_cases_were_kept() -> None:
    said("results/losses.md", "has each case of those of 2,000 steps or more since 2026-11-25.")
    model = ["data_set", "configuration", "trainer", "fold", "training"]
    since = read("losses", "date >= '2026-11-25' and steps >= 2000")
    assert {*since[model].itertuples(index=False)} == {*read("losses_cases")[model].itertuples(index=False)}


def test_what_nacl_takes_on_a_gpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \d+ × .*", page, re.MULTILINE)
    times = [[float(value) for value in re.findall(r"([\d.]+)\** \(", line)] for line in lines]
    memory = sorted(re.findall(r"\(([\d.]+)\)", line)[3] for line in lines)
    ratios = [nacl / nnunet for _, nnunet, _, nacl, _ in times]
    assert len(ratios) == 4
    said("install.md", f"NACL takes at most 1.5 times theirs on a CPU, {memory[0]} to {memory[-1]} times on a GPU.")
    said("performance.md", f"NACL takes {min(ratios):.2f} to {max(ratios):.2f} times the time of nnU-Net's Dice + CE.")


def test_what_the_logits_say() -> None:
    said(
        "logits.md",
        "NACL leaves the logits of other classes near 0, where the other four losses make them negative. LS, MbLS and, "
        "in the structures, SVLS have lower logits of the true class.",
        "half of all voxels lie within 0.3 of each other, about 4",
    )
    mean = read("logits").set_index(["method", "true_class", "logit"]).sort_index()["mean"]
    classes = ["background", "anterior", "posterior"]
    for true in classes:
        others = [name for name in classes if name != true]
        for method in ("DiceCE", "LS", "MbLS", "SVLS"):
            assert (mean[method, true][others] < -0.5).all()
            lower = mean[method, true, true] < mean["NACL", true, true]
            assert lower or method == "DiceCE" or (method, true) == ("SVLS", "background")
        assert mean["NACL", true][others].abs().max() < 0.6
    quantiles = read("max_logits", "method == 'NACL'")
    assert (quantiles["half_within"] <= 0.3).all()
    assert quantiles["median"].between(3.9, 4.1).all()


def test_recorded_costs_are_within_their_bounds() -> None:
    """Of docs/performance.md and docs/install.md: evaluation, single functions, and the memory of our losses."""
    for name, values in (("evaluation_time", ["dense", "saturated"]), ("function_time", ["times"])):
        rows = read(name, "bound.notna()")
        assert len(rows) >= 2
        assert (rows[values].max(axis=1) <= rows["bound"]).all(), name
    losses = read("loss_time", "not loss.str.contains('at once|F.cross|nnU-Net|MONAI')")
    assert set(losses["loss"]) >= set(LOSSES)
    assert (losses["memory"] <= 1.5).all()


def test_what_a_cap_costs_on_hippocampus() -> None:
    data = Path(os.environ.get("NNUNET_NACL_DATA", ROOT / ".." / "shared" / "datasets"))
    folder = data / "Dataset004_Hippocampus" / "labelsTs"
    if not folder.is_dir():
        pytest.skip(f"there is no {folder}")
    labels = [np.asarray(nibabel.load(file).dataobj) for file in folder.glob("*.nii.gz")]
    size = sum(one.size for one in labels) / sum(np.count_nonzero(one) for one in labels)
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and NLL_cap.notna()")
    caps = rows["method"].map(lambda name: 1 - 0.1 * 2 / 3 if name == "LS" else 1 - 0.1 / 3)
    assert rows["NLL_cap"].to_list() == pytest.approx(-np.log(caps) * size, abs=0.0005)
    assert f"{size:.1f} voxels" in (ROOT / "docs" / "results" / "losses-short.md").read_text(encoding="utf-8")


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
    return recipe.loss, recipe.dice, recipe.settings


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda script: script.stem)
def test_what_a_benchmark_imports_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(script.parent)
    runpy.run_path(str(script), run_name="imported")
