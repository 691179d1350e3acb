"""Write the tables of the docs' pages from the results in docs/results/data.

    python benchmarks/tables.py

replaces what stands in a page between ``<!-- table NAME -->`` and ``<!-- end -->``. Each name is a function
in ``TABLES``, which takes rows of a CSV file, and for each column a template that is filled with the row.
tests/test_results.py compares.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from models import loss_name

from nnunet_nacl.metrics import resample_weights
from nnunet_nacl.paper.report import published

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str, where: str = "") -> pd.DataFrame:
    """The rows of docs/results/data/NAME.csv for which a pandas query holds, in the order of the file."""
    data = pd.read_csv(DOCS / "results" / "data" / f"{name}.csv", dtype={"fold": str, "folds": str})
    return data.query(where) if where else data


def fill(template: str, row: Mapping[str, object]) -> str:
    """A cell such as ``"{NLL:.3f} ({NLL_low:.3f} to {NLL_high:.3f})"``; a dash if a value is missing."""
    if any(pd.isna(row[name]) for name in re.findall(r"{([^}:]+)", template)):
        return "–"
    return re.sub(r"(?<![\w.])-(?=\d)", "−", template.format_map(row)).replace("%", " %")


def table(rows: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """A Markdown table with a line for each row; ``columns`` maps titles to templates, see ``fill``."""
    lines = [[fill(cell, row) for cell in columns.values()] for row in rows.to_dict("records")]
    return markdown([list(columns), *lines])


def crossed(rows: pd.DataFrame, columns: Mapping[str, str], cell: str, *, by: str) -> str:
    """A Markdown table with a line for each value of the column ``by``; ``columns`` maps titles to queries of a row."""
    lines = [[by, *columns]]
    for value, some in rows.groupby(by, sort=False):
        found = [some.query(query).to_dict("records") for query in columns.values()]
        if max(map(len, found)) > 1:
            raise ValueError(f"Expected at most one row of {value!r} for each of {list(columns)}")
        lines.append(
            [str(value), *(fill(cell, rows_of[0]) if rows_of else "–" for rows_of in found)]
        )
    return markdown(lines)


def markdown(lines: Iterable[Iterable[str]]) -> str:
    """A table whose first line is the head."""
    head, *rest = (f"| {' | '.join(cells)} |\n" for cells in lines)
    return head + "|---" * head.count(" | ") + "|---|\n" + "".join(rest)


AGAIN = {1: "", 2: ", again"}
ECE_NEAR = {"ECE near": "{ECE_near:.3f}", "confidence − accuracy": "{over_confidence:+.3f}"}
UNION = {"ECE union": "{ECE_union:.3f} ({ECE_union_expected:.3f})"}


def losses_hippocampus() -> str:
    """Six losses, folds 0 and 1."""
    rows = read("losses", "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 3000")
    again = rows[rows["fold"] == "1"].set_index("method")[["NLL"]].add_suffix("_fold_1")
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "NLL": "{NLL:.3f}",
        "of it, cap": "{NLL_cap:.3f}",
        **ECE_NEAR,
        "fold 1: NLL": "{NLL_fold_1:.3f}",
    }
    return table(rows[rows["fold"] == "0"].join(again, on="method"), columns)


def losses_usgra() -> str:
    """Eight losses."""
    rows = read(
        "losses", "configuration == '2d_bs4' and optimizer == 'Adam' and CECE_union.notna()"
    )
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "NLL": "{NLL:.3f}",
        "of it, cap": "{NLL_cap:.3f}",
    }
    return table(rows, {**columns, **ECE_NEAR, **UNION})


def losses_long() -> str:
    """The paper's length of training, Hippocampus, fold 0."""
    rows = read("losses", "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 25000")
    rows["method"] += rows["training"].map(AGAIN)
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "HD95 (mm)": "{HD95:.2f}",
        "ECE foreground": "{ECE_foreground:.3f} ({ECE_foreground_expected:.3f})",
        "CECE foreground": "{CECE_foreground:.3f} ({CECE_foreground_expected:.3f})",
        **UNION,
        "NLL": "{NLL:.3f}",
        **ECE_NEAR,
    }
    return table(rows, columns)


def weight_of(method: str) -> float | None:
    """λ of NACL, or 0 for CE; None of another loss.

    >>> weight_of("NACL, λ = 0.03"), weight_of("NACL"), weight_of("CE"), weight_of("SVLS")
    (0.03, 0.1, 0.0, None)
    """
    if given := re.fullmatch(r"NACL, λ = ([\d.]+)", method):
        return float(given[1])
    return {"CE": 0.0, "NACL": 0.1}.get(method)


