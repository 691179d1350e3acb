"""Tables of docs/results/since.md, from losses.csv, calibrate.csv, ace.csv and rankseg_cases.csv: see tables.py."""

import numpy as np
import pandas as pd
from cells import ECE_NEAR, crossed, difference, markdown, read, table
from models import loss_name

from nnunet_nacl.metrics import case_weights
from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.patients import patient_numbers

PROMISE = {"Dice": 0.003, "NLL": 0.03, "ECE_near": 0.010}
"""How much Dice may be below DiceCE's and NLL above CE's, and the largest ECE near: the rule of since.md."""

IDENTITY = ["data_set", "configuration", "trainer", "fold", "training"]
"""The columns by which a training's rows are found."""

WITHOUT_SPACING = ("Dataset051_USGRA", "Dataset052_WBC")
"""Data sets of PNG files."""


def since_rows(
    data_set: str = "Dataset004_Hippocampus",
    steps: int = 6000,
    configuration: str = "2d_bs8",
    optimizer: str = "Adam",
) -> pd.DataFrame:
    """The losses of the study ``since`` and NACL as in the paper, fold 0: means over trainings, and the verdict."""
    methods = [loss_name(method.trainer) for method in read_study("since").methods]
    methods.insert(methods.index("CE") + 1, "NACL")
    rows = read(
        "losses",
        f"data_set == '{data_set}' and configuration == '{configuration}' and optimizer == '{optimizer}' "
        f"and steps == {steps} and fold == '0'",
    )
    grouped = rows.groupby("method")
    means = grouped.mean(numeric_only=True)
    means["trainings"] = grouped.size()
    found = means.loc[[method for method in methods if method in means.index]]
    keeps = (
        (found["Dice"] >= found.loc["DiceCE", "Dice"] - PROMISE["Dice"])
        & (found["NLL"] <= found.loc["CE", "NLL"] + PROMISE["NLL"])
        & (found["ECE_near"] <= PROMISE["ECE_near"])
    )
    found["keeps"] = keeps.map({True: "**yes**", False: "no"})
    return found.reset_index()


def losses_since() -> str:
    """Losses since the paper on Hippocampus, by the rule of since.md."""
    return _since_table("Dataset004_Hippocampus")


def losses_since_acdc() -> str:
    """The same on ACDC."""
    return _since_table("Dataset027_ACDC")


def losses_since_long() -> str:
    """The same on Hippocampus after 25,000 steps."""
    return _since_table("Dataset004_Hippocampus", 25000)


def losses_since_3d() -> str:
    """The same on Hippocampus in 3D, after 2,000 steps."""
    return _since_table("Dataset004_Hippocampus", 2000, "3d_fullres_bs2")


def losses_since_usgra() -> str:
    """The same on USGRA: SGD, 12,500 steps."""
    return _since_table("Dataset051_USGRA", 12500, "2d_bs4", "SGD")


def losses_since_wbc() -> str:
    """The same on the regions of WBC, after 2,000 steps."""
    return _since_table("Dataset052_WBC", 2000)


def _since_table(
    data_set: str, steps: int = 6000, configuration: str = "2d_bs8", optimizer: str = "Adam"
) -> str:
    columns = {
        "loss": "{method}",
        "trainings": "{trainings}",
        "Dice": "{Dice:.3f}",
        "NLL": "{NLL:.3f}",
        **ECE_NEAR,
        "keeps the promise": "{keeps}",
        "ECE foreground": "{ECE_foreground:.3f}",
        "CECE foreground": "{CECE_foreground:.3f}",
        "ECE union": "{ECE_union:.3f}",
        "Brier": "{Brier:.3f}",
        f"HD95 ({'px' if data_set in WITHOUT_SPACING else 'mm'})": "{HD95:.2f}",
    }
    return table(since_rows(data_set, steps, configuration, optimizer), columns)


def calibrated_since(data_set: str = "Dataset004_Hippocampus") -> pd.DataFrame:
    """The same models as trained, with one temperature and with a refitted last layer, those that were calibrated.

    Means over trainings.
    """
    models = since_rows(data_set)["method"].tolist()
    rows = read("calibrate", "method in ['as trained', 'temperature', 'head'] and folds == '0'")
    rows = rows[
        (rows["data_set"] == data_set) & rows["trainer"].str.endswith("_paperSchedule_24epochs")
    ]
    rows = rows.assign(loss=rows["trainer"].map(loss_name))
    rows = rows[rows["loss"].isin(models)]
    scores = ["NLL", "ECE", "over_confidence", "Dice"]
    rows = rows.groupby(["loss", "method"], as_index=False)[scores].mean()
    return rows.sort_values("loss", key=lambda names: names.map(models.index), kind="stable")


