"""What README and the docs claim of the losses, by the data of our trainings."""

import math
import os
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest
from cells import read
from loss_tables import paired

from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.trainers._calibrated import STARTS_LATE
from tests.results import ROOT
from tests.results.pages import HIPPOCAMPUS, SINCE, in_usgra, means, stated, trained

SMALL = "NACL, λ = 0.01"
ERRORS = ["ECE_foreground", "ECE_union"]
LONG, ON_ACDC = ("Dataset004_Hippocampus", 25000), ("Dataset027_ACDC", 6000)


@pytest.mark.parametrize("case", [LONG, ON_ACDC])
def test_readme_on_nacl_and_ce(case: tuple[str, int]) -> None:
    """NACL halves ECE over the union and is under-confident; CE and a small λ get most of that at a lower NLL."""
    rows = means(*case)
    dice_ce, ce, nacl, small = (rows.loc[name] for name in ("DiceCE", "CE", "NACL", SMALL))
    assert nacl["ECE_union"] / dice_ce["ECE_union"] == pytest.approx(0.5, abs=0.06)
    assert (nacl[ERRORS] < dice_ce[ERRORS]).all()
    assert (dice_ce[ERRORS] - ce[ERRORS] > 0.8 * (dice_ce[ERRORS] - nacl[ERRORS])).all()
    assert nacl["NLL"] > dice_ce["NLL"]
    assert ce["NLL"] < small["NLL"]
    assert nacl["over_confidence"] < -0.02
    assert max(ce["ECE_near"], small["ECE_near"]) < 0.01
    assert min(one["CECE_foreground"] for one in (ce, small, nacl)) > dice_ce["CECE_foreground"]
    assert small["Dice"] == pytest.approx(ce["Dice"], abs=0.001)


def test_readme_on_single_data_sets() -> None:
    """On Hippocampus NACL halves ECE over the foreground, too; its ECE near rises there, not on ACDC and USGRA."""
    long, acdc, usgra, wbc = means(*LONG), means(*ON_ACDC), in_usgra(), trained("WBC", 6000)
    assert abs(long.loc["DiceCE", "Dice"] - long.loc["NACL", "Dice"]) < 0.002
    assert long.loc["NACL", "ECE_near"] > long.loc["DiceCE", "ECE_near"]
    assert acdc.loc["NACL", "ECE_near"] < acdc.loc["DiceCE", "ECE_near"]
    assert (usgra.loc["NACL", ["NLL", "ECE_near"]] < usgra.loc["DiceCE", ["NLL", "ECE_near"]]).all()
    assert (wbc.loc["NACL", [*ERRORS, "ECE_near"]] > wbc.loc["DiceCE", [*ERRORS, "ECE_near"]]).all()
    lost = acdc.loc["DiceCE", "Dice"] - acdc.loc[["CE", SMALL, "NACL"], "Dice"]
    stated("../README.md", f"{lost.min():.3f} to {lost.max():.3f} Dice on ACDC")


@pytest.mark.parametrize("case", [LONG, ON_ACDC])
def test_readme_on_calibrate(case: tuple[str, int]) -> None:
    """It gives a DiceCE model most of CE's gain, and hardly changes segmentations."""
    rows = means(*case)
    of_default = "checkpoint == 'best' and fold == '0' and trainer.str.startswith('nnUNetTrainerDiceCE_paper')"
    written = read("checkpoints", of_default).dropna(subset="ECE_foreground").set_index(["data_set", "steps"])
    own = read("losses", "method == 'DiceCE' and optimizer == 'Adam'").set_index(["data_set", "steps", "training"])
    calibrated = written.loc[[case]].mean(numeric_only=True)
    dice_ce, ce = rows.loc["DiceCE"], rows.loc["CE"]
    for metric, of_calibrated in (("NLL", "NLL"), ("ECE_near", "ECE"), *zip(ERRORS, ERRORS, strict=True)):
        assert dice_ce[metric] - calibrated[of_calibrated] > 0.7 * (dice_ce[metric] - ce[metric])
    before = own.loc[[(*case, training) for training in written.loc[[case], "training"]], "Dice"]
    assert before.mean() == pytest.approx(calibrated["Dice"], abs=0.001)


