"""Tables: their numbers, and Markdown, LaTeX and CSV of them."""

import csv
import io

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import expected_calibration_error
from nnunet_nacl.paper.report import TABLES
from nnunet_nacl.report import Comparison, Metric, Table, compare_all, compare_methods, table_text
from nnunet_nacl.report._formats import FORMATS, Cell
from nnunet_nacl.report._tables import page_heads
from tests.report.generated import NAMED, counted_by, make_result, table_of, with_dice

NAN = float("nan")
TABLE = Table(
    "Methods & more",
    "",
    "50 % of a_b.",
    ["a_|b", "c$<i>&~", "[d]"],
    {
        "ECE ↓": [Cell(0.1, (0.09, 0.1104), is_bold=True), Cell(0.25), Cell(NAN)],
        "gap": [
            Cell(-0.2, p=0.0001, signed=True, is_significant=True),
            Cell(0.01, p=0.2, signed=True),
            Cell(0, signed=True),
        ],
    },
)


def test_markdown() -> None:
    assert FORMATS["markdown"](TABLE) == (
        "**Methods &amp; more**\n\n"
        "| method | ECE ↓ | gap |\n| --- | --- | --- |\n"
        "| a\\_\\|b | **0.100 (0.090 to 0.110)** | −0.200\\* p \\< 0.001 |\n"
        "| c\\$\\<i\\>&amp;\\~ | 0.250 | +0.010 p = 0.200 |\n"
        "| \\[d\\] | – | 0.000 |\n\n"
        "50 % of a\\_b. Bold: significantly better, on these cases, than all others that find each structure. "
        "\\*: p is below 0.05, and value, "
        "interval and test point in one direction. In parentheses: 95 % bootstrap intervals.\n"
    )


def test_latex() -> None:
    text = FORMATS["latex"](TABLE)
    for line in (
        "\\begin{table}\n\\centering\n\\caption{Methods \\& more. 50 \\% of a\\_b. Bold: significantly",
        "\\label{tab:methods-more}\n\\begin{tabular}{lcc}\n\\toprule\n",
        "& ECE $\\downarrow$ & gap \\\\\n",
        "a\\_\\textbar{}b & \\textbf{0.100 (0.090 to 0.110)} & $-$0.200* p \\textless{} 0.001 \\\\\n",
        "c\\$\\textless{}i\\textgreater{}\\&\\textasciitilde{} & 0.250 & +0.010 p = 0.200 \\\\\n",
        "[d] & -- & 0.000 \\\\\n\\bottomrule\n\\end{tabular}\n\\end{table}\n",
    ):
        assert line in text


def test_csv() -> None:
    assert FORMATS["csv"](TABLE) == (
        "method,ECE,ECE low,ECE high,gap,gap p\na_|b,0.1,0.09,0.1104,-0.2,0.0001\nc$<i>&~,0.25,,,0.01,0.2\n[d],,,,0,\n"
    )


