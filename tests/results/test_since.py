"""What docs/results/since.md and README say of the losses since the paper, by the data of our trainings."""

import pandas as pd
import pytest
from cells import read
from loss_tables import paired
from since_tables import PROMISE, ace_since, calibrated_since, decoded_since, since_rows

from tests.results.pages import said

ACDC = "Dataset027_ACDC"


def figures(rows: pd.DataFrame) -> str:
    """Dice and NLL of DicePPCE beside those of others, as the page has them."""
    best, dice_ce, ce = (rows.loc[name] for name in ("DicePPCE", "DiceCE", "CE"))
    return (
        f"Dice {best['Dice']:.3f} (DiceCE {dice_ce['Dice']:.3f}), "
        f"NLL {best['NLL']:.3f} (DiceCE {dice_ce['NLL']:.3f}, CE {ce['NLL']:.3f})"
    )


def test_who_keeps_the_promise() -> None:
    assert PROMISE == {"Dice": 0.003, "NLL": 0.03, "ECE_near": 0.010}
    rows = since_rows().set_index("method")
    assert set(rows.index[rows["keeps"] == "**yes**"]) == {"CE", "DicePPCE"}
    long = since_rows(steps=25000).set_index("method")
    assert set(long.index[long["keeps"] == "**yes**"]) == {"CE", "DicePPCE"}
    on_acdc = since_rows(ACDC).set_index("method")
    assert set(on_acdc["keeps"]) == {"no"}
    dice_ce, ce = rows.loc["DiceCE"], rows.loc["CE"]
    acdc_dice_ce, acdc_ce, acdc_best = (on_acdc.loc[name] for name in ("DiceCE", "CE", "DicePPCE"))
    said(
        "results/since.md",
        f"Hippocampus, 6,000 steps: {figures(rows)}.",
        f"Hippocampus, 25,000 steps: {figures(long)}.",
        f"where CE loses {acdc_dice_ce['Dice'] - acdc_ce['Dice']:.3f} of Dice: {figures(on_acdc)}.",
        f"DicePPCE misses it by its ECE near alone, which is {acdc_best['ECE_near']:.3f} "
        f"(DiceCE {acdc_dice_ce['ECE_near']:.3f}).",
        "DicePPCE is one training in each of the three (DiceCE: five, three and two; CE: four, two and two).",
    )
    said(
        "../README.md",
        "has DiceCE's Dice and nearly CE's NLL, in one training on each data set. On ACDC it is still slightly",
    )
    assert acdc_best["over_confidence"] > PROMISE["ECE_near"]
    assert acdc_best["Dice"] >= acdc_dice_ce["Dice"] - PROMISE["Dice"]
    assert acdc_best["NLL"] <= acdc_ce["NLL"] + PROMISE["NLL"]
    assert acdc_best["ECE_near"] > PROMISE["ECE_near"]
    trainings = [of.loc[["DiceCE", "CE", "DicePPCE"], "trainings"].tolist() for of in (rows, long, on_acdc)]
    assert trainings == [[5, 4, 1], [3, 2, 1], [2, 2, 1]]
    for name in ("DicePPNACL, λ = 0.01", "NACL, λ = 0.01", "SoftDiceSVLS"):
        assert rows.loc[name, "ECE_near"] <= PROMISE["ECE_near"]
        assert rows.loc[name, "Dice"] >= dice_ce["Dice"] - PROMISE["Dice"]
        assert rows.loc[name, "NLL"] > ce["NLL"] + PROMISE["NLL"]
    assert rows.loc["DiceNACL", "over_confidence"] == pytest.approx(dice_ce["over_confidence"], abs=0.005)
    assert rows.loc["DiceACECE", "ECE_near"] == pytest.approx(0.018, abs=5e-4)
    assert dice_ce["Dice"] - rows.loc["DiceACECE", "Dice"] == pytest.approx(0.009, abs=1e-3)
    hard_bins = rows.loc["DiceACECE, hard bins"]
    assert hard_bins["Dice"] > dice_ce["Dice"]
    assert 0 < dice_ce["ECE_near"] - hard_bins["ECE_near"] < 0.002
    assert rows.loc["CRaC", "over_confidence"] < 0
    assert rows.loc["CRaC", "NLL"] > dice_ce["NLL"]
    for name in ("FLSD", "DualFL", "FCL", "SoftDiceLS"):
        assert rows.loc[name, "over_confidence"] < -0.05
        assert 2 * ce["NLL"] < rows.loc[name, "NLL"] < 4 * ce["NLL"]


