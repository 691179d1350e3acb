"""Results as the commands and notebooks show them."""

from dataclasses import replace

import pytest

from nnunet_nacl.evaluation import FolderResult, Settings, Skipped, format_html, format_table
from tests.report.generated import make_result

LARGE = make_result(settings=Settings(surface=True))
SMALL = make_result(settings=Settings(voxels=("near",)))
NOTE = "NLL per foreground voxel, ECE near, confidence − accuracy: all cases pooled; the others are means over cases."


def cells(results: dict[str, FolderResult]) -> dict[str, dict[str, str]]:
    """Result -> column -> text."""
    head, *rows, note = format_table(results).splitlines()
    assert note == NOTE
    assert len({len(line) for line in (head, *rows)}) == 1
    ends = [head.index(title) + len(title) for title in TITLES]
    starts = [len("method "), *ends[:-1]]
    return {row.split()[0]: {t: row[a:b].strip() for t, a, b in zip(TITLES, starts, ends, strict=True)} for row in rows}


TITLES = [
    "Dice", "HD95", "NSD", "NLL per foreground voxel", "ECE near", "confidence − accuracy", "ECE foreground",
    "ECE union", "CECE foreground", "CECE union",
]  # fmt: skip


@pytest.mark.parametrize("names", [["large", "small"], ["small", "large"]])
def test_results_of_different_content_are_shown_side_by_side(names: list[str]) -> None:
    results = {"large": LARGE, "small": SMALL}
    table = cells({name: results[name] for name in names})
    assert list(table) == names
    assert table["large"] == cells({"large": LARGE, "other": LARGE})["large"]
    known = {title: text for title, text in table["small"].items() if text != "–"}
    assert known == {title: table["large"][title] for title in ("Dice", "ECE near", "confidence − accuracy")}


def test_numbers() -> None:
    row = cells({"large": LARGE})["large"]
    assert row["Dice"] == f"{LARGE.foreground_mean('Dice'):.3f}"
    assert row["HD95"] == f"{LARGE.foreground_mean('HD95'):.1f}"
    assert row["ECE near"] == f"{LARGE.pooled('near')['ECE']:.3f}"
    assert row["confidence − accuracy"] == f"{LARGE.pooled('near')['over_confidence']:+.3f}"
    assert row["CECE union"] == f"{LARGE.mean('union', 'CECE'):.3f}"


def test_a_result_in_a_line() -> None:
    near = SMALL.pooled("near")
    assert repr(SMALL) == (
        f"<FolderResult: 8 cases, Dice {SMALL.foreground_mean():.3f}, ECE near {near['ECE']:.3f}, "
        f"confidence − accuracy {near['over_confidence']:+.3f}>"
    )
    assert "NLL per foreground voxel 0." in repr(LARGE)
    assert len(repr(LARGE)) < 200
    skipped = replace(LARGE, cases=[], skipped=[Skipped("case_1", "damaged", missing=False)])
    assert repr(skipped).startswith("<FolderResult: 0 of 1 case, Dice nan")


def test_a_result_in_a_notebook() -> None:
    shown = LARGE._repr_html_()
    assert "<th>Dice</th>" in shown
    assert f"<td>{LARGE.foreground_mean():.3f}</td>" in shown
    assert format_html({"<b>": SMALL}).count("&lt;b&gt;") == 1
    frame = LARGE.to_dataframe()
    assert list(frame.columns) == ["case", "voxels", "class", "metric", "value"]
    assert len(frame) == len(LARGE.rows())
    chosen = frame.query("voxels == 'near' and metric == 'ECE' and `class` == ''")
    assert list(chosen["value"]) == LARGE.values("near", "ECE")
