"""Results as the commands print them."""

import pytest

from nnunet_nacl.evaluation import FolderResult, Settings, format_table
from tests.report.generated import make_result

LARGE = make_result(settings=Settings(surface=True))
SMALL = make_result(settings=Settings(voxels=("near",)))
TITLES = [
    "Dice", "HD95", "NSD", "NLL per foreground voxel", "ECE near", "confidence − accuracy", "ECE foreground",
    "ECE union", "CECE foreground", "CECE union",
]  # fmt: skip


def cells(results: dict[str, FolderResult]) -> dict[str, dict[str, str]]:
    """Result -> column -> text."""
    rows = [row.split() for row in format_table(results).splitlines()[1:-1]]
    return {name: dict(zip(TITLES, values, strict=True)) for name, *values in rows}


@pytest.mark.parametrize("names", [["large", "small"], ["small", "large"]])
def test_results_of_different_content_are_shown_side_by_side(names: list[str]) -> None:
    results = {"large": LARGE, "small": SMALL}
    table = cells({name: results[name] for name in names})
    assert list(table) == names
    known = {title: text for title, text in table["small"].items() if text != "–"}
    assert known == {title: table["large"][title] for title in ("Dice", "ECE near", "confidence − accuracy")}


def test_numbers() -> None:
    row = cells({"large": LARGE})["large"]
    assert row["Dice"] == f"{LARGE.foreground_mean('Dice'):.3f}"
    assert row["HD95"] == f"{LARGE.foreground_mean('HD95'):.1f}"
    assert row["ECE near"] == f"{LARGE.pooled('near')['ECE']:.3f}"
    assert row["confidence − accuracy"] == f"{LARGE.pooled('near')['over_confidence']:+.3f}"
    assert row["CECE union"] == f"{LARGE.mean('union', 'CECE'):.3f}"
    assert row["Dice"] in repr(LARGE)
