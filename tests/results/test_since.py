"""What docs/results/since.md and README claim of the losses since the paper, by the data of our trainings."""

import pytest
from cells import read
from loss_tables import paired
from since_tables import PROMISE, ace_since, calibrated_since, decoded_since, since_rows

from tests.results.pages import ACDC, HIPPOCAMPUS, stated, with_interval

PAGE = "results/since.md"
ON_ACDC = "Dataset027_ACDC"
ROWS = {
    "Hippocampus, 6,000 steps": since_rows().set_index("method"),
    "Hippocampus, 25,000 steps": since_rows(steps=25000).set_index("method"),
    "Hippocampus in 3D": since_rows(steps=2000, configuration="3d_fullres_bs2").set_index("method"),
    "ACDC, 6,000 steps": since_rows(ON_ACDC).set_index("method"),
    "USGRA": since_rows("Dataset051_USGRA", 12500, "2d_bs4", "SGD").set_index("method"),
    "WBC": since_rows("Dataset052_WBC", 2000).set_index("method"),
}


@pytest.mark.parametrize(
    ("data", "keep", "trainings"),  # trainings of DiceCE, CE and DicePPCE
    [
        ("Hippocampus, 6,000 steps", {"CE", "DicePPCE"}, [5, 4, 2]),
        ("Hippocampus, 25,000 steps", {"CE", "DicePPCE"}, [4, 3, 1]),
        ("Hippocampus in 3D", set(), [1, 1, 1]),
        ("ACDC, 6,000 steps", set(), [3, 3, 2]),
        ("USGRA", set(), [1, 1, 1]),
        ("WBC", {"DiceCE", "CE", "DicePPCE"}, [1, 1, 1]),
    ],
)
def test_who_keeps_the_promise(data: str, keep: set[str], trainings: list[int]) -> None:
    rows = ROWS[data]
    assert set(rows.index[rows["keeps"] == "**yes**"]) == keep
    best, dice_ce, ce = (rows.loc[name] for name in ("DicePPCE", "DiceCE", "CE"))
    assert best["NLL"] <= ce["NLL"] + PROMISE["NLL"]
    assert rows.loc[["DiceCE", "CE", "DicePPCE"], "trainings"].tolist() == trainings
    stated(PAGE, *(one[metric] for one in (best, dice_ce) for metric in ("Dice", "NLL")), ce["NLL"])


@pytest.mark.parametrize("data", [data for data in ROWS if data != "USGRA"])
def test_nacl_of_the_paper_is_under_confident(data: str) -> None:
    nacl, ce = (ROWS[data].loc[name] for name in ("NACL", "CE"))
    assert nacl["over_confidence"] < -PROMISE["ECE_near"]
    assert nacl["NLL"] > ce["NLL"] + PROMISE["NLL"]


def test_the_promise() -> None:
    assert PROMISE == {"Dice": 0.003, "NLL": 0.03, "ECE_near": 0.010}


def test_on_acdc_dicppce_misses_it_by_dice_and_ece_near() -> None:
    """Its two trainings differ; README has what each lost of DiceCE's Dice."""
    rows = ROWS["ACDC, 6,000 steps"]
    best, dice_ce, ce = (rows.loc[name] for name in ("DicePPCE", "DiceCE", "CE"))
    assert min(best["over_confidence"], best["ECE_near"]) > PROMISE["ECE_near"]
    lost = dice_ce["Dice"] - best["Dice"]
    assert PROMISE["Dice"] < lost < 0.005
    of_each = read("losses", f"data_set == '{ON_ACDC}' and method == 'DicePPCE' and steps == 6000")["Dice"]
    stated(PAGE, best["ECE_near"], dice_ce["ECE_near"], dice_ce["Dice"] - ce["Dice"], lost, *of_each)
    below_dice_ce = dice_ce["Dice"] - of_each
    assert below_dice_ce.iloc[0] < 0.0005
    stated("../README.md", f"with {below_dice_ce.iloc[1]:.3f} less")


def test_in_3d_dicppce_misses_it_by_its_dice_alone() -> None:
    rows = ROWS["Hippocampus in 3D"]
    lost = rows.loc["DiceCE", "Dice"] - rows.loc["DicePPCE", "Dice"]
    assert PROMISE["Dice"] < lost < 0.004
    assert rows.loc["DicePPCE", "ECE_near"] <= PROMISE["ECE_near"]
    for page in ("../README.md", "questions.md"):
        stated(page, lost)
    stated(PAGE, f"{lost:.4f} below DiceCE's")
    for base, is_lower in (("DiceCE", True), ("CE", False)):
        minus = paired("configuration == '3d_fullres_bs2'", base)["DicePPCE"]
        for metric, digits in (("Dice", 4), ("NLL", 3)):
            _, low, high = minus[metric]
            assert (high < 0, low > 0) == (is_lower, not is_lower)
            stated(PAGE, with_interval(*minus[metric], digits=digits))