def of_weights(where: str) -> pd.DataFrame:
    """NACL and CE, as a column ``weight`` says, trained with Adam in batches of eight, fold 0."""
    rows = read("losses", f"configuration == '2d_bs8' and optimizer == 'Adam' and {where}")
    rows["weight"] = rows["method"].map(weight_of)
    return rows.dropna(subset="weight").sort_values("weight", kind="stable")


LAMBDA_STUDIES = {
    "Hippocampus, 25,000 steps": "data_set == 'Dataset004_Hippocampus' and steps == 25000",
    "ACDC, 2,000 steps": "data_set == 'Dataset027_ACDC' and steps == 2000",
}


def losses_lambda() -> str:
    """NACL by λ, on each data set."""
    parts = []
    for title, where in LAMBDA_STUDIES.items():
        rows = of_weights(where)
        rows["study"] = [title] + [""] * (len(rows) - 1)
        rows["λ"] = rows["weight"].map("{:g}".format).replace("0", "0 (CE)")
        rows["λ"] += rows["training"].map(AGAIN)
        parts.append(rows)
    rows = pd.concat(parts)
    columns = {
        "": "{study}",
        "λ": "{λ}",
        "Dice": "{Dice:.3f}",
        "ECE foreground": "{ECE_foreground:.3f}",
        "CECE foreground": "{CECE_foreground:.3f}",
        "ECE union": "{ECE_union:.3f}",
        "NLL": "{NLL:.3f}",
        **ECE_NEAR,
    }
    return table(rows, columns)


def paper_long() -> str:
    """The same models beside the paper's means over its six data sets."""
    long = "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 25000"
    rows = read("losses", f"{long} and training == 1")
    theirs = published()
    theirs = theirs[(theirs["structure"] == "") & theirs["table"].isin([1, 2])]
    means = theirs.pivot_table(index="method", columns="metric", values="value")
    means = means.rename(index={"CE+DSC": "DiceCE"}).add_prefix("paper_")
    columns = {"loss": "{method}"}
    for metric, ours in (("DSC", "Dice"), ("ECE", "ECE_foreground"), ("CECE", "CECE_foreground")):
        columns[f"{metric}: here"] = f"{{{ours}:.3f}}"
        columns[f"{metric}: paper"] = f"{{paper_{metric}:.3f}}"
    rows["in_paper"] = rows["method"].str.removesuffix(" (sum)")
    return table(rows.join(means, on="in_paper"), columns)


PAIRED = {"Dice": 4, "ECE union": 3, "NLL": 3}


def losses_paired() -> str:
    """Methods minus DiceCE of the same optimizer, paired by case."""
    lines = [["minus DiceCE", *PAIRED]]
    for row in read("losses_paired").to_dict("records"):
        cells = [f"{row['method']}, Adam"]
        for metric, digits in PAIRED.items():
            name = "NLL per foreground voxel" if metric == "NLL" else metric
            cells.append(difference(row[name], row[f"{name} low"], row[f"{name} high"], digits))
        lines.append(cells)
    for suffix, optimizer in (("_paperSchedule", "Adam"), ("_100epochs", "SGD")):
        where = f"data_set.str.endswith('Hippocampus') and trainer.str.endswith('{suffix}')"
        for name, cells in _paired_by_case(where, "DiceCE, again", PAIRED).items():
            lines.append([f"{name}, {optimizer}", *cells])
    return markdown(lines)


def losses_lambda_paired() -> str:
    """NACL minus cross-entropy, paired by case, as far as the values of each case were kept."""
    metrics = {"Dice": 4, "ECE foreground": 3, "ECE union": 3, "NLL": 3, "ECE near": 3}
    lines = [["minus CE", *metrics]]
    for data_set, suffix, base in (
        ("Hippocampus", "_paperSchedule", "CE, again"),
        ("ACDC", "_paperSchedule_8epochs", "CE"),
    ):
        of_data = f"data_set.str.endswith('{data_set}') and trainer.str.endswith('{suffix}')"
        for name, cells in _paired_by_case(of_data, base, metrics).items():
            if name.startswith("NACL"):
                lines.append([f"{data_set}: {name}", *cells])
    return markdown(lines)


def difference(value: float, low: float, high: float, digits: int) -> str:
    """A cell such as ``−0.179 (−0.210 to −0.151)``."""
    template = f"{{0:+.{digits}f}} ({{1:+.{digits}f}} to {{2:+.{digits}f}})"
    return template.format(value, low, high).replace("-", "−")


