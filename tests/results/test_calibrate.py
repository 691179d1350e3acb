"""What README and the docs claim of calibrated models, by the data of their checkpoints."""

import math
import re

from calibration_tables import checkpoints
from cells import read

from tests.results.pages import SINCE, stated

PAGE = "results/calibrate.md"


def test_labels_hardly_change() -> None:
    """The largest share of relabeled foreground, and the largest loss of Dice, are DiceCE's on USGRA."""
    rows = checkpoints()
    most = rows.loc[rows["changed_best"].idxmax()]
    assert most["trainer"].startswith("nnUNetTrainerDiceCE_")
    loses = rows["Dice_trained"] - rows["Dice_best"]
    worst = loses.idxmax()
    assert {most["data_set"], rows.loc[worst, "data_set"]} == {"Dataset051_USGRA"}
    assert loses.drop(worst).max() <= 0.001
    relabeled = f"{100 * most['changed_best']:.1f} %"
    stated(PAGE, loses[worst], relabeled, f"{most['steps']:,} steps")
    for page in ("../README.md", "limitations.md"):
        stated(page, relabeled)
    stated("limitations.md", f"{100 * rows['changed_temperature'].max():.2f} %")


def test_how_far_the_nll_falls() -> None:
    """Of DiceCE by how much; over all models of a data set, also beside one temperature."""
    rows = checkpoints()
    fall = 100 * (1 - rows["NLL_best"] / rows["NLL_trained"])[rows["model"].str.startswith("DiceCE")]
    stated(PAGE, f"{fall.min():.0f} to {fall.max():.0f} %")
    for data in ("Hippocampus", "USGRA"):
        models = rows.loc[rows["data"] == data]
        stated(PAGE, f"{len(models)}", *models[["NLL_trained", "NLL_best", "NLL_temperature"]].mean())


def test_where_the_checkpoint_beats_a_temperature() -> None:
    """In each model of every loss but CE and, on USGRA alone, NACL, which stays as trained."""
    rows = checkpoints()
    better = (rows["NLL_best"] < rows["NLL_temperature"]).groupby(rows["model"].str.split(" Adam| SGD").str[0]).all()
    assert set(better.index[~better]) == {"CE", "NACL"}
    nacl = rows[rows["model"].str.startswith("NACL")].set_index("data_set")
    assert (nacl["NLL_best"] < nacl["NLL_temperature"]).drop("Dataset051_USGRA").all()
    usgra = nacl.loc["Dataset051_USGRA"]
    assert usgra["NLL_best"] == usgra["NLL_trained"]
    stated(PAGE, *usgra[["NLL_trained", "NLL_temperature", "ECE_temperature", "ECE_trained"]])


def test_ce_stays_as_trained() -> None:
    ce = read("checkpoints", "checkpoint == 'best' and trainer.str.contains('TrainerCE_paperSchedule')")
    written = ce.set_index([ce["data_set"].str.partition("_")[2], "steps"])["written"]
    assert written.to_dict() == {
        ("Hippocampus", 25000): "as trained",
        ("ACDC", 6000): "as trained",
        ("USGRA", 1000): "as trained",
        ("WBC", 6000): "as trained",
        ("WBC", 2000): "head",
    }


def test_from_how_many_cases_on_a_head_is_better() -> None:
    """From ten on in most draws; even with five, every draw is better than as trained."""
    rows = read("few_cases", "method.str.contains(' cases, ')")
    rows[["of", "cases", "draw"]] = rows["method"].str.extract(r"(\w+) of (\d+) cases, (\d+)")
    nll = rows.pivot(index=["cases", "draw"], columns="of", values="NLL")
    wins = (nll["head"] < nll["temperature"]).groupby("cases").sum()
    assert (rows["NLL_minus_as_trained"] < 0).all()
    stated(PAGE, f"{wins.drop('5').min()} of 20 draws", f"{20 - wins['5']}")


def test_what_is_left_of_a_gain_that_is_not_chosen() -> None:
    """Held-out NLL with the choice nested is hardly higher, in twelve longer trainings."""
    rows = read("calibrate", "nested_NLL.notna() and method == 'as trained' and not trainer.str.endswith('_24epochs')")
    rows = rows[~rows["trainer"].str.contains(SINCE)]
    above = rows["nested_NLL"] - rows["held_out_NLL_written"]
    assert len(rows) == 12
    assert above.min() >= 0
    small = rows["data_set"].str.endswith("Hippocampus") & rows["trainer"].str.contains("TrainerCE|TrainerECP")
    left = (rows["held_out_NLL"] - rows["nested_NLL"])[small]
    assert len(left) == 3
    stated(PAGE, above.max(), math.ceil(1000 * left.max()) / 1000)


def test_last_layers_that_may_change_labels() -> None:
    """Isotonic regression has the lowest NLL for DiceCE, NACL and LS after 25,000 steps, and not for CE and ECP."""
    rows = read("calibrate", "decoded.isna() and data_set.str.endswith('Hippocampus') and configuration == '2d_bs8'")
    rows = rows[~rows["trainer"].str.contains(f"_24epochs|{SINCE}")]
    some = rows[rows["trainer"].str.contains("TrainerDiceCE|TrainerNACL|TrainerLS")]
    changed = 100 * some.loc[some["method"] == "head by CE alone", "changed"]
    stated("results/last-layer.md", f"{changed.min():.0f} to {changed.max():.0f} %")
    for (trainer, _), of_model in rows.groupby(["trainer", "training"]):
        nll = of_model.set_index("method")["NLL"]
        lowest = re.search("TrainerDiceCE|TrainerNACL|TrainerLS", trainer) and "300epochs" not in trainer
        assert (nll.idxmin() == "isotonic") == bool(lowest), trainer
        if re.search("TrainerCE|TrainerECP", trainer):
            assert nll["isotonic"] > nll["as trained"], trainer
