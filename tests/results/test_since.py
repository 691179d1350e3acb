"""What docs/results/since.md and README say of the losses since the paper, by the data of our trainings."""

import pytest
from loss_tables import PROMISE, calibrated_since, since_rows

from tests.results.pages import said


def test_who_keeps_the_promise() -> None:
    assert PROMISE == {"Dice": 0.003, "NLL": 0.03, "ECE_near": 0.010}
    rows = since_rows().set_index("method")
    assert set(rows.index[rows["keeps"] == "**yes**"]) == {"CE", "DicePPCE"}
    dice_ce, ce, best = (rows.loc[name] for name in ("DiceCE", "CE", "DicePPCE"))
    said(
        "results/since.md",
        f"has DiceCE's Dice ({best['Dice']:.3f} against {dice_ce['Dice']:.3f}) and honest confidences, by training "
        f"alone (NLL {best['NLL']:.3f}, DiceCE {dice_ce['NLL']:.3f}, CE {ce['NLL']:.3f}).",
        "This is one training each (DiceCE: five, CE: four) on one small data set.",
        "It brings DiceCE to an NLL of 0.651, DiceACECE to 0.670 and CRaC to 0.693: none reaches what DicePPCE has",
    )
    assert (dice_ce["trainings"], ce["trainings"], best["trainings"]) == (5, 4, 1)
    for name in ("DicePPNACL, λ = 0.01", "NACL, λ = 0.01"):
        assert rows.loc[name, "ECE_near"] <= PROMISE["ECE_near"]
        assert rows.loc[name, "Dice"] >= dice_ce["Dice"] - PROMISE["Dice"]
        assert rows.loc[name, "NLL"] > ce["NLL"] + PROMISE["NLL"]
    assert rows.loc["DiceNACL", "over_confidence"] == pytest.approx(dice_ce["over_confidence"], abs=0.005)
    assert rows.loc["DiceACECE", "ECE_near"] == pytest.approx(0.018, abs=5e-4)
    assert dice_ce["Dice"] - rows.loc["DiceACECE", "Dice"] == pytest.approx(0.009, abs=1e-3)
    assert rows.loc["CRaC", "over_confidence"] < 0
    assert rows.loc["CRaC", "NLL"] > dice_ce["NLL"]


def test_what_is_left_after_calibration() -> None:
    nll = calibrated_since().pivot_table(index="loss", columns="method", values="NLL")
    for loss, after in (("DiceCE", 0.651), ("DiceACECE", 0.670), ("CRaC", 0.693)):
        assert nll.loc[loss, "temperature"] == pytest.approx(after, abs=5e-4)
        assert nll.loc[loss, "head"] > nll.loc["DicePPCE", "as trained"]
    for loss in ("CE", "DicePPCE"):
        assert nll.loc[loss, "as trained"] - nll.loc[loss, "head"] < 0.015