def test_on_usgra_dicppce_has_the_lowest_nll() -> None:
    """But CE's Dice and ECE near; NACL has the lowest ECE near."""
    rows = ROWS["USGRA"]
    assert set(rows.index) == {"DiceCE", "CE", "NACL", "DicePPCE"}
    assert rows["NLL"].idxmin() == "DicePPCE"
    assert rows["ECE_near"].idxmin() == "NACL"
    assert rows.loc["NACL", "over_confidence"] > 0
    assert rows.loc["DicePPCE", "ECE_near"] == pytest.approx(rows.loc["CE", "ECE_near"], abs=0.001)
    lost = rows.loc["DiceCE", "Dice"] - rows.loc["DicePPCE", "Dice"]
    for page in (PAGE, "../README.md", "questions.md"):
        stated(page, lost)
    stated(PAGE, rows.loc["NACL", "ECE_near"])
    minus_ce = paired("configuration == '2d_bs4'", "CE")["DicePPCE"]
    assert minus_ce["NLL"][2] < 0
    assert minus_ce["Dice"][1] < 0 < minus_ce["Dice"][2]
    stated(PAGE, *(with_interval(*minus_ce[metric]) for metric in ("NLL", "Dice")))
    calibrated = read("calibrate", "data_set == 'Dataset051_USGRA' and method == 'temperature' and folds == '0'")
    calibrated = calibrated.set_index("trainer")
    of_each = [calibrated.loc[f"nnUNetTrainer{loss}_100epochs_125iterations"] for loss in ("DicePPCE", "CE")]
    assert {one["written"] for one in of_each} == {"temperature"}
    of_default = "checkpoint == 'best' and trainer.str.contains('DiceCE')"
    (dice_ce,) = read("checkpoints", f"data_set == 'Dataset051_USGRA' and steps == 12500 and {of_default}")["NLL"]
    stated(PAGE, of_each[0]["ECE"], *(one["NLL"] for one in of_each), dice_ce)


def test_on_wbc_dicppce_is_as_ce() -> None:
    minus_ce = paired("data_set.str.endswith('WBC') and trainer.str.endswith('_8epochs')", "CE")["DicePPCE"]
    for metric in ("Dice", "NLL", "ECE near"):
        _, low, high = minus_ce[metric]
        assert low < 0 < high


@pytest.mark.parametrize(
    ("data", "data_set", "steps", "trainings", "epochs"),
    [
        ("ACDC, 6,000 steps", ON_ACDC, 6000, 2, "_24epochs"),
        ("Hippocampus, 25,000 steps", "Dataset004_Hippocampus", 25000, 1, ""),
    ],
)
def test_dicppnacl_misses_it_by_its_nll_alone(
    data: str, data_set: str, steps: int, trainings: int, epochs: str
) -> None:
    """On ACDC in one of two. A refitted last layer brings it within all bounds; its mean Dice there is DiceCE's."""
    rows, name = ROWS[data], "DicePPNACL, λ = 0.01"
    mean, bound = rows.loc[name], rows.loc["CE", "NLL"] + PROMISE["NLL"]
    lowest_dice = rows.loc["DiceCE", "Dice"] - PROMISE["Dice"]
    of_each = read("losses", f"data_set == '{data_set}' and steps == {steps} and method == '{name}'")
    assert len(of_each) == mean["trainings"] == trainings
    assert of_each["ECE_near"].max() <= PROMISE["ECE_near"]
    assert of_each["Dice"].min() >= lowest_dice
    assert mean["NLL"] > bound
    assert (of_each["NLL"] > bound).sum() == 1
    where = f"trainer == 'nnUNetTrainerDicePPNACL_weight0p01_paperSchedule{epochs}' and data_set == '{data_set}'"
    head = read("calibrate", f"{where} and folds == '0' and method == 'head'").mean(numeric_only=True)
    assert head["NLL"] <= bound
    assert head["ECE"] <= PROMISE["ECE_near"]
    assert head["Dice"] >= lowest_dice
    stated(PAGE, mean["ECE_near"], head["NLL"], head["ECE"])
    if trainings == 1:
        stated(PAGE, mean["NLL"])
    else:
        assert mean["Dice"] == pytest.approx(rows.loc["DiceCE", "Dice"], abs=5e-4)
        stated(PAGE, *of_each["Dice"], f"{mean['NLL'] - bound:.4f} above the bound", head["Dice"])


