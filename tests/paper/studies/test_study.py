"""Studies: the built-in tables, and what is said of tables that are wrong."""

import re
from pathlib import Path

import pytest

from nnunet_nacl.paper.studies import STUDIES, read_study
from nnunet_nacl.trainers import Recipe, parse_name

PAPER = {
    "FL": ("gamma", (1, 2, 3)),
    "ECP": ("alpha", (0.1, 0.2, 0.3)),
    "LS": ("alpha", (0.1, 0.2, 0.3)),
    "MbLS": ("margin", (3, 5, 10)),
    "SVLS": ("sigma", (0.5, 1, 2)),
    "NACL": ("weight", (0.1, 0.2, 0.3)),
}
DEFAULTS = {"FL": 3, "ECP": 0.1, "LS": 0.1, "MbLS": 5, "SVLS": 2, "NACL": 0.1}


def recipe(trainer: str) -> Recipe:
    return parse_name(trainer)  # type: ignore[return-value]


@pytest.mark.parametrize("name", STUDIES)
def test_built_in_studies_are_read(name: str) -> None:
    study = read_study(name)
    assert study.name == name
    assert all(recipe(row.trainer) for row in study.methods)


def test_examples_of_the_page_are_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "experiments.md"
    examples = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.yaml"
        file.write_text(example)
        assert read_study(str(file)).methods


def test_main_has_the_papers_methods_and_ce_as_control() -> None:
    study = read_study("main")
    assert [row.name for row in study.methods] == ["DiceCE", "CE", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]
    recipes = {row.name: recipe(row.trainer) for row in study.methods}
    for loss, (setting, _) in PAPER.items():  # what the paper compares them with: its section 4.1.3
        assert recipes[loss].term is None
        assert recipes[loss].settings.get(setting, DEFAULTS[loss]) == DEFAULTS[loss]
    assert recipes["DiceCE"].term == "Dice"
    assert [row.name for row in study.chosen(["NACL", "CE"]).methods] == ["CE", "NACL"]
    with pytest.raises(ValueError, match="Study main has no method 'Dice'; it has DiceCE, CE, FL"):
        study.chosen(["Dice"])


def test_hyperparameters_are_the_papers() -> None:
    for loss, (setting, values) in PAPER.items():
        group = [row for row in read_study("hyperparameters").methods if row.group == loss]
        assert tuple(row.value for row in group) == values
        for row in group:
            assert recipe(row.trainer).settings.get(setting, DEFAULTS[loss]) == row.value
            assert row.name.endswith(f"={row.value:g}")


def test_ecp_is_the_authors() -> None:
    """Our trainer's default is the entropy itself, not the mean over classes."""
    ecp = [row for name in STUDIES for row in read_study(name).methods if "ECP" in row.trainer]
    assert len(ecp) == 1 + 3 + 4
    assert {recipe(row.trainer).settings["class_reduction"] for row in ecp} == {"mean"}


ROW = "{name: A, trainer: nnUNetTrainerNACL"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: T", "methods\n  Field required"),
        ("title: [", "is not as expected"),
        (f"title: T\nmethods: [{ROW}}}, {ROW}}}]", "methods of the same name: A, A"),
        (f"title: T\nmethods: [{ROW}, training_cases: 0%}}]", "should match pattern"),
        (f"title: T\nfigure: curves\nmethods: [{ROW}}}]", "every method needs group and value"),
        (
            "title: T\nfigure: differences\nmethods: ["
            + ", ".join(f"{{name: {one}, trainer: nnUNetTrainerNACL, group: {one}, value: 1}}" for one in "ABC") + "]",
            "compares two groups",
        ),
    ],
)  # fmt: skip
def test_wrong_tables_are_explained(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        read_study(str(file))
    assert str(raised.value).startswith(str(file))