def _paired_by_case(where: str, base: str, metrics: Mapping[str, int]) -> dict[str, list[str]]:
    """The models whose values of each case were kept, minus ``base``; with intervals of a paired bootstrap."""
    rows = read("losses_cases", f"{where} and fold == '0'")
    values = {}
    for (trainer, training), cases in rows.groupby(["trainer", "training"], sort=False):
        values[loss_name(trainer) + AGAIN[training]] = _over_cases(cases.set_index("case"))
    of_base = values.pop(base)
    found: dict[str, list[str]] = {}
    for name, of_model in values.items():
        found[name] = []
        for metric, digits in metrics.items():
            (mean, drawn), (base_mean, base_drawn) = of_model[metric], of_base[metric]
            low, high = np.percentile(drawn - base_drawn, [2.5, 97.5])
            found[name].append(difference(mean - base_mean, low, high, digits))
    return found


def _over_cases(cases: pd.DataFrame) -> dict[str, tuple[float, np.ndarray]]:
    """Of each metric the value over all cases, and those over resamples of them."""
    cases = cases.sort_index()
    weights = np.vstack([np.ones(len(cases)), resample_weights(len(cases))])
    dice = cases.filter(regex="^Dice_").dropna(axis=1, how="all").to_numpy()  # of its structures
    gaps = weights @ cases.filter(regex="^gap_").to_numpy()
    values = {
        "Dice": (weights @ dice / weights.sum(1, keepdims=True)).mean(1),
        "NLL": weights @ cases["NLL_sum"] / (weights @ cases["foreground"]),
        "ECE near": np.abs(gaps).sum(1) / (weights @ cases["near"]),
        "ECE foreground": weights @ cases["ECE_foreground"] / weights.sum(1),
        "ECE union": weights @ cases["ECE_union"] / weights.sum(1),
    }
    return {metric: (float(both[0]), both[1:]) for metric, both in values.items()}


def losses_ablations() -> str:
    """Penalty, prior, constraint."""
    rows = read("losses", "configuration == '2d_bs8' and steps == 1500 and CECE_union.notna()")
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "ECE foreground": "{ECE_foreground:.3f}",
        "CECE foreground": "{CECE_foreground:.3f}",
        "NLL": "{NLL:.3f}",
        **ECE_NEAR,
    }
    return table(rows, columns)


def paper_ablations() -> str:
    """The paper's tables 3 and 4, and the same in a short training of ours."""
    methods = {"NACL": "mean, l1", "NACL Gaussian": "Gaussian", "NACL l2": "l2"}
    lines = [["", *(f"{metric}: {name}" for metric in ("DSC", "ECE") for name in methods.values())]]
    ours = read("losses", "configuration == '2d_bs8' and steps == 1500 and CECE_union.notna()")
    ours = ours[ours["training"] == 1].replace(
        {"method": {"NACL Gaussian, σ = 1": "NACL Gaussian"}}
    )
    ours = ours.set_index("method")
    cells = [f"{ours.loc[m, c]:.3f}" for c in ("Dice", "ECE_foreground") for m in methods]
    lines.append(["**here**: Hippocampus, 1,500 steps", *cells])
    theirs = published()
    theirs = theirs[theirs["table"].isin([3, 4])].drop_duplicates(["dataset", "metric", "method"])
    for data_set, rows in theirs.groupby("dataset", sort=False):
        values = rows.set_index(["metric", "method"])["value"]
        cells = [f"{values[metric, m]:.3f}" for metric in ("DSC", "ECE") for m in methods]
        lines.append([f"paper: {data_set}", *cells])
    return markdown(lines)


ACDC = {"1": "RV", "2": "MYO", "3": "LV"}
"""The structures by their labels."""


