"""Where docs/paper.md claims that we agree with the paper, and where not, by its tables and our trainings."""

import re
from functools import cache

import pandas as pd
import pytest
from cells import read
from loss_tables import of_shares, paired
from tables import TABLES

from nnunet_nacl.paper.report import published
from tests.results.pages import ACDC, HIPPOCAMPUS, SINCE, in_usgra, means_of_the_paper, stated, trained

SEVEN = ["DiceCE", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]
"""The paper's losses."""


@cache
def signs(metric: str) -> tuple[dict[str, str], dict[str, str]]:
    """How NACL compares with others on Hippocampus and ACDC, as the table of statements writes it: <, > or ≈."""
    both = []
    for where, base in ((HIPPOCAMPUS, "NACL, again"), (ACDC, "NACL")):
        minus = {name: found[metric] for name, found in paired(where, base).items()}
        both.append({name: "<" if one[1] > 0 else ">" if one[2] < 0 else "≈" for name, one in minus.items()})
    return both[0], both[1]


def chosen(found: dict[str, str], *names: str) -> str:
    return "".join(found[name] for name in names)


def test_ece_and_cece() -> None:
    """By ECE the paper's order holds for LS and FL only; by CECE DiceCE is better everywhere."""
    hippocampus, acdc = signs("ECE foreground")
    assert chosen(hippocampus, "DiceCE, again", "LS", "ECP", "SVLS, again") == "<<≈>"
    assert chosen(acdc, "DiceCE", "SVLS", "LS", "FL", "MbLS", "ECP") == "≈<<<≈>"
    first = trained("Hippocampus", 25000)["ECE_foreground"]  # whose cases were not kept
    assert first["MbLS"] < first["NACL"] < first["FL"]
    hippocampus_trainings = [trained("Hippocampus", 25000, number) for number in (1, 2)]
    for rows in (*hippocampus_trainings, trained("ACDC", 6000), trained("WBC", 6000), in_usgra()):
        assert rows.loc["NACL", "CECE_foreground"] > rows.loc["DiceCE", "CECE_foreground"]
    theirs = means_of_the_paper()
    assert theirs["ECE"].idxmin() == theirs["CECE"].idxmin() == "NACL"


def test_dice_and_hd95() -> None:
    """DiceCE has the best of both, FL the worst Dice; in the paper NACL mostly has the best."""
    hippocampus, acdc = signs("Dice")
    assert chosen(hippocampus, "CE, again", "DiceCE, again", "DiceCE, a third time") == "≈<≈"
    assert chosen(acdc, "CE", "DiceCE") == "≈<"
    third, others = trained("Hippocampus", 25000, 3).loc["DiceCE"], trained("Hippocampus", 25000).loc[SEVEN[1:]]
    assert third["Dice"] < others["Dice"].max()
    assert third["HD95"] < others["HD95"].min()
    metrics = {"Dice": -1, "HD95": 1, "ECE_foreground": 1, "CECE_foreground": 1}
    for rows, place in ((trained("Hippocampus", 25000), 4), (trained("ACDC", 6000), 3)):
        seven = rows.loc[SEVEN]
        assert seven["Dice"].idxmax() == seven["HD95"].idxmin() == "DiceCE"
        assert seven["Dice"].idxmin() == seven["ECE_foreground"].idxmax() == seven["CECE_foreground"].idxmax() == "FL"
        assert rows.loc["ECP", "Dice"] == pytest.approx(rows.loc["CE", "Dice"], abs=0.001)
        ranks = sum((sign * seven[metric]).rank() for metric, sign in metrics.items()).sort_values()
        assert (ranks.index[0], ranks.index[place - 1]) == ("DiceCE", "NACL")
    cases = read("losses_cases", f"{ACDC} and training == 1 and not trainer.str.contains('{SINCE}')")  # the paper's, CE
    structures = cases.groupby("trainer")[["Dice_1", "Dice_2", "Dice_3"]]
    assert (structures.mean().idxmax() == "nnUNetTrainerDiceCE_paperSchedule_24epochs").all()
    theirs = published().query("table == 1 and structure == ''")
    theirs = theirs.pivot(index=["dataset", "metric"], columns="method", values="value")
    best = pd.concat([theirs.xs("DSC", level="metric").idxmax(axis=1), theirs.xs("HD", level="metric").idxmin(axis=1)])
    assert (best == "NACL").sum() == 10
    means = means_of_the_paper()
    assert means["DSC"].idxmin() == means["CECE"].idxmax() == "FL"