def test_long_trainings_case_by_case() -> None:
    where = "data_set.str.endswith('Hippocampus') and trainer.str.endswith('_paperSchedule')"
    found = paired(where, "DiceCE, again")["DicePPCE"]
    assert found["NLL"] == pytest.approx((-0.176, -0.208, -0.149), abs=6e-4)
    assert found["Dice"] == pytest.approx((-0.0001, -0.0014, 0.0012), abs=6e-5)
    best = read(
        "checkpoints", "checkpoint == 'best' and fold == '0' and trainer == 'nnUNetTrainerDiceCE_paperSchedule'"
    )
    best = best.dropna(subset="ECE_foreground")  # those of README
    assert since_rows(steps=25000).set_index("method").loc["DicePPCE", "NLL"] < best["NLL"].mean()
    assert best["NLL"].mean() == pytest.approx(0.562, abs=6e-4)


def test_acdc_case_by_case() -> None:
    where = "data_set.str.endswith('ACDC') and trainer.str.endswith('24epochs')"
    for base, values in (
        ("DiceCE", {"NLL": (-0.115, -0.223, -0.044), "Dice": (-0.002, -0.006, 0.002)}),
        ("CE", {"NLL": (-0.008, -0.044, 0.028), "Dice": (0.010, 0.005, 0.016)}),
    ):
        for metric, expected in values.items():
            assert paired(where, base)["DicePPCE"][metric] == pytest.approx(expected, abs=6e-4)
    crac, ce = (since_rows(ACDC).set_index("method").loc[name] for name in ("CRaC", "CE"))
    ace, dice_ce = (since_rows(ACDC).set_index("method").loc[name] for name in ("DiceACECE", "DiceCE"))
    said(
        "results/since.md",
        f"CRaC ends under-confident here, too: with CE's Dice, its NLL is {crac['NLL']:.3f}. mL1-ACE (DiceACECE) "
        f"lowers DiceCE's ECE near from {dice_ce['ECE_near']:.3f} to {ace['ECE_near']:.3f}, and loses "
        f"{dice_ce['Dice'] - ace['Dice']:.3f} of Dice.",
    )
    assert crac["over_confidence"] < -0.01
    assert crac["Dice"] == pytest.approx(ce["Dice"], abs=0.002)
    calibrated = calibrated_since(ACDC)
    rows = calibrated.query("loss == 'DicePPCE'").set_index("method")
    of_crac = calibrated.query("loss == 'CRaC'").set_index("method")["over_confidence"]
    said(
        "results/since.md",
        "DicePPCE minus DiceCE (the first of its two trainings), paired by patient: NLL −0.115 (−0.223 to −0.044), "
        "Dice −0.002 (−0.006 to +0.002). Minus CE: Dice +0.010 (+0.005 to +0.016), NLL −0.008 (−0.044 to +0.028).",
        "it lowers CRaC's NLL, and near the structures turns its confidence − accuracy from "
        f"−{-of_crac['as trained']:.3f} to +{of_crac['temperature']:.3f}.",
        f"raises DicePPCE's NLL on the test cases from {rows.loc['as trained', 'NLL']:.3f} to "
        f"{rows.loc['temperature', 'NLL']:.3f}, and lowers its ECE near to {rows.loc['temperature', 'ECE']:.3f}.",
    )