def paper_acdc() -> str:
    """The paper's tables 1 and 2 for ACDC beside ours: each structure, and ECE and CECE over the foreground."""
    theirs = published()
    theirs = theirs[(theirs["dataset"] == "ACDC") & theirs["table"].isin([1, 2])]
    theirs = theirs.replace({"method": {"CE+DSC": "DiceCE"}})
    values = theirs.set_index(["method", "structure", "metric"])["value"]
    of_models = read("losses", "data_set == 'Dataset027_ACDC' and training == 1")
    cases = read("losses_cases", "data_set == 'Dataset027_ACDC' and training == 1")
    structures = [f"{name}: {what}" for name in ACDC.values() for what in ("DSC", "HD95")]
    lines = [["loss", *structures, "ECE", "CECE"]]
    for row in of_models.to_dict("records"):
        of_model = cases[cases["trainer"] == row["trainer"]]
        ours = []
        paper = []
        for label, name in ACDC.items():
            ours.append(f"{of_model[f'Dice_{label}'].mean():.3f}")
            ours.append(f"{of_model[f'HD95_{label}'].mean():.2f}")
            paper += [(name, "DSC", 3), (name, "HD", 2)]
        ours += [f"{row['ECE_foreground']:.3f}", f"{row['CECE_foreground']:.3f}"]
        lines.append([f"{row['method']}, here, {row['steps']:,} steps", *ours])
        if row["method"] in values.index:
            of_paper = values[row["method"]]
            paper += [("", "ECE", 3), ("", "CECE", 3)]
            found = [f"{of_paper[name, metric]:.{digits}f}" for name, metric, digits in paper]
            lines.append([f"{row['method']}, paper", *found])
    return markdown(lines)


def losses_dice() -> str:
    """DiceCE, and what might keep its Dice: NLL, and the best Dice of each."""
    rows = read("losses", "decoded.notna()")
    rows["best"] = rows[["Dice", "decoded"]].max(axis=1)
    settings = (
        rows[["configuration", "optimizer", "steps"]].drop_duplicates().to_records(index=False)
    )
    columns = {
        f"{'Hippocampus' if plan == '2d_bs8' else 'USGRA'}, {optimizer}, {steps:,}": (
            f"configuration == '{plan}' and optimizer == '{optimizer}' and steps == {steps}"
        )
        for plan, optimizer, steps in settings
    }
    shown = "DiceCE", "CE", "FadeDice", "FadeLate", "DicePlusPlus", "LatePlusPlus"
    rows = rows[(rows["fold"] == "0") & rows["method"].isin(shown)]
    return crossed(rows, columns, "{NLL:.3f}, {best:.3f}", by="method")


def calibrations(where: str) -> pd.DataFrame:
    """A row for each model of calibrate.csv, with columns such as ``NLL_head`` for each method."""
    rows = read("calibrate", where)
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
    """What the command writes, predicted by a stock nnU-Net, for fold 0 and trainings that are not short."""
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
    rows = checkpoints()
    return table(rows.query("fold == '0' and steps >= 2000"), columns)


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


README_LOSSES = ["DiceCE", "CE", "NACL", "NACL, λ = 0.01"]


def readme() -> str:
    """The default loss, CE and NACL, and the default loss calibrated: Adam, fold 0, the longest training."""
    parts = []
    for data_set, name in (
        ("Dataset004_Hippocampus", "Hippocampus"),
        ("Dataset027_ACDC", "ACDC"),
    ):
        chosen = f"data_set == '{data_set}' and configuration == '2d_bs8' and fold == '0'"
        rows = read("losses", f"{chosen} and optimizer == 'Adam' and training == 1")
        rows = rows[rows["method"].isin(README_LOSSES)]
        rows = rows[rows["steps"] == rows["steps"].max()]
        rows = rows.sort_values("method", key=lambda methods: methods.map(README_LOSSES.index))
        trainer = rows.set_index("method")["trainer"]["DiceCE"]
        calibrated = read("checkpoints", f"{chosen} and trainer == '{trainer}' and training == 1")
        calibrated = calibrated[calibrated["checkpoint"] == "best"].rename(
            columns={"ECE": "ECE_near"}
        )
        rows = pd.concat([rows, calibrated.assign(method="DiceCE, then `calibrate`")])
        steps = f"{name}, {rows['steps'].iloc[0]:,} steps"
        parts.append(rows.assign(data=[steps, *[""] * (len(rows) - 1)]))
    columns = {"": "{data}", "loss": "{method}", "Dice": "{Dice:.3f}"}
    for title, metric in (
        ("ECE foreground", "ECE_foreground"),
        ("CECE foreground", "CECE_foreground"),
        ("ECE union", "ECE_union"),
        ("NLL", "NLL"),
        ("ECE near", "ECE_near"),
    ):
        columns[title] = f"{{{metric}:.3f}}"
    return table(pd.concat(parts), columns)


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