def test_constraint_prior_and_penalty() -> None:
    """l1 beats l2, the Gaussian the mean by Dice; logits and softmax differ by ECE over the union and by NLL."""
    dice, foreground, union = (signs(metric)[0] for metric in ("Dice", "ECE foreground", "ECE union"))
    variants = ("NACL softmax", "NACL Gaussian, σ = 1", "NACL l2")
    assert [chosen(found, *variants) for found in (dice, foreground)] == ["≈<<", "≈≈<"]
    assert union["NACL softmax"] == "<"
    stated("paper.md", f"NLL {-paired(HIPPOCAMPUS, 'NACL, again')['NACL softmax']['NLL'][0]:.2f} higher")


def test_logits() -> None:
    """NACL's of the true class is the farthest from others by mean |l|; signed, MbLS's is."""
    logits = read("logits").set_index(["method", "true_class", "logit"])[["mean", "mean_absolute"]].sort_index()
    for true in ("background", "anterior", "posterior"):
        leads = {
            method: logits.loc[(method, true, true)] - logits.loc[(method, true)].drop(true).max()
            for method in ("DiceCE", "LS", "MbLS", "SVLS", "NACL")
        }
        assert max(leads, key=lambda method: leads[method]["mean_absolute"]) == "NACL"
        assert leads["MbLS"]["mean"] > leads["NACL"]["mean"]
        svls, of_default = (logits.loc[(method, true, true), "mean"] for method in ("SVLS", "DiceCE"))
        assert (svls > 0.75 * of_default) == (true == "background")


def test_over_the_union() -> None:
    """SVLS is lower on Hippocampus; on ACDC NACL has the lowest ECE, from which others cannot be told."""
    hippocampus, acdc = signs("ECE union")
    assert (hippocampus["SVLS, again"], chosen(acdc, "MbLS", "SVLS", "CE")) == (">", "≈≈≈")
    assert trained("ACDC", 6000)["ECE_union"].idxmin() == "NACL"
    for rows, place in ((trained("ACDC", 6000), 5), (trained("Hippocampus", 25000), 4)):
        assert rows.loc[SEVEN, "CECE_union"].rank()["NACL"] == place


def test_ce_explains_most_of_it() -> None:
    """Without the Dice term its ECE is below DiceCE's, as are others'; by NLL CE and ECP are first, NACL is last."""
    for where, base, name in ((HIPPOCAMPUS, "DiceCE, again", "CE, again"), (ACDC, "DiceCE", "CE")):
        value, low, high = paired(where, base)[name]["ECE foreground"]
        assert high < 0
        stated("paper.md", f"{-value:.3f} ({-high:.3f} to {-low:.3f})")
    for rows in (trained("ACDC", 6000), trained("Hippocampus", 25000)):
        order = rows.loc[[*SEVEN, "CE"], "NLL"].sort_values().index.tolist()
        assert (set(order[:2]), set(order[-3:])) == ({"CE", "ECP"}, {"NACL", "FL", "LS"})
        lower = rows.loc[["NACL, λ = 0.01", "ECP", "MbLS"], "ECE_foreground"]
        assert (lower < rows.loc["DiceCE", "ECE_foreground"] - 0.015).all()