def test_what_we_advise() -> None:
    """CE does as well as λ = 0.01, at a lower NLL; equation 9 as printed is our λ = 0.3."""
    long, acdc = means(*LONG), means(*ON_ACDC)
    printed, large = long.loc["NACL, equation 9 as printed"], long.loc["NACL, λ = 0.3"]
    assert f"{printed['ECE_near']:.3f}" == f"{large['ECE_near']:.3f}"
    assert printed["NLL"] == pytest.approx(large["NLL"], abs=0.009)  # as if trained again
    assert printed["Dice"] == pytest.approx(large["Dice"], abs=0.002)
    for rows in (long, acdc):
        for metric in ("ECE_near", "ECE_foreground"):  # CE's trainings differ by more
            assert rows.loc["CE", metric] == pytest.approx(rows.loc[SMALL, metric], abs=0.003)
        assert rows.loc["CE", "NLL"] < rows.loc[SMALL, "NLL"]
    assert acdc.loc[SMALL, "Dice"] == pytest.approx(acdc.loc["CE", "Dice"], abs=0.001)
    of_both = long.loc[[SMALL, "NACL"], ["Dice", "NLL", "ECE_near"]]
    stated("train.md", *of_both.to_numpy().ravel())
    stated("tutorial.md", *long.loc[["NACL", "DiceCE"], [*ERRORS, "NLL"]].to_numpy().ravel(), long.loc[SMALL, "NLL"])
    union = long["ECE_union"]
    assert (union[[SMALL, "NACL, λ = 0.03"]] < 0.6 * union["DiceCE"]).all()


def test_what_starts_late() -> None:
    """With SGD, CE learns Hippocampus late; after 25,000 steps it is near DiceCE."""
    sgd = read("losses", "data_set == 'Dataset004_Hippocampus' and optimizer == 'SGD' and fold == '0'")
    short, long = (sgd[sgd["steps"] == steps].groupby("method")["Dice"].max() for steps in (1500, 25000))
    adam = trained("Hippocampus", 1500)["Dice"]
    apart = (long["DiceCE"] - long[["CE", "NACL"]]).max()
    assert short["CE"] < short["DiceCE"]
    stated("train.md", short["CE"], short["DiceCE"], adam["CE"], math.ceil(1000 * apart) / 1000)
    assert all(f"{short[name]:.3f}" in STARTS_LATE for name in ("CE", "DiceCE"))


def test_long_trainings_case_by_case() -> None:
    """Which losses have a lower ECE than NACL on Hippocampus, and which cannot be told from it."""
    found = paired(HIPPOCAMPUS, "NACL, again")
    foreground = {name: metrics["ECE foreground"] for name, metrics in found.items()}
    assert all(foreground[name][2] < 0 for name in ("SVLS, again", "ECP (sum)", SMALL, "NACL, λ = 0.03"))
    assert all(foreground[name][1] < 0 < foreground[name][2] for name in ("CE, again", "ECP", "NACL softmax"))
    below = {name for name in found if found[name]["ECE union"][2] < 0}
    assert {name for name in below if not re.match(SINCE, name)} == {"SVLS, again"}
    third = paired(HIPPOCAMPUS, "DiceCE, again")["DiceCE, a third time"]["Dice"]
    brier = trained(*LONG).loc[["CE", "NACL", "DiceCE"], "Brier"]
    assert brier.is_monotonic_increasing
    stated("results/losses.md", *brier, third[0])


def test_long_trainings() -> None:
    """On Hippocampus NACL halves both ECE at DiceCE's Dice; CE, SVLS and ECP do at least as well, at a lower NLL."""
    first = trained(*LONG)
    first = first[~first.index.str.contains(f"softmax|{SINCE}")]  # a variant; not of the paper
    for rows in (first, trained(*LONG, 2)):
        dice_ce, ce, nacl, svls = (rows.loc[name] for name in ("DiceCE", "CE", "NACL", "SVLS"))
        assert (nacl[ERRORS] / dice_ce[ERRORS]).between(0.45, 0.55).all()
        foreground, union = (dice_ce[ERRORS] - ce[ERRORS]) / (dice_ce[ERRORS] - nacl[ERRORS])
        assert (foreground > 1, union > 0.8) == (True, True)
        assert (svls[ERRORS] < nacl[ERRORS]).all()
        assert nacl["CECE_foreground"] > dice_ce["CECE_foreground"]
        assert nacl["NLL"] > dice_ce["NLL"] > ce["NLL"]
        assert 0 < dice_ce["Dice"] - nacl["Dice"] < 0.003
    assert set(first["NLL"].nsmallest(2).index) == {"CE", "ECP"}
    lower = first.index[first["ECE_foreground"] < first.loc["NACL", "ECE_foreground"]]
    assert {name for name in lower if not name.startswith("NACL")} == {"CE", "SVLS", "MbLS", "ECP", "ECP (sum)"}
    metrics = ["Dice", *ERRORS, "NLL", "ECE_near"]  # the code's rule at the border is alike
    usual, border = (first.loc[name, metrics] for name in ("NACL", "NACL, background around the image"))
    again = trained(*LONG, 2).loc["NACL", metrics]
    assert ((border - usual).abs() <= 5 * (again - usual).abs()).all()