def yardstick() -> str:
    """The T that three metrics like best, over each voxel set."""
    metrics = {"ECE, mean over cases": "mean", "ECE, pooled": "pooled", "NLL": "NLL"}
    rows = read("yardstick").replace({"metric": metrics})
    best = rows.loc[rows.groupby(["labels", "voxels", "metric"], sort=False)["value"].idxmin()]
    best = best.pivot(index=["labels", "voxels"], columns="metric", values="T").loc[
        rows["labels"].unique()
    ]
    sets = {voxels: f"voxels == '{voxels}'" for voxels in rows["voxels"].unique()}
    return crossed(best.reset_index(), sets, "{mean:g}, {pooled:g}, {NLL:g}", by="labels")


def use() -> str:
    """What the confidences are good for."""
    columns = {
        "model": "{model}",
        "Dice": "{Dice:.4f}",
        "decoded": "{decoded:.4f}",
        "predicted Dice: bias": "{predicted_Dice_bias:+.3f}",
        "volume: bias": "{volume_bias:+.0%}",
        "90 % interval held": "{interval_held:.2f}",
    }
    return table(read("use"), columns)


def logits() -> str:
    """The mean of each logit, by true class."""
    names = ("background", "anterior", "posterior")
    rows = read("logits").pivot(index=["method", "true_class"], columns="logit", values="mean")
    rows = rows.loc[read("logits")["method"].unique()].reset_index()
    columns = {f"true: {name}": f"true_class == '{name}'" for name in names}
    return crossed(rows, columns, " / ".join(f"{{{name}:.2f}}" for name in names), by="method")


def max_logits() -> str:
    """Quantiles of the maximum logit."""
    folds = {f"fold {fold}: median (within which half lie)": f"fold == '{fold}'" for fold in (0, 1)}
    return crossed(read("max_logits"), folds, "{median:.2f} ({half_within:.2f})", by="method")


def evaluation_time() -> str:
    """Of evaluate, in units of np.load's."""
    columns = {
        "one process": "{what}",
        "dense": "{dense:g}",
        "saturated": "{saturated:g}",
        "bound": "{bound:g}",
    }
    return table(read("evaluation_time"), columns)


def function_time() -> str:
    """Of single functions, in units of their peers'."""
    columns = {"what": "{what}", "against": "{against}", "times": "{times:g}", "bound": "{bound:g}"}
    return table(read("function_time"), columns)


def loss_time() -> str:
    """Of each loss, and its memory."""
    columns = {"2D: time": ("2d", "over_nnunet"), "memory": ("2d", "memory")}
    columns |= {"3D: time": ("3d", "over_nnunet"), "memory ": ("3d", "memory")}
    rows = read("loss_time", "loss not in ['NACL gaussian', 'NACL l2']")
    shapes = {
        shape: rows[rows["shape"] == shape].set_index("loss").add_suffix(f"_{shape}")
        for shape in ("2d", "3d")
    }
    both = shapes["2d"].join(shapes["3d"]).reset_index()
    return table(
        both,
        {
            "loss": "{loss}",
            **{title: f"{{{name}_{shape}:g}}" for title, (shape, name) in columns.items()},
        },
    )


TABLES: dict[str, Callable[[], str]] = {
    "calibrate-long": calibrate_long,
    "calibrate-cases": calibrate_cases,
    "calibrate-written": calibrate_written,
    "readme": readme,
    "ensemble": ensemble,
    "losses-hippocampus": losses_hippocampus,
    "losses-usgra": losses_usgra,
    "losses-long": losses_long,
    "losses-paired": losses_paired,
    "losses-lambda": losses_lambda,
    "losses-lambda-paired": losses_lambda_paired,
    "paper-long": paper_long,
    "paper-acdc": paper_acdc,
    "paper-ablations": paper_ablations,
    "losses-ablations": losses_ablations,
    "losses-dice": losses_dice,
    "yardstick": yardstick,
    "use": use,
    "logits": logits,
    "max-logits": max_logits,
    "evaluation-time": evaluation_time,
    "function-time": function_time,
    "loss-time": loss_time,
}


def written(page: str) -> str:
    """The text of a page with its tables anew."""

    def one(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"There is no table {match[2]!r}; expected one of {sorted(TABLES)}")
        return match[1] + TABLES[match[2]]() + match[3]

    return MARKED.sub(one, page)


def pages() -> Iterator[Path]:
    """README and every page of the docs."""
    yield DOCS.parent / "README.md"
    yield from sorted(DOCS.rglob("*.md"))


def main() -> None:
    """Write the pages' tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    for file in pages():
        old = file.read_text(encoding="utf-8")
        new = written(old)
        if new != old:
            file.write_text(new, encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()