def since_calibrated(data_set: str = "Dataset004_Hippocampus") -> str:
    """NLL, ECE near and Dice of each loss, as trained and calibrated."""
    columns = {method: f"method == '{method}'" for method in ("as trained", "temperature", "head")}
    return crossed(
        calibrated_since(data_set), columns, "{NLL:.3f}, {ECE:.3f}, {Dice:.3f}", by="loss"
    )


def since_calibrated_acdc() -> str:
    """The same on ACDC."""
    return since_calibrated("Dataset027_ACDC")


def ace_since() -> pd.DataFrame:
    """ACE of the test cases by mL1-ACE's definition, of each loss's first training, in the order of the study."""
    order = since_rows()["method"].tolist()
    rows = read("ace", "fold == '0'")
    rows = rows[~rows["trainer"].str.endswith("_paperSchedule")]
    rows["loss"] = rows["trainer"].map(loss_name)
    rows = rows.drop_duplicates(["data_set", "loss"])
    return rows.sort_values("loss", key=lambda names: names.map(order.index), kind="stable")


def since_ace() -> str:
    """The same, with intervals."""
    columns = {
        "Hippocampus": "data_set == 'Dataset004_Hippocampus'",
        "ACDC": "data_set == 'Dataset027_ACDC'",
    }
    return crossed(ace_since(), columns, "{ACE:.3f} ({ACE_low:.3f} to {ACE_high:.3f})", by="loss")


def decoded_since(data_set: str = "Dataset004_Hippocampus", steps: int = 6000) -> pd.DataFrame:
    """Dice by argmax and by rankseg of each model, and the gain, with intervals of a bootstrap over patients.

    ``interaction`` is the gain minus that of DiceCE, of the same cases.
    """
    models = read("losses", f"data_set == '{data_set}' and steps == {steps}")
    cases = models[[*IDENTITY, "method", "NLL", "Brier", "ECE_near"]].merge(
        read("rankseg_cases"), on=IDENTITY
    )
    cases["gain"] = cases["Dice_rankseg"] - cases["Dice_argmax"]
    gains = cases.pivot_table(index="case", columns="method", values="gain")
    by_patient = data_set == "Dataset027_ACDC"
    weights = case_weights(patient_numbers(gains.index.tolist(), by_patient))
    columns = ["Dice_argmax", "Dice_rankseg", "gain", "NLL", "Brier", "ECE_near"]
    found = cases.groupby("method")[columns].mean()
    found["interaction"] = found["gain"] - found.loc["DiceCE", "gain"]
    for name, of_cases in (("gain", gains), ("interaction", gains.sub(gains["DiceCE"], axis=0))):
        drawn = weights @ of_cases.to_numpy() / weights.sum(1)[:, None]
        found[[f"{name}_low", f"{name}_high"]] = np.percentile(drawn, (2.5, 97.5), axis=0).T
    order = since_rows()["method"].tolist()
    return found.reset_index().sort_values("method", key=lambda names: names.map(order.index))


def since_decoded(data_set: str = "Dataset004_Hippocampus", steps: int = 6000) -> str:
    """RankSEG's question: does its gain depend on the loss?"""
    lines = [
        ["loss", "argmax", "rankseg", "gain", "gain − DiceCE's", "NLL", "Brier", "ECE near"],
    ]
    for row in decoded_since(data_set, steps).to_dict("records"):
        changes = [
            difference(row[name], row[f"{name}_low"], row[f"{name}_high"], 4)
            for name in ("gain", "interaction")
        ]
        changes[1] = "" if row["method"] == "DiceCE" else changes[1]
        dice = [f"{row[f'Dice_{by}']:.4f}" for by in ("argmax", "rankseg")]
        scores = [f"{row[name]:.3f}" for name in ("NLL", "Brier", "ECE_near")]
        lines.append([row["method"], *dice, *changes, *scores])
    return markdown(lines)


def since_decoded_long() -> str:
    """The same on Hippocampus after 25,000 steps."""
    return since_decoded(steps=25000)


def since_decoded_acdc() -> str:
    """The same on ACDC."""
    return since_decoded("Dataset027_ACDC")
