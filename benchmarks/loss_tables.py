"""Tables of what losses trained, from losses.csv and losses_cases.csv: see tables.py."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from cells import AGAIN, ECE_NEAR, UNION, crossed, difference, markdown, read, table
from models import loss_name

from nnunet_nacl.metrics import case_weights
from nnunet_nacl.paper.report import published

CALIBRATION = {
    "ECE foreground": "{ECE_foreground:.3f}",
    "CECE foreground": "{CECE_foreground:.3f}",
    "ECE union": "{ECE_union:.3f}",
    "NLL": "{NLL:.3f}",
    **ECE_NEAR,
}


def losses_hippocampus() -> str:
    """Six losses, folds 0 and 1."""
    rows = read("losses", "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 3000")
    rows = rows[rows["training"] == 1]
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
    """The paper's length of training, Hippocampus, fold 0; other weights are in ``losses_lambda``."""
    rows = read("losses", "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 25000")
    rows = rows[~rows["method"].str.contains("λ")]
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


def losses_3d() -> str:
    """In 3D, Hippocampus, fold 0."""
    rows = read("losses", "configuration == '3d_fullres_bs2' and optimizer == 'Adam'")
    order = ["DiceCE", "CE", "NACL", "DicePPCE"]
    rows = rows.sort_values("method", key=lambda methods: methods.map(order.index))
    columns = {
        "loss": "{method}",
        "Dice": "{Dice:.3f}",
        "HD95 (mm)": "{HD95:.2f}",
        **CALIBRATION,
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


def calibrated_weights(where: str) -> pd.DataFrame:
    """What ``calibrate`` wrote of the same models, those of which it is known."""
    models = of_weights(where)[["data_set", "trainer", "training", "method", "weight"]]
    rows = read("checkpoints", "checkpoint == 'best' and fold == '0'")
    rows = rows.rename(columns={"ECE": "ECE_near"})
    return models.merge(rows, on=["data_set", "trainer", "training"])


LAMBDA_STUDIES = {
    "Hippocampus, 25,000 steps": "data_set == 'Dataset004_Hippocampus' and steps == 25000",
    "ACDC, 2,000 steps": "data_set == 'Dataset027_ACDC' and steps == 2000",
    "ACDC, 6,000 steps": "data_set == 'Dataset027_ACDC' and steps == 6000",
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
        **CALIBRATION,
    }
    return table(rows, columns)


THE_PAPERS = ["DiceCE", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]
"""The losses of its tables, in their order."""


def paper_long() -> str:
    """The paper's losses beside its means over its six data sets."""
    long = "configuration == '2d_bs8' and optimizer == 'Adam' and steps == 25000"
    rows = read("losses", f"{long} and training == 1").set_index("method")
    rows = rows.loc[THE_PAPERS].reset_index()
    theirs = published()
    theirs = theirs[(theirs["structure"] == "") & theirs["table"].isin([1, 2])]
    means = theirs.pivot_table(index="method", columns="metric", values="value")
    means = means.rename(index={"CE+DSC": "DiceCE"}).add_prefix("paper_")
    columns = {"loss": "{method}"}
    for metric, ours, digits in (
        ("DSC", "Dice", 3),
        ("HD", "HD95", 2),
        ("ECE", "ECE_foreground", 3),
        ("CECE", "CECE_foreground", 3),
    ):
        columns[f"{metric}: here"] = f"{{{ours}:.{digits}f}}"
        columns[f"{metric}: paper"] = f"{{paper_{metric}:.{digits}f}}"
    return table(rows.join(means, on="method"), columns)


PAIRED = {"Dice": 4, "ECE union": 3, "NLL": 3}
VARIANT = r"NACL (softmax|l2|Gaussian)|equation 9|background around|λ = (?!0\.01)"
"""Of NACL: compared with it and with CE elsewhere, not with DiceCE."""


def losses_paired() -> str:
    """The study's methods and the smallest λ minus DiceCE of the same optimizer, paired by case."""
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
            if not re.search(VARIANT, name):
                lines.append([f"{name}, {optimizer}", *cells])
    return markdown(lines)


def losses_lambda_paired() -> str:
    """NACL minus cross-entropy, paired by case, as far as the values of each case were kept."""
    metrics = {"Dice": 4, "ECE foreground": 3, "ECE union": 3, "NLL": 3, "ECE near": 3}
    lines = [["minus CE", *metrics]]
    for data_set, steps, suffix, base in (
        ("Hippocampus", 25000, "_paperSchedule", "CE, again"),
        ("ACDC", 2000, "_paperSchedule_8epochs", "CE"),
        ("ACDC", 6000, "_paperSchedule_24epochs", "CE"),
    ):
        of_data = f"data_set.str.endswith('{data_set}') and trainer.str.endswith('{suffix}')"
        for name, cells in _paired_by_case(of_data, base, metrics).items():
            if weight_of(name.removesuffix(", again")):
                lines.append([f"{data_set}, {steps:,} steps: {name}", *cells])
    return markdown(lines)


def _paired_by_case(where: str, base: str, metrics: Mapping[str, int]) -> dict[str, list[str]]:
    """Cells of ``paired`` with so many digits."""
    return {
        name: [difference(*found[metric], digits) for metric, digits in metrics.items()]
        for name, found in paired(where, base).items()
    }


def paired(where: str, base: str) -> dict[str, dict[str, tuple[float, float, float]]]:
    """The models whose values of each case were kept, minus ``base``, by metric: with intervals of a bootstrap."""
    rows = read("losses_cases", f"{where} and fold == '0'")
    values = {}
    for (trainer, training), cases in rows.groupby(["trainer", "training"], sort=False):
        values[loss_name(trainer) + AGAIN[training]] = _over_cases(cases.set_index("case"))
    of_base = values.pop(base)
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    for name, of_model in values.items():
        found[name] = {}
        for metric, (mean, drawn) in of_model.items():
            base_mean, base_drawn = of_base[metric]
            low, high = np.percentile(drawn - base_drawn, [2.5, 97.5])
            found[name][metric] = (mean - base_mean, float(low), float(high))
    return found


def _over_cases(cases: pd.DataFrame) -> dict[str, tuple[float, np.ndarray]]:
    """Of each metric the value over all cases, and those over resamples of the patients."""
    cases = cases.sort_index()
    # ACDC has two images of each patient
    number, _ = pd.factorize(cases.index.str.replace(r"_frame\d+$", "", regex=True))
    weights = np.vstack([np.ones(len(cases)), case_weights(number)])
    dice = cases.filter(regex="^Dice_").dropna(axis=1, how="all").to_numpy()  # of its structures
    known = ~np.isnan(dice)
    dice_sum = weights @ np.where(known, dice, 0)
    gaps = weights @ cases.filter(regex="^gap_").to_numpy()
    values = {
        "Dice": (dice_sum / (weights @ known)).mean(1),
        "NLL": weights @ cases["NLL_sum"] / (weights @ cases["foreground"]),
        "ECE near": np.abs(gaps).sum(1) / (weights @ cases["near"]),
        "ECE foreground": weights @ cases["ECE_foreground"] / weights.sum(1),
        "ECE union": weights @ cases["ECE_union"] / weights.sum(1),
    }
    return {metric: (float(both[0]), both[1:]) for metric, both in values.items()}


def paper_statements() -> str:
    """NACL minus other losses and other settings of its own, on Hippocampus and ACDC, paired by case."""
    metrics = {"Dice": 4, "ECE foreground": 3, "ECE union": 3}
    columns = []
    for data_set, suffix, nacl in (
        ("Hippocampus", "_paperSchedule", "NACL, again"),
        ("ACDC", "_24epochs", "NACL"),
    ):
        where = f"data_set.str.endswith('{data_set}') and trainer.str.endswith('{suffix}')"
        columns.append((data_set, paired(where, nacl)))
    lines = [
        ["NACL minus", *(f"{data_set}: {metric}" for data_set, _ in columns for metric in metrics)]
    ]
    for name, on_hippocampus, on_acdc in STATEMENTS:
        cells = []
        for key, (_, found) in zip((on_hippocampus, on_acdc), columns, strict=True):
            for metric, digits in metrics.items():
                if key in found:
                    value, low, high = found[key][metric]
                    cells.append(difference(-value, -high, -low, digits))
                else:
                    cells.append("–")
        lines.append([name, *cells])
    return markdown(lines)


STATEMENTS = (
    ("CE + DSC", "DiceCE, again", "DiceCE"),
    ("its third training", "DiceCE, a third time", ""),
    ("CE", "CE, again", "CE"),
    ("LS", "LS", "LS"),
    ("SVLS", "SVLS, again", "SVLS"),
    ("MbLS", "", "MbLS"),
    ("FL", "", "FL"),
    ("ECP", "ECP", "ECP"),
    ("NACL, softmax", "NACL softmax", ""),
    ("NACL, Gaussian", "NACL Gaussian, σ = 1", ""),
    ("NACL, l2", "NACL l2", ""),
)
"""Rows of ``paper_statements``, and the training of each data set that they compare with."""


def paper_ablations() -> str:
    """The paper's tables 3 and 4, and the same in trainings of ours; figure 3 has no values to copy."""
    names = {"NACL": "mean, l1, logits", "NACL Gaussian": "Gaussian", "NACL l2": "l2"}
    names["NACL softmax"] = "softmax"
    titles = [f"{metric}: {name}" for metric in ("DSC", "ECE") for name in names.values()]
    lines = [["", *titles]]
    rows = read(
        "losses",
        "data_set == 'Dataset004_Hippocampus' and configuration == '2d_bs8' and fold == '0' and optimizer == 'Adam' "
        "and (steps > 1500 or steps == 1500 and ECE_foreground.notna())",
    ).replace({"method": {"NACL Gaussian, σ = 1": "NACL Gaussian"}})
    lengths = rows.loc[rows["method"] == "NACL l2", "steps"]
    for steps, ours in rows[rows["steps"].isin(lengths)].groupby("steps"):
        means = ours.groupby("method")[["Dice", "ECE_foreground"]].mean().loc[list(names)]
        cells = [f"{value:.3f}" for values in means.to_numpy().T for value in values]
        lines.append([f"**here**: Hippocampus, {steps:,} steps", *cells])
    theirs = published()
    theirs = theirs[theirs["table"].isin([3, 4])].drop_duplicates(["dataset", "metric", "method"])
    for data_set, rows in theirs.groupby("dataset", sort=False):
        values = rows.set_index(["metric", "method"])["value"]
        cells = [
            f"{values[metric, name]:.3f}" if (metric, name) in values else "–"
            for metric in ("DSC", "ECE")
            for name in names
        ]
        lines.append([f"paper: {data_set}", *cells])
    return markdown(lines)


def paper_sigma() -> str:
    """The paper's figure 7: NACL minus SVLS with the same Gaussian, at three widths, paired by case."""
    metrics = {"Dice": 4, "ECE foreground": 3, "ECE union": 3, "NLL": 3, "ECE near": 3}
    lines = [["NACL − SVLS", "Dice: SVLS", *metrics]]
    where = "data_set == 'Dataset004_Hippocampus' and trainer in {pair}"
    for sigma, svls, nacl in (
        (1, "SVLS_sigma1", "NACL_gaussian"),
        (2, "SVLS", "NACL_gaussian_sigma2"),
        (3, "SVLS_sigma3", "NACL_gaussian_sigma3"),
    ):
        pair = [f"nnUNetTrainer{loss}_paperSchedule_24epochs" for loss in (svls, nacl)]
        paired = _paired_by_case(where.format(pair=pair), loss_name(pair[0]), metrics)
        (cells,) = paired.values()
        dice = read("losses", where.format(pair=pair[:1]))["Dice"].item()
        lines.append([f"σ = {sigma}", f"{dice:.3f}", *cells])
    return markdown(lines)


HYPERPARAMETERS = {
    "FL: γ = 1, 2, 3": ("FL_gamma1", "FL_gamma2", "FL"),
    "ECP: α = 0.1, 0.2, 0.3": ("ECP_classMean", "ECP_classMean_alpha0p2", "ECP_classMean_alpha0p3"),
    "LS: α = 0.1, 0.2, 0.3": ("LS", "LS_alpha0p2", "LS_alpha0p3"),
    "MbLS: m = 3, 5, 10": ("MbLS_margin3", "MbLS", "MbLS_margin10"),
    "SVLS: σ = 0.5, 1, 2": ("SVLS_sigma0p5", "SVLS_sigma1", "SVLS"),
    "NACL: λ = 0.1, 0.2, 0.3": ("NACL", "NACL_weight0p2", "NACL_weight0p3"),
}


def paper_hyperparameters() -> str:
    """The paper's figure 6: each loss with three values of its own setting."""
    metrics = ["Dice", "ECE_foreground", "ECE_union", "NLL", "ECE_near"]
    lines = [["loss", *(metric.replace("_", " ") for metric in metrics)]]
    rows = read("losses", "data_set == 'Dataset004_Hippocampus'").dropna(subset=metrics)
    rows = rows.set_index("trainer")
    for name, losses in HYPERPARAMETERS.items():
        of_loss = rows.loc[[f"nnUNetTrainer{loss}_paperSchedule_24epochs" for loss in losses]]
        cells = (", ".join(f"{value:.3f}" for value in of_loss[metric]) for metric in metrics)
        lines.append([name, *cells])
    return markdown(lines)


SHARES = {40: "25%", 80: "50%", 160: "100%"}
"""Of Hippocampus's training cases."""


def paper_samples() -> str:
    """The paper's figure 9: losses with shares of the training cases."""
    columns = {
        "loss": "{method}",
        "training cases": "{share}",
        "Dice": "{Dice:.3f}",
        "ECE foreground": "{ECE_foreground:.3f}",
        "ECE union": "{ECE_union:.3f}",
        "NLL": "{NLL:.3f}",
        **ECE_NEAR,
    }
    return table(of_shares().reset_index(), columns)


def of_shares() -> pd.DataFrame:
    """The trainings with shares of the cases, and the latest one with all, by loss and share."""
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and optimizer == 'Adam'")
    rows = rows.query("steps == 3000 and fold != '1' and method in ['DiceCE', 'MbLS', 'NACL']")
    rows = rows.sort_values("training").drop_duplicates(["method", "training_cases"], keep="last")
    rows = rows.sort_values(["method", "training_cases"])
    rows["share"] = rows["training_cases"].map(SHARES)
    return rows.set_index(["method", "share"])


ACDC = {"1": "RV", "2": "MYO", "3": "LV"}
"""The structures by their labels."""
ACDC_LOSSES = ("DiceCE", "CE", "NACL", "NACL, λ = 0.01", "SVLS", "MbLS", "LS", "FL", "ECP")


def paper_acdc() -> str:
    """The paper's tables 1 and 2 for ACDC beside ours: each structure, and calibration."""
    theirs = published()
    theirs = theirs[(theirs["dataset"] == "ACDC") & theirs["table"].isin([1, 2])]
    theirs = theirs.replace({"method": {"CE+DSC": "DiceCE"}})
    values = theirs.set_index(["method", "structure", "metric"])["value"]
    models = read("losses", "data_set == 'Dataset027_ACDC' and training == 1 and steps == 6000")
    models = models.set_index("method")
    cases = read("losses_cases", "data_set == 'Dataset027_ACDC' and training == 1")
    names = ", ".join(ACDC.values())
    errors = ("ECE_foreground", "CECE_foreground", "ECE_union", "NLL", "ECE_near")
    headings = ["ECE", "CECE", "ECE union", "NLL", "ECE near"]
    lines = [["loss", "DSC", f"DSC: {names}", "HD95", f"HD95: {names}", *headings]]
    for method in ACDC_LOSSES:
        model = models.loc[method]
        means = cases[cases["trainer"] == model["trainer"]].mean(numeric_only=True)
        dice = [means[f"Dice_{label}"] for label in ACDC]
        distances = [means[f"HD95_{label}"] for label in ACDC]
        ours = [model[error] for error in errors]
        lines.append([f"{method}, here", *_acdc_cells(dice, distances, ours)])
        if method in values.index:
            of_paper = values[method]
            dice = [of_paper[name, "DSC"] for name in ACDC.values()]
            distances = [of_paper[name, "HD"] for name in ACDC.values()]
            published_errors = [of_paper["", "ECE"], of_paper["", "CECE"]]
            cells = _acdc_cells(dice, distances, published_errors)
            lines.append([f"{method}, paper", *cells, "–", "–", "–"])
    return markdown(lines)


def _acdc_cells(
    dice: Sequence[float], distances: Sequence[float], errors: Sequence[float]
) -> list[str]:
    """Means over structures, each structure, and the errors of calibration."""
    return [
        f"{np.mean(dice):.3f}",
        ", ".join(f"{value:.3f}" for value in dice),
        f"{np.mean(distances):.2f}",
        ", ".join(f"{value:.2f}" for value in distances),
        *(f"{value:.3f}" for value in errors),
    ]


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