def test_fewer_training_cases() -> None:
    """DiceCE keeps its Dice, MbLS's and NACL's fall; ECE near hardly changes."""
    dice, ece, near = (of_shares()[metric].unstack() for metric in ("Dice", "ECE_foreground", "ECE_near"))
    ratios = (ece.loc[["MbLS", "NACL"]] / ece.loc["DiceCE"]).to_numpy()
    stated("paper.md", *(dice["100%"] - dice["25%"])[["MbLS", "NACL"]], f"{ratios.min():.2f} to {ratios.max():.2f}")
    assert dice.loc["DiceCE", "25%"] >= dice.loc["DiceCE", "100%"]
    assert len({*ece.loc[["MbLS", "NACL"]].idxmin()}) == 2
    assert (near.max(axis=1) - near.min(axis=1) < 0.0015).all()
    assert (dice[["25%", "50%"]].idxmax() == "DiceCE").all()


def test_nacl_and_svls_with_the_same_gaussian() -> None:
    """NACL's Dice is higher, and so are its ECE over the foreground and near; its NLL is twice as high."""
    for line in TABLES["paper-sigma"]().splitlines()[2:]:
        low, high = zip(*re.findall(r"\(([-+][\d.]+) to ([-+][\d.]+)\)", line.replace("−", "-")), strict=True)
        dice, foreground, union, nll, near = zip(map(float, low), map(float, high), strict=True)
        assert min(*dice, *foreground, *nll, *near) > 0
        assert union[0] < 0 < union[1]
    rows = trained("Hippocampus", 6000)
    for nacl, svls in ((1, "SVLS, σ = 1"), (2, "SVLS"), (3, "SVLS, σ = 3")):
        assert rows["NLL"][f"NACL Gaussian, σ = {nacl}"] / rows["NLL"][svls] == pytest.approx(2, abs=0.05)


def test_three_values_of_each_losss_setting() -> None:
    """Only FL's Dice depends on it; ECE, ECE near and NLL rise with that of NACL, FL and LS."""
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
        assert all(values[name][metric].is_monotonic_increasing for metric in ("ECE_foreground", "ECE_near", "NLL"))
        assert ranges["ECE_foreground"][name] > 0.03
    assert (ranges.loc[["ECP", "SVLS"], ["ECE_foreground", "NLL"]].max() < [0.006, 0.03]).all()
    assert all(values["MbLS"][metric].is_monotonic_decreasing for metric in ("NLL", "ECE_near"))
    scores = trained("Hippocampus", 25000)[["NLL", "Brier"]]
    assert (scores.loc[["NACL, λ = 0.01", "NACL, λ = 0.03"]].max() < scores.loc[["NACL", "NACL, λ = 0.3"]].min()).all()


def test_in_how_many_of_the_papers_data_sets_l1_and_the_mean_are_better() -> None:
    """By ECE in four of six each; by DSC l2 is ahead in four. Ours: after 1,500 steps, too; at hardly another Dice."""
    dsc = published().query("table == 4 and metric == 'DSC'").pivot(index="dataset", columns="method", values="value")
    assert (dsc["NACL l2"] > dsc["NACL"]).sum() == 4
    rows = published().query("table > 2 and metric == 'ECE'").drop_duplicates(["dataset", "method"])
    ece = rows.pivot(index="dataset", columns="method", values="value")
    assert [(ece["NACL"] < ece[other]).sum() for other in ("NACL l2", "NACL Gaussian")] == [4, 4]
    for steps in (1500, 6000):
        both = trained("Hippocampus", steps).loc[["NACL", "NACL l2"], "Dice"]
        assert both.max() - both.min() < 0.0045
    ours = trained("Hippocampus", 1500)
    mean, square, gaussian, softmax = (
        ours.loc[f"NACL{setting}"] for setting in ("", " l2", " Gaussian, σ = 1", " softmax")
    )
    assert softmax["ECE_foreground"] < mean["ECE_foreground"]
    assert mean["ECE_foreground"] < min(square["ECE_foreground"], gaussian["ECE_foreground"])
    assert mean["Dice"] < min(gaussian["Dice"], softmax["Dice"])