def test_on_other_data_sets() -> None:
    """On ACDC NACL halves ECE over the union alone; on regions its ECE is ten times DiceCE's."""
    acdc, wbc = means(*ON_ACDC), trained("WBC", 6000)["ECE_foreground"]
    assert wbc["NACL"] / wbc["DiceCE"] == pytest.approx(10, abs=0.5)
    stated("results/losses.md", *(acdc.loc["DiceCE", "Dice"] - acdc.loc[["NACL", "CE"], "Dice"]))


def test_how_far_trainings_differ() -> None:
    """On Hippocampus hardly; on ACDC by more than λ = 0.01 differs from CE."""
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 25000")
    repeated = rows.groupby(["trainer", "fold"])[["NLL", "Dice", "ECE_foreground"]].agg(["size", np.ptp])
    assert (repeated["NLL", "size"] > 1).sum() == 6
    metrics = ["Dice", "ECE_union", "ECE_near"]
    first, again = (trained("ACDC", 6000, number)[metrics] for number in (1, 2))
    apart = (again - first).loc[["DiceCE", "CE", "NACL"]].abs().max()
    assert ((first.loc[SMALL] - first.loc["CE"]).abs() < apart).all()
    stated("results/losses.md", *repeated.xs("ptp", axis=1, level=1).max())


def test_in_3d() -> None:
    """NACL is worse than DiceCE by NLL, ECE near and Dice, better by the paper's ECE; CE has the lowest NLL."""
    where = "configuration == '3d_fullres_bs2'"
    rows = read("losses", f"{where} and optimizer == 'Adam'").set_index("method")
    minus = paired(where, "DiceCE")
    nacl = minus["NACL"]
    assert rows["ECE_near"].idxmin() == rows["NLL"].idxmin() == "CE"
    assert min(nacl["NLL"][1], nacl["ECE near"][1]) > 0
    assert max(nacl["ECE foreground"][2], nacl["ECE union"][2], nacl["Dice"][2]) < 0
    assert rows.loc["NACL", "over_confidence"] < -0.03
    for value, low, high in (nacl["Dice"], minus["CE"]["Dice"]):
        stated("results/losses.md", value, f"{-high:.3f} to {-low:.3f}")
    stated("limitations.md", rows["Dice"].max())


def test_how_far_a_smaller_weight_is_ahead_of_ce() -> None:
    """λ = 0.03 by ECE over the union, hardly over the foreground; by CECE it lies between CE's first two trainings."""
    small = trained(*LONG).loc["NACL, λ = 0.03"]
    first, again = (trained(*LONG, training).loc["CE"] for training in (1, 2))
    foreground, union = ([one[ece] - small[ece] for one in (first, again)] for ece in ERRORS)
    assert min(union) > 0.007
    stated("results/losses.md", "{:.3f} and {:.3f}".format(*foreground))
    stated("results/losses.md", first["ECE_foreground"] - again["ECE_foreground"])
    for cece in ("CECE_foreground", "CECE_union"):
        assert first[cece] < small[cece] < again[cece]