def test_how_others_miss_it() -> None:
    """On Hippocampus after 6,000 steps: by NLL alone, by ECE near, or far below the confidence of all."""
    rows = ROWS["Hippocampus, 6,000 steps"]
    dice_ce, ce = rows.loc["DiceCE"], rows.loc["CE"]
    for name in ("DicePPNACL, λ = 0.01", "NACL, λ = 0.01", "SoftDiceSVLS"):
        assert rows.loc[name, "ECE_near"] <= PROMISE["ECE_near"]
        assert rows.loc[name, "Dice"] >= dice_ce["Dice"] - PROMISE["Dice"]
        assert rows.loc[name, "NLL"] > ce["NLL"] + PROMISE["NLL"]
    assert rows.loc["DiceNACL", "over_confidence"] == pytest.approx(dice_ce["over_confidence"], abs=0.005)
    soft, hard = rows.loc["DiceACECE"], rows.loc["DiceACECE, hard bins"]
    stated(PAGE, soft["ECE_near"], dice_ce["Dice"] - soft["Dice"])
    assert hard["Dice"] > dice_ce["Dice"]
    assert 0 < dice_ce["ECE_near"] - hard["ECE_near"] < 0.002
    assert rows.loc["CRaC", "over_confidence"] < 0
    assert rows.loc["CRaC", "NLL"] > dice_ce["NLL"]
    for name in ("FLSD", "DualFL", "FCL", "SoftDiceLS"):
        assert rows.loc[name, "over_confidence"] < -0.05
        assert 2 * ce["NLL"] < rows.loc[name, "NLL"] < 4 * ce["NLL"]


@pytest.mark.parametrize(
    ("where", "base", "metric", "digits"),
    [
        (HIPPOCAMPUS, "DiceCE, again", "NLL", 3),
        (HIPPOCAMPUS, "DiceCE, again", "Dice", 4),
        *((ACDC, base, name, 3) for base in ("DiceCE", "CE") for name in ("NLL", "Dice")),
    ],
)
def test_dicppce_case_by_case(where: str, base: str, metric: str, digits: int) -> None:
    """Minus another loss, paired, with its interval: its NLL is lower than DiceCE's, its Dice higher than CE's."""
    value, low, high = paired(where, base)["DicePPCE"][metric]
    assert (low < 0 < high) == ((base == "CE") == (metric == "NLL"))
    if where == ACDC:
        again = paired(where, base)["DicePPCE, again"][metric]
        assert (again[1] < 0 < again[2]) == (base == "CE" and metric == "NLL")
        stated(PAGE, with_interval(*again, digits=digits))
    stated(PAGE, with_interval(value, low, high, digits=digits))


def test_dicppce_has_a_lower_nll_than_a_calibrated_dice_ce() -> None:
    best = read(
        "checkpoints", "checkpoint == 'best' and fold == '0' and trainer == 'nnUNetTrainerDiceCE_paperSchedule'"
    )
    calibrated = best.dropna(subset="ECE_foreground")["NLL"].mean()  # those of README
    assert ROWS["Hippocampus, 25,000 steps"].loc["DicePPCE", "NLL"] < calibrated
    stated(PAGE, calibrated)


@pytest.mark.parametrize("data", ["Hippocampus, 25,000 steps", "ACDC, 6,000 steps"])
def test_crac_and_ace(data: str) -> None:
    """CRaC ends under-confident near CE's Dice; mL1-ACE lowers DiceCE's ECE near and NLL, and loses Dice."""
    rows = ROWS[data]
    crac, ce, ace, dice_ce = (rows.loc[name] for name in ("CRaC", "CE", "DiceACECE", "DiceCE"))
    assert crac["over_confidence"] < -0.01
    assert ce["Dice"] - 0.004 < crac["Dice"] < dice_ce["Dice"] - 0.003
    assert ace["NLL"] < dice_ce["NLL"]
    stated(PAGE, crac["NLL"], dice_ce["ECE_near"], ace["ECE_near"], dice_ce["Dice"] - ace["Dice"])


def test_one_temperature_on_acdc() -> None:
    """It turns CRaC's confidence − accuracy, and raises DicePPCE's NLL."""
    calibrated = calibrated_since(ON_ACDC).set_index(["loss", "method"])
    crac = calibrated.loc["CRaC"]
    assert crac.loc["temperature", "NLL"] < crac.loc["as trained", "NLL"]
    gaps = crac["over_confidence"]
    best = calibrated.loc["DicePPCE"]
    stated(PAGE, f"−{-gaps['as trained']:.3f} to +{gaps['temperature']:.3f}")
    stated(PAGE, "{:.3f} to {:.3f}".format(*best.loc[["as trained", "temperature"], "NLL"]))


