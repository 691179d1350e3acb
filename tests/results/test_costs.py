"""Recorded times and memory are within their bounds, and are what the docs say."""

import re

from cells import read

from nnunet_nacl.trainers import LOSSES
from tests.results import ROOT
from tests.results.pages import stated


def test_what_nacl_takes_on_a_gpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \d+ × .*", page, re.MULTILINE)
    times = [[float(value) for value in re.findall(r"([\d.]+)\** \(", line)] for line in lines]
    memory = sorted(re.findall(r"\(([\d.]+)\)", line)[3] for line in lines)
    ratios = [nacl / nnunet for _, nnunet, _, nacl, _ in times]
    assert len(ratios) == 4
    stated("install.md", f"{memory[0]} to {memory[-1]} times on a GPU")
    stated("performance.md", f"{min(ratios):.2f} to {max(ratios):.2f} times")


def test_recorded_costs_are_within_their_bounds() -> None:
    """Of docs/performance.md and docs/install.md: evaluation, single functions, and the memory of our losses."""
    for name, values in (("evaluation_time", ["dense", "saturated"]), ("function_time", ["times"])):
        rows = read(name, "bound.notna()")
        assert len(rows) >= 2
        assert (rows[values].max(axis=1) <= rows["bound"]).all(), name
    losses = read("loss_time", "not loss.str.contains('at once|F.cross|nnU-Net|MONAI|DicePP')")
    assert set(losses["loss"]) >= set(LOSSES)
    assert (losses["memory"] <= 1.65).all()


def test_what_a_training_takes() -> None:
    """One to three hours of a CPU core, or minutes on a GPU that trained five."""
    rows = read("losses", "data_set == 'Dataset004_Hippocampus' and steps == 25000").dropna(subset="training_seconds")
    on_gpu = rows["machine"].str.contains("H200")
    hours, minutes = rows.loc[~on_gpu, "training_seconds"] / 3600, rows.loc[on_gpu, "training_seconds"] / 60
    stated("experiments.md", f"{minutes.max():.0f} minutes on an H200")
    assert (hours.round().min(), hours.round().max()) == (1, 3)
    assert len(minutes) == 5