def test_from_the_papers_weight_on_calibration_gets_worse() -> None:
    """At the same Dice; near is then the whole image."""
    rows = trained(*LONG)
    weights = rows.loc[["NACL", "NACL, λ = 0.2", "NACL, λ = 0.3"]]
    for metric in ("ECE_foreground", "ECE_near", "NLL"):
        assert weights[metric].is_monotonic_increasing
    assert np.ptp(weights["Dice"]) < 0.003
    whole = {"LS", "NACL l2", "NACL, λ = 0.2", "NACL, λ = 0.3", "NACL, equation 9 as printed"}
    assert set(rows.index[rows["near_share"] == 1]) == whole
    assert rows["near_share"].drop(list(whole)).idxmax() == "FL"
    stated("results/losses.md", f"{100 * rows.loc['FL', 'near_share']:.0f} %")


def test_weights_calibrated() -> None:
    """λ = 0.01 then has a lower NLL than DiceCE, and no λ has CE's."""
    rows = read("checkpoints", "checkpoint == 'best' and fold == '0' and training == 1 and steps == 25000")
    nll = rows[rows["data_set"] == "Dataset004_Hippocampus"].set_index("trainer")["NLL"]
    losses = ("NACL_weight0p01", "NACL", "NACL_weight0p2", "DiceCE", "CE", "NACL_weight0p03")
    small, nacl, double, dice_ce, ce, middle = nll[[f"nnUNetTrainer{loss}_paperSchedule" for loss in losses]]
    assert small < dice_ce
    assert ce < min(small, middle, nacl, double)
    acdc = read("checkpoints", "checkpoint == 'best' and data_set == 'Dataset027_ACDC' and steps == 6000")
    names = [f"nnUNetTrainer{loss}_paperSchedule_24epochs" for loss in ("NACL", "CE", "DiceCE")]
    stated("results/losses.md", small, dice_ce, ce, *acdc.groupby("trainer")["NLL"].mean()[names])


def test_short_trainings() -> None:
    """CE has the lowest NLL of the study's losses (on ACDC after 6,000 steps), and DiceCE is over-confident."""
    study = {method.name for method in read_study("main").methods}
    for data_set, steps in (("Hippocampus", 1500), ("Hippocampus", 3000), ("Hippocampus", 6000), ("USGRA", 1000)):
        rows = trained(data_set, steps)
        assert rows.loc[rows.index.isin(study), "NLL"].idxmin() == "CE"
        assert rows.loc["DiceCE", "over_confidence"] > 0
    acdc, long = trained("ACDC", 2000), trained("ACDC", 6000)
    assert (acdc["NLL"].idxmin(), long.loc[long.index.isin(study), "NLL"].idxmin()) == ("DiceCE", "CE")
    assert (long["NLL"]["DiceCE"] > long["NLL"][["CE", SMALL]]).all()
    ahead = [rows.loc["DiceCE", "Dice"] - rows.loc[SMALL, "Dice"] for rows in (acdc, long)]
    again = trained("ACDC", 6000, 2).loc["DiceCE", "Dice"] - long.loc[SMALL, "Dice"]
    stated("results/losses.md", *ahead, again, long.loc[SMALL, "NLL"] - long.loc["CE", "NLL"])


def test_on_regions() -> None:
    """At nearly the same Dice NACL is the worst; near the structures CE is the best calibrated."""
    short, long = trained("WBC", 2000), trained("WBC", 6000)
    for rows in (short, long):
        assert rows["ECE_near"].idxmin() == "CE"
        assert np.ptp(rows["Dice"]) < 0.0015
    assert long.loc["NACL", "ECE_near"] > 10 * long.loc["DiceCE", "ECE_near"]
    best = read("checkpoints", "checkpoint == 'best' and data_set == 'Dataset052_WBC' and steps == 6000")
    best = best.set_index(best["trainer"].str.extract(r"nnUNetTrainer(\w+)_paperSchedule", expand=False))["NLL"]
    losses = ["NACL", "DiceCE", "CE"]
    stated("results/losses.md", *long.loc[losses, ["NLL", *ERRORS]].to_numpy().ravel())
    stated("results/losses.md", *best[losses])


def test_usgra_at_length() -> None:
    """CE is over-confident, too; NACL is the best calibrated near, cannot be told from CE otherwise."""
    rows = in_usgra()
    assert rows["ECE_near"].idxmin() == rows["CECE_foreground"].idxmax() == "NACL"
    minus_ce = paired("data_set.str.endswith('USGRA')", "CE")["NACL"]
    assert minus_ce["ECE near"][2] < 0
    for metric in ("Dice", "NLL", "ECE foreground", "ECE union"):
        _, low, high = minus_ce[metric]
        assert low < 0 < high, metric
    assert abs(rows.loc["NACL", "over_confidence"]) < 0.01
    assert (rows.loc[["CE", "DiceCE"], "over_confidence"] > 0.05).all()
    of_three = rows.loc[["NACL", "DiceCE", "CE"], ["Dice", "NLL", "ECE_near", "ECE_foreground"]]
    stated("results/losses.md", *of_three.to_numpy().ravel())