def test_what_is_left_after_calibration() -> None:
    """One temperature brings no other loss to what DicePPCE has as trained; CE, small λ and DicePPCE lead."""
    rows = calibrated_since()
    nll = rows.pivot_table(index="loss", columns="method", values="NLL")
    assert (nll.loc[["DiceCE", "DiceACECE", "CRaC", "FLSD"], "temperature"] > nll.loc["DicePPCE", "as trained"]).all()
    assert nll["temperature"].idxmin() == "CE"
    assert nll["temperature"].idxmax() == nll["head"].idxmax() == "SoftDiceLS"
    order = list(nll["head"].sort_values().index[:5])
    assert order == ["CE", "NACL, λ = 0.01", "DicePPCE", "SoftDiceSVLS", "FCL"]
    assert nll.loc[["FCL", "FLSD", "DualFL"], "temperature"].idxmin() == "FCL"
    dice = rows.pivot_table(index="loss", columns="method", values="Dice")
    assert dice.sub(dice["as trained"], axis=0).abs().max(axis=None) < 0.001
    stated(PAGE, *nll.loc["FCL", ["as trained", "temperature"]], *nll["temperature"].agg(["min", "max"]))


def test_the_ace_of_ml1_ace() -> None:
    """mL1-ACE lowers DiceCE's, but losses without that term have less."""
    ace = ace_since().query("data_set.str.endswith('Hippocampus')").set_index("loss")["ACE"]
    assert ace["CE"] < ace["DicePPCE"] < ace["DiceACECE"] < ace["DiceACECE, hard bins"] < ace["DiceCE"]
    on_acdc = ace_since().query("data_set.str.endswith('ACDC')").set_index("loss")["ACE"]
    assert on_acdc["DiceACECE"] > on_acdc[["DicePPCE", "CRaC"]].max()


def test_rankseg() -> None:
    """It raises CE's Dice to DiceCE's, DiceCE's not at all, and lowers that of focal losses."""
    rows = decoded_since().set_index("method")
    ce, dice_ce = rows.loc["CE"], rows.loc["DiceCE"]
    interaction = f"{ce['interaction']:.4f} ({ce['interaction_low']:.4f} to {ce['interaction_high']:.4f})"
    stated(PAGE, f"{ce['gain']:.4f}", interaction, f"{ce['Dice_rankseg']:.4f}", f"{rows.loc['DicePPCE', 'gain']:.4f}")
    assert ce["Dice_rankseg"] == pytest.approx(dice_ce["Dice_argmax"], abs=5e-5)
    assert dice_ce["gain_low"] < 0 < dice_ce["gain_high"]
    assert set(rows.index[rows["gain"] > 0.001]) == {"CE", "NACL, λ = 0.01", "CRaC"}
    first = read("rankseg_cases", "training == 1 and trainer == 'nnUNetTrainerDicePPCE_paperSchedule_24epochs'")
    first = first[first["data_set"].str.endswith("Hippocampus")]
    assert (first["Dice_rankseg"] - first["Dice_argmax"]).mean() < 0
    lost = rows.loc[["FLSD", "FCL", "DualFL"], "gain"]
    stated(PAGE, lost.min(), lost.max())


def test_rankseg_after_25000_steps() -> None:
    """With it, CE has DiceCE's Dice."""
    rows = decoded_since(steps=25000).set_index("method")
    ce, dice_ce = rows.loc["CE"], rows.loc["DiceCE"]
    interaction = f"{ce['interaction']:.4f}, {ce['interaction_low']:.4f} to {ce['interaction_high']:.4f}"
    stated(PAGE, f"CE gains {ce['gain']:.4f}", f"{ce['Dice_rankseg']:.4f}, as DiceCE has", f"difference {interaction}")
    assert f"{ce['Dice_rankseg']:.4f}" == f"{dice_ce['Dice_rankseg']:.4f}"
    assert ce["interaction_low"] > 0


def test_rankseg_on_acdc() -> None:
    """It closes little of the gap between CE and DiceCE."""
    rows = decoded_since(ON_ACDC).set_index("method")
    ce, dice_ce = rows.loc["CE"], rows.loc["DiceCE"]
    stated(PAGE, f"{ce['gain']:.4f} (−{-ce['gain_low']:.4f} to +{ce['gain_high']:.4f})")
    assert ce["gain"] < (dice_ce["Dice_argmax"] - ce["Dice_argmax"]) / 4
    assert dice_ce["gain_low"] < 0 < dice_ce["gain_high"]
