"""Tables of trained models as they are and calibrated: see tables.py."""

import pandas as pd
from cells import AGAIN, read, table
from models import loss_name


def calibrations(where: str) -> pd.DataFrame:
    """A row for each model of calibrate.csv, with columns such as ``NLL_head`` for each method."""
    rows = read("calibrate", where)
    # Those of 6,000 steps are in since.md
    rows = rows[~rows["trainer"].str.endswith("_paperSchedule_24epochs")]
    rows = rows[~rows["method"].str.contains("cases")].replace({"method": "as trained"}, "trained")
    of_model = ["data_set", "configuration", "trainer", "folds", "training"]
    wide = rows.pivot_table(index=of_model, columns="method", values=["NLL", "Dice"])
    wide.columns = wide.columns.map("_".join)
    wide = wide.reset_index()
    return named(wide).sort_values(["data", "steps", "model"])


def named(models: pd.DataFrame) -> pd.DataFrame:
    """With columns ``data``, ``model``, such as ``DiceCE SGD 3D``, and ``steps``, from trainer and configuration."""
    trainer = models["trainer"]
    loss = trainer.map(loss_name)
    optimizer = trainer.str.contains("paperSchedule").map({True: "Adam", False: "SGD"})
    dimensions = models["configuration"].str.startswith("3d").map({True: " 3D", False: ""})
    models["data"] = models["data_set"].str.partition("_")[2]
    models["model"] = loss + " " + optimizer + dimensions + models["training"].map(AGAIN)
    epochs = trainer.str.extract(r"_(\d+)epochs")[0].fillna("100").astype(int)
    iterations = trainer.str.extract(r"_(\d+)iterations")[0].fillna("250").astype(int)
    models["steps"] = epochs * iterations
    return models


def calibrate_long() -> str:
    """NLL and Dice of the last layers with and without the term that keeps labels, in the longest trainings."""
    methods = {
        "trained": "trained", "temperature": "temperature", "isotonic": "isotonic",
        "head": "head", "head by CE alone": "by CE alone",
    }  # fmt: skip
    columns = {"trained with": "{data}, {model}", "steps": "{steps:,}"}
    columns |= {title: f"{{NLL_{method}:.3f}}" for method, title in methods.items()}
    columns["Dice: trained→head→by CE alone"] = (
        "{Dice_trained:.4f}→{Dice_head:.4f}→{Dice_head by CE alone:.4f}"
    )
    return table(calibrations("decoded.isna()"), columns)


def checkpoints() -> pd.DataFrame:
    """A row for each model of checkpoints.csv, with columns such as ``NLL_best`` for each checkpoint."""
    rows = read("checkpoints")
    kept = ["NLL", "NLL_low", "NLL_high", "ECE", "over_confidence", "Dice", "changed"]
    of_model = ["data_set", "configuration", "trainer", "fold", "training"]
    wide = rows.pivot_table(index=of_model, columns="checkpoint", values=kept)
    wide.columns = wide.columns.map("_".join)
    written = rows[rows["checkpoint"] == "best"].set_index(of_model)["written"]
    wide = wide.join(written).reset_index()
    return named(wide).sort_values(["data_set", "model", "steps"])


def calibrate_written() -> str:
    """What the command writes, predicted by a stock nnU-Net: fold 0, long trainings, of repeated ones the first."""
    columns = {
        "trained with": "{data}, {model}",
        "steps": "{steps:,}",
        "written": "{written}",
        "NLL: trained": "{NLL_trained:.3f}",
        "temperature": "{NLL_temperature:.3f}",
        "written ": "{NLL_best:.3f}",
        "ECE near: trained→written": "{ECE_trained:.3f}→{ECE_best:.3f}",
        "Dice: trained→written": "{Dice_trained:.4f}→{Dice_best:.4f}",
        "labels changed": "{changed_best:.1%}",
    }
    rows = (
        checkpoints().query("fold == '0' and steps >= 2000").sort_values("training", kind="stable")
    )
    rows = rows.drop_duplicates(["data_set", "configuration", "trainer"])
    rows = rows.sort_values(["data_set", "model", "steps"])
    # The picture has the others
    in_picture = (rows["model"] == "DiceCE SGD") & rows["steps"].isin([4000, 6000])
    loss = rows["model"].str.removesuffix(", again")
    longest = rows.groupby(["data_set", loss])["steps"].transform("max")
    short = (rows["steps"] == 2000) & (rows["steps"] < longest)
    return table(rows[~in_picture & ~short], columns)


def ensemble() -> str:
    """Five folds together and one by one, as trained and calibrated, on the same cases."""
    rows = read("ensemble", "checkpoint != 'ensemble'").replace({"as trained": "trained"})
    wide = rows.pivot_table(
        index="predicted_with", columns="checkpoint", values=["NLL", "ECE", "Dice"]
    )
    wide.columns = wide.columns.map("_".join)
    columns = {"folds": "{folds}"}
    for title, metric, digits in (("NLL", "NLL", 3), ("ECE near", "ECE", 4), ("Dice", "Dice", 4)):
        columns[f"{title}: trained→calibrated"] = (
            f"{{{metric}_trained:.{digits}f}}→{{{metric}_folds:.{digits}f}}"
        )
    wide["folds"] = wide.index.str.replace(" ", "+")
    return table(wide.sort_index(key=lambda folds: -folds.str.len(), kind="stable"), columns)


def calibrate_cases() -> str:
    """Fits to few validation cases: median, lowest and highest of 20 draws of each number."""
    rows = read("few_cases", "method.str.contains(' cases, ')")
    named = r"(?P<of>\w+) of (?P<cases>\d+) cases, (?P<draw>\d+)"
    parts = rows["method"].str.extract(named).astype({"cases": int})
    rows = rows[["NLL"]].join(parts)
    of_draws = rows.pivot(index=["cases", "draw"], columns="of", values="NLL")
    better = of_draws["head"] < of_draws["temperature"]
    wide = rows.pivot_table(
        index="cases", columns="of", values="NLL", aggfunc=["median", "min", "max"]
    )
    wide.columns = wide.columns.map("_".join)
    wide["better"] = better.groupby("cases").mean()
    spread = "{{median_{0}:.3f}} ({{min_{0}:.3f}} to {{max_{0}:.3f}})"
    columns = {"cases": "{cases}"}
    for method in ("temperature", "head"):
        columns[f"{method}: NLL"] = spread.format(method)
    columns["head beats temperature in"] = "{better:.0%}"
    return table(wide.reset_index(), columns)