def test_the_best_is_bold_where_it_is_told_apart(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    table = table_of("methods", comparison)
    assert table.rows[0] == "right"  # ordered by NLL per foreground voxel
    nll = table.values()["NLL per foreground voxel"]
    assert list(nll) == sorted(nll)
    for head in ("NLL per foreground voxel ↓", "ECE near ↓"):
        assert [cell.is_bold for cell in table.columns[head]] == [True, False, False]
    found, soft = table.values().loc["soft"], results["soft"]
    assert found["Dice"] == pytest.approx(soft.estimate("Dice").value, abs=1e-12)
    assert tuple(found[["ECE near low", "ECE near high"]]) == pytest.approx(
        comparison.estimates[Metric("ECE", "near")]["soft"].interval
    )
    same = make_result(0.4)
    table = table_of("methods", compare_methods({"one": same, "same": same, "other": make_result(0.1)}))
    assert not any(cell.is_bold for cells in table.columns.values() for cell in cells)


def test_a_table_for_a_paper(results: dict[str, FolderResult]) -> None:
    text = table_text(compare_all({"Demo": results}), "ece", intervals=False, digits=2)
    head = "| method | Dice ↑ | HD95 (mm) ↓ | ECE foreground ↓ | ECE union ↓ | CECE foreground ↓ | CECE union ↓ |"
    assert head in text
    soft = results["soft"]
    assert f"| soft | {soft.estimate('Dice').value:.2f} | {soft.estimate('HD95').value:.2f} |" in text.replace("*", "")
    assert " to " not in text.splitlines()[4]
    assert " low" not in table_text([compare_methods(results)], "ece", form="csv", intervals=False)
    in_pixels = {name: counted_by(result, reader="NaturalImage2DIO") for name, result in results.items()}
    assert head.replace("mm", "voxels") in table_text(compare_all({"Demo": in_pixels}), "ece")
    table = table_of("ece", compare_methods(results))
    assert table.note.startswith("Cases: 8. ECE and CECE: means over cases.")
    assert table.values().loc["soft", "CECE union"] == pytest.approx(soft.estimate("CECE", "union").value)
    values = table_of("expected", compare_methods(results)).values()
    for metric, voxels in ((m, v) for m in ("ECE", "CECE") for v in ("foreground", "union")):
        title, expected = f"{metric} {voxels}", soft.estimate(f"{metric}_expected", voxels).value
        assert values.loc["soft", title] == pytest.approx(soft.estimate(metric, voxels).value)
        assert values.loc["soft", f"{title} if perfectly calibrated"] == pytest.approx(expected)


@pytest.mark.parametrize("voxels", ["union", "near"])
@pytest.mark.parametrize("name", ["methods", "differences", "ece", "published", "ranks", "sum-rank"])
def test_the_voxel_set_is_looked_at(results: dict[str, FolderResult], name: str, voxels: str) -> None:
    methods = dict(zip(["DiceCE", "CE", "NACL"], results.values(), strict=True))  # that the paper has values of
    text = table_text([compare_methods(methods).over(voxels)], name, form="csv", tables=TABLES)
    head = next(csv.reader(io.StringIO(text)))
    sets = {title.split()[1] for title in head if title.startswith(("ECE ", "CECE "))}
    assert sets == {voxels}


def test_an_error_over_voxels_chosen_by_label_stands_beside_its_value_under_perfect_calibration(
    comparison: Comparison,
) -> None:
    """And a note explains the columns that there are."""
    titles = {voxels: list(table_of("methods", comparison, voxels).values().columns) for voxels in ("union", "near")}
    assert "ECE union if perfectly calibrated" in titles["union"]
    for voxels, has in titles.items():
        note = table_of("methods", comparison, voxels).note
        assert ("By chance up to:" in note) == (f"ECE {voxels} by chance up to" in has)
        assert ("If perfectly calibrated:" in note) == (f"ECE {voxels} if perfectly calibrated" in has)


def test_heads_on_the_page_do_not_repeat_the_metric_beside_them(comparison: Comparison) -> None:
    calibrated = "if\N{NO-BREAK SPACE}perfectly calibrated"
    assert page_heads(table_of("expected", comparison))[2:4] == ["ECE foreground\N{NO-BREAK SPACE}↓", calibrated]
    assert f"pooled ECE {calibrated}" in page_heads(table_of("scores", comparison, "union"))  # which stands elsewhere


def test_one_case_has_no_intervals_and_no_p() -> None:
    comparison = compare_methods({"one": make_result(0.4, cases=NAMED[:1]), "other": make_result(1.0, cases=NAMED[:1])})
    for table in (table_of("methods", comparison), table_of("differences", comparison)):
        assert not any(" low" in title or title.endswith(" p") for title in table.values().columns)
        assert not table.frame.map(str).map(lambda text: " to " in text or "p =" in text).to_numpy().any()


def test_every_table_has_every_form(results: dict[str, FolderResult]) -> None:
    methods = dict(zip(["=DiceCE", "CE", "NACL"], results.values(), strict=True))
    compared = compare_all({"Demo": methods})
    texts = [table_text(compared, name, form=form, tables=TABLES) for form in FORMATS for name in TABLES]
    assert all("core" in text or "CE" in text for text in texts)
    # A name that a spreadsheet would take for a formula.
    assert table_text(compared, form="csv").count("\n'=DiceCE,") == 1


def test_a_star_only_where_value_interval_and_test_agree() -> None:
    """Of 24 cases, 22 are slightly better and 2 collapse: the test says better, the mean worse."""
    base = np.full((24, 1), 0.8)
    for num_collapsed, shown in ((0, "+0.007*"), (2, "−0.035")):
        gaps = np.where(np.arange(24) < num_collapsed, -0.5, 0.006 + 0.0001 * np.arange(24))
        comparison = compare_methods({"base": with_dice(base), "new": with_dice(base + gaps[:, None])})
        (cell,) = table_of("differences", comparison).columns["Dice ↑"]
        assert cell.p < 0.01
        assert cell.text == shown


def test_structures_and_scores(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    values = table_of("structures", comparison, "union").values()
    assert list(values.index) == ["cortex", "medulla", "core"]
    assert values.loc["medulla", "Dice soft"] == pytest.approx(np.mean(results["soft"].values("Dice", label=2)))
    errors = expected_calibration_error(results["soft"].counts.calibration["union"].classwise)[:, 2]
    assert values.loc["medulla", "class ECE union soft"] == pytest.approx(np.mean(errors))
    near = table_of("structures", comparison, "near").values()  # of all cases together
    pooled = expected_calibration_error(results["soft"].counts["near"].classwise)[2]
    assert near.loc["medulla", "class ECE near soft"] == pytest.approx(pooled)
    assert results["soft"].estimate("ECE", "near", label=2).value == pytest.approx(pooled)
    image = table_of("scores", comparison, "image").values()
    assert image.loc["soft", "pooled ECE"] == pytest.approx(results["soft"].pooled("image")["ECE"])