def test_penalty_prior_and_constraint_at_length() -> None:
    """l1 is better than l2 at each length; the prior hardly matters; a penalty on softmax hardly changes CE."""
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 6000 and optimizer == 'Adam'")
    middle, short, long = rows.groupby("method").mean(numeric_only=True), trained("Hippocampus", 1500), trained(*LONG)
    for of_length in (short, middle, long):
        assert (of_length.loc["NACL l2", ["NLL", "ECE_near"]] > of_length.loc["NACL", ["NLL", "ECE_near"]]).all()
    for of_length in (middle, long):
        assert of_length.loc["NACL l2", "ECE_foreground"] > of_length.loc["NACL", "ECE_foreground"]
        for metric, apart in (("NLL", 0.015), ("ECE_near", 0.0015)):
            gaussian = of_length.loc["NACL Gaussian, σ = 1", metric]
            assert of_length.loc["NACL", metric] == pytest.approx(gaussian, abs=apart)
    gaussian = middle.loc["NACL Gaussian, σ = 1", "ECE_foreground"]
    assert middle.loc["NACL", "ECE_foreground"] == pytest.approx(gaussian, abs=0.001)
    again = trained(*LONG, 2)
    metrics = ["Dice", "NLL", "ECE_near", "ECE_foreground", "CECE_foreground", "ECE_union"]
    ce, softmax = long.loc["CE", metrics], long.loc["NACL softmax", metrics]
    assert ((softmax - ce).abs() <= 1.1 * (again.loc["CE", metrics] - ce).abs()).all()
    of_logits = (long.loc["NACL", "ECE_union"] + again.loc["NACL", "ECE_union"]) / 2
    stated("paper.md", softmax["ECE_union"], of_logits)


def test_which_cases_were_kept() -> None:
    """Each case of trainings of 2,000 steps or more since 2026-11-25."""
    model = ["data_set", "configuration", "trainer", "fold", "training"]
    since = read("losses", "date >= '2026-11-25' and steps >= 2000")
    assert {*since[model].itertuples(index=False)} == {*read("losses_cases")[model].itertuples(index=False)}


def test_logits() -> None:
    """NACL leaves those of other classes near 0, where other losses make them negative; its own lie close together."""
    mean = read("logits").set_index(["method", "true_class", "logit"]).sort_index()["mean"]
    classes = ["background", "anterior", "posterior"]
    for true in classes:
        others = [name for name in classes if name != true]
        for method in ("DiceCE", "LS", "MbLS", "SVLS"):
            assert (mean[method, true][others] < -0.5).all()
        for method in ("LS", "MbLS"):
            assert mean[method, true, true] < mean["NACL", true, true]
        assert mean["NACL", true][others].abs().max() < 0.6
    assert [mean["NACL", true, true] < mean["DiceCE", true, true] for true in classes] == [True, False, True]
    bands = read("max_logits").pivot(index="method", columns="fold", values="half_within")
    assert bands.loc["LS", "0"] == pytest.approx(bands.loc["SVLS", "0"], abs=0.06)
    assert (bands.loc[["LS", "MbLS"], "1"] <= 0.5).all()
    quantiles = read("max_logits", "method == 'NACL'")
    assert (quantiles["half_within"] <= 0.3).all()
    assert quantiles["median"].between(3.9, 4.1).all()


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
    stated("results/losses-short.md", f"{size:.1f} voxels")


def test_what_was_not_run() -> None:
    """At 25,000 steps, second trainings of some losses, and other folds."""
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 25000 and optimizer == 'Adam'")
    trainings = rows.groupby("method")["training"].max()
    once = trainings.reindex(["MbLS", "FL", "ECP", "LS", *(f"NACL, λ = {weight}" for weight in (0.01, 0.03, 0.2, 0.3))])
    assert once.tolist() == [1] * 8
    assert set(rows["fold"]) == {"0"}