def test_what_is_left_after_calibration() -> None:
    rows = calibrated_since()
    nll = rows.pivot_table(index="loss", columns="method", values="NLL")
    best = nll.loc["DicePPCE", "as trained"]
    for loss in ("DiceCE", "DiceACECE", "CRaC", "FLSD"):
        assert nll.loc[loss, "temperature"] > best
    said(
        "results/since.md",
        f"It brings DiceCE to an NLL of {nll.loc['DiceCE', 'temperature']:.3f}, DiceACECE to "
        f"{nll.loc['DiceACECE', 'temperature']:.3f} and CRaC to {nll.loc['CRaC', 'temperature']:.3f}, FLSD from "
        f"{nll.loc['FLSD', 'as trained']:.3f} to {nll.loc['FLSD', 'temperature']:.3f}: none reaches what DicePPCE has",
        f"After one temperature, NLL ranges from {nll['temperature'].min():.3f} (CE) to "
        f"{nll['temperature'].max():.3f} (SoftDiceLS).",
        f"After a refitted last layer it ranges from {nll['head'].min():.3f} (CE) to {nll['head'].max():.3f} "
        "(SoftDiceLS). CE, NACL (λ = 0.01) and DicePPCE lead, then SoftDiceSVLS and FCL.",
        f"FCL is the focal loss that calibrates best: {nll.loc['FCL', 'as trained']:.3f} as trained, "
        f"{nll.loc['FCL', 'temperature']:.3f} with one temperature.",
    )
    assert nll["temperature"].idxmin() == "CE"
    assert nll["temperature"].idxmax() == nll["head"].idxmax() == "SoftDiceLS"
    assert list(nll["head"].sort_values().index[:3]) == ["CE", "NACL, λ = 0.01", "DicePPCE"]
    assert list(nll["head"].sort_values().index[3:5]) == ["SoftDiceSVLS", "FCL"]
    assert nll.loc[["FCL", "FLSD", "DualFL"], "temperature"].idxmin() == "FCL"
    dice = rows.pivot_table(index="loss", columns="method", values="Dice")
    assert dice.sub(dice["as trained"], axis=0).abs().max(axis=None) < 0.001


def test_the_ace_of_ml1_ace() -> None:
    ace = ace_since().query("data_set.str.endswith('Hippocampus')").set_index("loss")["ACE"]
    said(
        "results/since.md",
        f"mL1-ACE lowers DiceCE's ACE from {ace['DiceCE']:.3f} to {ace['DiceACECE']:.3f} with soft bins and to "
        f"{ace['DiceACECE, hard bins']:.3f} with hard ones, but losses without that term have less: CE "
        f"{ace['CE']:.3f}, DicePPCE {ace['DicePPCE']:.3f}.",
    )
    assert ace["CE"] < ace["DicePPCE"] < ace["DiceACECE"]
    on_acdc = ace_since().query("data_set.str.endswith('ACDC')").set_index("loss")["ACE"]
    assert on_acdc["DiceACECE"] > on_acdc[["DicePPCE", "CRaC"]].max()


def test_rankseg() -> None:
    rows = decoded_since().set_index("method")
    ce, dice_ce = rows.loc["CE"], rows.loc["DiceCE"]
    said(
        "results/since.md",
        f"RankSEG raises CE's Dice by {ce['gain']:.4f} and DiceCE's not at all: the difference is "
        f"{ce['interaction']:.4f} ({ce['interaction_low']:.4f} to {ce['interaction_high']:.4f}).",
        f"CE has {ce['Dice_rankseg']:.4f} after `decode`, DiceCE by argmax the same (all losses).",
    )
    assert ce["Dice_rankseg"] == pytest.approx(dice_ce["Dice_argmax"], abs=5e-5)
    assert dice_ce["gain_low"] < 0 < dice_ce["gain_high"]
    assert rows.loc["DicePPCE", "gain_low"] < 0 < rows.loc["DicePPCE", "gain_high"]
    assert set(rows.index[rows["gain"] > 0.001]) == {"CE", "NACL, λ = 0.01", "CRaC"}
    lost = rows.loc[["FLSD", "FCL", "DualFL"], "gain"]
    assert (lost.min(), lost.max()) == pytest.approx((-0.179, -0.026), abs=5e-4)
    acdc = read("rankseg_cases", f"data_set == '{ACDC}'")[["Dice_argmax", "Dice_rankseg"]].mean()
    assert acdc.tolist() == pytest.approx([0.8938, 0.8933], abs=5e-5)
