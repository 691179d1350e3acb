"""Write the tables of the docs' pages from the results in docs/results/data.

    python benchmarks/tables.py

replaces what stands in a page between ``<!-- table NAME -->`` and ``<!-- end -->``. Each name is a function
in ``TABLES``, which takes rows of a CSV file, and for each column a template that is filled with the row.
tests/results/test_tables.py compares.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from calibration_tables import (
    calibrate_cases,
    calibrate_long,
    calibrate_written,
    ensemble,
)
from cells import DOCS, crossed, read, table
from loss_tables import (
    losses_3d,
    losses_dice,
    losses_hippocampus,
    losses_lambda,
    losses_lambda_paired,
    losses_long,
    losses_paired,
    losses_usgra,
    paper_ablations,
    paper_acdc,
    paper_hyperparameters,
    paper_long,
    paper_samples,
    paper_sigma,
    paper_statements,
)
from models import loss_name
from since_tables import (
    losses_since,
    losses_since_3d,
    losses_since_acdc,
    losses_since_long,
    losses_since_usgra,
    losses_since_wbc,
    since_ace,
    since_calibrated,
    since_calibrated_acdc,
    since_decoded,
    since_decoded_acdc,
    since_decoded_long,
)

MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
README_LOSSES = ["DiceCE", "CE", "NACL", "NACL, λ = 0.01", "DicePPCE"]


def readme() -> str:
    """The default loss, CE and NACL, and the default loss calibrated: Adam, fold 0, means over the trainings."""
    parts = []
    for data_set, name, steps in (
        ("Dataset004_Hippocampus", "Hippocampus", 25000),
        ("Dataset027_ACDC", "ACDC", 6000),
    ):
        chosen = f"data_set == '{data_set}' and configuration == '2d_bs8' and fold == '0' and steps == {steps}"
        rows = read("losses", f"{chosen} and optimizer == 'Adam'").groupby("method")
        means = rows.mean(numeric_only=True).loc[README_LOSSES].reset_index()
        calibrated = read("checkpoints", f"{chosen} and checkpoint == 'best'")
        calibrated = calibrated.dropna(subset="ECE_foreground").rename(columns={"ECE": "ECE_near"})
        calibrated["method"] = calibrated["trainer"].map(loss_name)
        mean = calibrated.groupby("method").mean(numeric_only=True).loc[["DiceCE"]]
        means = pd.concat([means, mean.assign(method="DiceCE, then `calibrate`")])
        title = f"{name}, {steps:,} steps"
        parts.append(means.assign(data=[title, *[""] * (len(means) - 1)]))
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
        "Dice to expect: bias": "{predicted_Dice_bias:+.3f}",
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
    "losses-3d": losses_3d,
    "losses-paired": losses_paired,
    "losses-lambda": losses_lambda,
    "losses-lambda-paired": losses_lambda_paired,
    "paper-long": paper_long,
    "paper-acdc": paper_acdc,
    "paper-statements": paper_statements,
    "paper-ablations": paper_ablations,
    "paper-sigma": paper_sigma,
    "paper-hyperparameters": paper_hyperparameters,
    "paper-samples": paper_samples,
    "losses-dice": losses_dice,
    "losses-since": losses_since,
    "losses-since-3d": losses_since_3d,
    "losses-since-acdc": losses_since_acdc,
    "losses-since-long": losses_since_long,
    "losses-since-usgra": losses_since_usgra,
    "losses-since-wbc": losses_since_wbc,
    "since-calibrated": since_calibrated,
    "since-calibrated-acdc": since_calibrated_acdc,
    "since-decoded": since_decoded,
    "since-decoded-long": since_decoded_long,
    "since-decoded-acdc": since_decoded_acdc,
    "since-ace": since_ace,
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
