"""Tables as Markdown, LaTeX and CSV."""

import csv
import io

from nnunet_nacl.evaluation import Settings
from nnunet_nacl.report import Comparison, compare
from nnunet_nacl.report._formats import Cell, Table, to_csv, to_latex, to_markdown
from nnunet_nacl.report._tables import differences_table, methods_table, paper_table
from tests.report.generated import NAMED, make_result

TABLE = Table(
    "Methods & more",
    "50 % of a_b",
    ["method", "ECE ↓"],
    [
        ("a_|b", [Cell(0.1, interval=(0.09, 0.1104), mark="best")]),
        ("c$<i>&~", [Cell(-0.2, signed=True, p=0.0001, mark="second")]),
        ("[d]", [Cell(float("nan"))]),
    ],
)


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "**Methods &amp; more**\n\n"
        "| method | ECE ↓ |\n| --- | --- |\n"
        "| a\\_\\|b | **0.100** (0.090 to 0.110) |\n"
        "| c\\$\\<i\\>&amp;\\~ | <u>−0.200\\*</u>, p \\< 0.001 |\n"
        "| \\[d\\] | – |\n\n"
        "50 % of a\\_b\n"
    )


def test_latex() -> None:
    assert to_latex(TABLE) == (
        "\\begin{table}\n\\centering\n\\caption{Methods \\& more. 50 \\% of a\\_b}\n\\begin{tabular}{lc}\n\\toprule\n"
        "method & ECE $\\downarrow$ \\\\\n\\midrule\n"
        "a\\_|b & \\textbf{0.100} {\\scriptsize (0.090 to 0.110)} \\\\\n"
        "c\\$\\textless{}i\\textgreater{}\\&\\textasciitilde{} & "
        "\\underline{$-$0.200*} {\\scriptsize $p$ \\textless{} 0.001} \\\\\n"
        "{}[d] & -- \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def test_csv() -> None:
    assert to_csv(TABLE) == (
        "method,ECE,ECE low,ECE high,ECE p\na_|b,0.1,0.09,0.1104,\nc$<i>&~,-0.2,,,0.0001\n[d],,,,\n"
    )


def test_csv_has_numbers(comparison: Comparison) -> None:
    for table in (methods_table(comparison), differences_table(comparison)):
        for row in csv.DictReader(io.StringIO(to_csv(table))):
            del row["method"]
            assert len(row) >= 10
            for text in row.values():
                float(text)


def test_best_and_second_are_marked(comparison: Comparison) -> None:
    rows = dict(methods_table(comparison).rows)
    marks = {name: [cell.mark for cell in cells] for name, cells in rows.items()}
    *columns, over_confidence = zip(*marks.values(), strict=True)
    assert all(sorted(column) == ["", "best", "second"] for column in columns)
    assert over_confidence == ("", "", "")
    assert marks["right"][2:-1] == ["best"] * 3  # the calibration metrics
    values = {name: float(cells[0].text) for name, cells in rows.items()}
    assert values[next(name for name in rows if marks[name][0] == "best")] == max(values.values())


def test_what_would_be_expected_stands_beside_the_papers_figures(comparison: Comparison) -> None:
    table = paper_table(comparison)
    assert table.columns[1:3] == ["ECE foreground ↓", "ECE foreground if perfectly calibrated"]
    assert table.columns[3:5] == ["ECE union ↓", "ECE union if perfectly calibrated"]
    for name, cells in table.rows:
        result = comparison[name].result
        for number, (metric, voxels) in enumerate((m, v) for m in ("ECE", "CECE") for v in ("foreground", "union")):
            assert cells[2 * number].text == f"{result.mean(voxels, metric):.3f}"
            assert cells[2 * number + 1].text == f"{result.mean(voxels, f'{metric}_expected'):.3f}"
            assert cells[2 * number + 1].mark == cells[2 * number + 1].low == ""
    alone = methods_table(compare({"one": make_result(settings=Settings(voxels=("union",)))}))
    assert alone.columns[2:4] == ["ECE union ↓", "ECE union if perfectly calibrated"]


def test_equal_ones_share_the_mark() -> None:
    result = make_result(0.4)
    table = methods_table(compare({"one": result, "same": result, "other": make_result(1.8)}))
    for _, cells in table.rows[:2]:
        assert cells[2].mark == table.rows[0][1][2].mark
    alone = methods_table(compare({"one": result}))
    assert all(cell.mark == "" for _, cells in alone.rows for cell in cells)


def test_one_case_has_no_intervals_and_no_p() -> None:
    comparison = compare({"one": make_result(0.4, cases=NAMED[:1]), "other": make_result(1.0, cases=NAMED[:1])})
    for table in (methods_table(comparison), differences_table(comparison)):
        assert all(cell.low == cell.p_text == "" for _, cells in table.rows for cell in cells)
