"""Tables as Markdown, LaTeX and CSV."""

import csv
import io

from nnunet_nacl.report import Comparison, compare
from nnunet_nacl.report._formats import to_csv, to_latex, to_markdown
from nnunet_nacl.report._tables import Cell, Table, differences_table, methods_table
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
            assert len(row) >= 12
            for text in row.values():
                float(text)


def test_best_and_second_are_marked(comparison: Comparison) -> None:
    rows = dict(methods_table(comparison).rows)
    marks = {name: [cell.mark for cell in cells] for name, cells in rows.items()}
    assert all(sorted(column) == ["", "best", "second"] for column in zip(*marks.values(), strict=True))
    assert marks["right"][2:] == ["best"] * 4  # the calibration metrics
    values = {name: float(cells[0].text) for name, cells in rows.items()}
    assert values[next(name for name in rows if marks[name][0] == "best")] == max(values.values())


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
