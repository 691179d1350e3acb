"""What README and the docs say of calibrated models, by the data of their checkpoints."""

import math
import re

from calibration_tables import checkpoints
from cells import read

from tests.results.pages import said


def test_what_calibrated_checkpoints_say() -> None:
    rows = checkpoints()
    fall = 1 - rows["NLL_best"] / rows["NLL_trained"]
    of_default = fall[rows["model"].str.startswith("DiceCE")]
    relabeled = rows["changed_best"].max()
    most = rows.loc[rows["changed_best"].idxmax()]
    assert most["trainer"].startswith("nnUNetTrainerDiceCE_")
    assert most["data_set"] == "Dataset051_USGRA"
    loses = rows["Dice_trained"] - rows["Dice_best"]
    worst = loses.idxmax()
    assert rows.loc[worst, "data_set"] == "Dataset051_USGRA"
    assert loses.drop(worst).max() <= 0.001
    better = (rows["NLL_best"] < rows["NLL_temperature"]).groupby(rows["model"].str.split(" Adam| SGD").str[0]).all()
    assert set(better.index[~better]) == {"CE", "NACL"}
    nacl = rows[rows["model"].str.startswith("NACL")].set_index("data_set")
    usgra_nacl = nacl.loc["Dataset051_USGRA"]
    assert (nacl["NLL_best"] < nacl["NLL_temperature"]).drop("Dataset051_USGRA").all()
    assert usgra_nacl["NLL_best"] == usgra_nacl["NLL_trained"]
    ce = read("checkpoints", "checkpoint == 'best' and trainer.str.contains('TrainerCE_paperSchedule')")
    written = ce.set_index([ce["data_set"].str.partition("_")[2], "steps"])["written"]
    assert written.to_dict() == {
        ("Hippocampus", 25000): "as trained",
        ("ACDC", 6000): "as trained",
        ("USGRA", 1000): "as trained",
        ("WBC", 6000): "as trained",
        ("WBC", 2000): "head",
    }
    hippocampus, usgra = (rows.loc[rows["data"] == data] for data in ("Hippocampus", "USGRA"))
    names = ["NLL_trained", "NLL_best", "NLL_temperature"]
    said(
        "results/calibrate.md",
        f"lowers the NLL of nnU-Net's default loss (DiceCE) by {100 * of_default.min():.0f} to "
        f"{100 * of_default.max():.0f} %",
        f"but one pixel cost {loses[worst]:.3f} Dice. At most {100 * relabeled:.1f} % of the foreground is relabeled "
        f"(USGRA, DiceCE, {most['steps']:,} steps). In all other models Dice falls by at most 0.001.",
        "CE with Adam stays as trained on Hippocampus, on ACDC and WBC after 6,000 steps (not after 2,000 on WBC) and "
        "in a short training on USGRA: no method lowers the held-out NLL significantly.",
        "NACL on USGRA stays as trained, too, though a temperature would have lowered its NLL from "
        f"{usgra_nacl['NLL_trained']:.3f} to {usgra_nacl['NLL_temperature']:.3f}, at an ECE near of "
        f"{usgra_nacl['ECE_temperature']:.3f} in place of {usgra_nacl['ECE_trained']:.3f}.",
        "The written checkpoint beats a temperature in each model of DiceCE, ECP (sum), LS, MbLS, SVLS and, but on "
        "USGRA, NACL. Over "
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
    rows = read("calibrate", "nested_NLL.notna() and method == 'as trained' and not trainer.str.endswith('_24epochs')")
    rows = rows[~rows["trainer"].str.contains("DicePP")]
    above = rows["nested_NLL"] - rows["held_out_NLL_written"]
    assert len(rows) == 12
    assert above.min() >= 0
    small = rows["data_set"].str.endswith("Hippocampus") & rows["trainer"].str.contains("TrainerCE|TrainerECP")
    left = (rows["held_out_NLL"] - rows["nested_NLL"])[small]
    assert len(left) == 3
    said(
        "results/calibrate.md",
        f"in twelve longer trainings it is higher by 0 to {above.max():.3f}. On Hippocampus that leaves CE and ECP "
        f"(sum) a gain of at most {math.ceil(1000 * left.max()) / 1000:.3f}.",
    )


def test_what_a_last_layer_says_that_may_change_labels() -> None:
    rows = read("calibrate", "decoded.isna() and data_set.str.endswith('Hippocampus') and configuration == '2d_bs8'")
    rows = rows[~rows["trainer"].str.endswith("_24epochs")]
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
