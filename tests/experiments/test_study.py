"""Studies: the built-in tables, and what is said of tables that are wrong."""

import re
from pathlib import Path

import pytest

from nnunet_nacl.experiments import STUDIES, StudyTable, read_study, study_file
from nnunet_nacl.experiments._study import study_plot
from nnunet_nacl.trainers import parse_name

PAPER = {
    "FL": ("gamma", (1, 2, 3)),
    "ECP": ("alpha", (0.1, 0.2, 0.3)),
    "LS": ("alpha", (0.1, 0.2, 0.3)),
    "MbLS": ("margin", (3, 5, 10)),
    "SVLS": ("sigma", (0.5, 1, 2)),
    "NACL": ("weight", (0.1, 0.2, 0.3)),
}
DEFAULTS = {"FL": 3, "ECP": 0.1, "LS": 0.1, "MbLS": 5, "SVLS": 2, "NACL": 0.1}


def read(name: str) -> StudyTable:
    return read_study(study_file(name))


@pytest.mark.parametrize("name", STUDIES)
def test_built_in_studies_are_read(name: str) -> None:
    study = read(name).chosen(None)
    assert study.name == name
    assert len(study.rows) > 1
    assert all(parse_name(row.trainer) is not None for row in study.rows)
    assert (study_plot(study) is None) == (study.figure is None)


def test_main_has_the_papers_methods_and_ce_as_control() -> None:
    study = read("main")
    assert [row.name for row in study.chosen(None).rows] == ["DiceCE", "CE", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]
    recipes = {row.name: parse_name(row.trainer) for row in study.rows}
    for loss, (setting, _) in PAPER.items():  # what the paper compares them with: its section 4.1.3
        recipe = recipes[loss]
        assert recipe is not None
        assert not recipe.dice
        assert recipe.settings.get(setting, DEFAULTS[loss]) == DEFAULTS[loss]
    assert recipes["DiceCE"].dice  # type: ignore[union-attr]
    assert [row.name for row in study.chosen(["NACL", "CE"]).rows] == ["CE", "NACL"]
    with pytest.raises(ValueError, match="Study main has no method 'Dice'; it has DiceCE, CE, FL"):
        study.chosen(["Dice"])


def test_hyperparameters_are_the_papers() -> None:
    rows = read("hyperparameters").rows
    for loss, (setting, values) in PAPER.items():
        group = [row for row in rows if row.group == loss]
        assert tuple(row.value for row in group) == values
        for row in group:
            recipe = parse_name(row.trainer)
            assert recipe is not None
            assert recipe.settings.get(setting, DEFAULTS[loss]) == row.value
            assert row.name.endswith(f"={row.value:g}")


def test_ecp_has_the_papers_mean_over_classes() -> None:
    """The authors' code averages the entropy over classes, too; our trainer's default is the entropy itself."""
    rows = [row for name in STUDIES for row in read(name).rows if "ECP" in row.trainer]
    assert len(rows) == 1 + 3 + 4
    for row in rows:
        recipe = parse_name(row.trainer)
        assert recipe is not None
        assert recipe.settings["class_reduction"] == "mean"


def test_the_gaussians_say_their_width() -> None:
    for name in ("prior", "sigma"):
        for row in read(name).rows:
            recipe = parse_name(row.trainer)
            assert recipe is not None
            if recipe.settings.get("prior") == "gaussian":
                assert row.name.endswith(f" σ={recipe.settings.get('sigma', 1):g}")
                assert row.group == "NACL Gaussian"


def test_other_studies_vary_what_they_say() -> None:
    for row in read("sigma").rows:
        recipe = parse_name(row.trainer)
        assert recipe is not None
        assert recipe.settings.get("sigma", {"SVLS": 2, "NACL": 1}[recipe.loss]) == row.value
        assert recipe.loss == "SVLS" or recipe.settings["prior"] == "gaussian"
    assert [parse_name(row.trainer).settings for row in read("penalty").rows] == [{}, {"penalty": "l2"}]  # type: ignore[union-attr]
    assert [parse_name(row.trainer).settings for row in read("prior").rows] == [{}, {"prior": "gaussian"}]  # type: ignore[union-attr]
    assert [row.value for row in read("constraint").rows] == ["softmax", "logits"]
    assert {row.training_cases for row in read("samples").rows} == {"25%", "50%", "75%", "100%"}
    assert all(f"{row.value}%" == row.training_cases for row in read("samples").rows)


def test_a_copy_reads_as_the_original(tmp_path: Path) -> None:
    copy = tmp_path / "my.yaml"
    copy.write_text(study_file("sigma").read_text())
    assert read_study(copy).rows == read("sigma").rows
    assert read_study(copy).name == "my"


ROW = "{name: A, trainer: nnUNetTrainerNACL"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: T", "lacks runs"),
        ("- 1", "must hold title and runs; got list"),
        ("title: [", "is no YAML file"),
        ("title: T\nruns: []", "runs must be a list"),
        ("title: T\nruns: [3]", "run 1 must hold name and trainer; got 3"),
        ("title: T\nruns: [{name: A}]", "run 1 lacks trainer"),
        (f"title: T\nepochs: 3\nruns: [{ROW}}}]", "has the unknown epochs; known are figure, runs, setting, title"),
        (f"title: T\nruns: [{ROW}, epoch: 3}}]", "run 1 has the unknown epoch"),
        (f"title: T\nruns: [{ROW}}}, {ROW}}}]", "the name 'A' occurs twice"),
        (f"title: T\nruns: [{ROW}_lambda3}}]", "run 1: Trainer name nnUNetTrainerNACL_lambda3 does not know"),
        ("title: T\nruns: [{name: A, trainer: a b}]", "'a b' cannot be a trainer's name"),
        (f"title: T\nruns: [{ROW}, training_cases: 0%}}]", "must be a share such as 25%; got '0%'"),
        (f"title: T\nruns: [{ROW}, training_cases: 1/0%}}]", "must be a share such as 25%; got '1/0%'"),
        (f"title: T\nruns: [{ROW}, training_cases: 30}}]", "must be a share such as 25%; got 30"),
        (f"title: T\nruns: [{ROW}, value: [1]}}]", "value must be a finite number or a word"),
        (f"title: T\nruns: [{ROW}, group: 1}}]", "group must be a word"),
        (f"title: T\nruns: [{ROW}, on_request: 1}}]", "on_request must be true or false; got 1"),
        (f"title: T\nfigure: pie\nruns: [{ROW}}}]", "figure must be one of radar, .*; got 'pie'"),
        (f"title: T\nfigure: curves\nruns: [{ROW}}}]", "every run needs group and value"),
    ],
)
def test_wrong_tables_are_explained(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        read_study(file)
    assert str(file) in str(raised.value)


def test_unknown_study() -> None:
    with pytest.raises(ValueError, match="There is no study 'mian'; there are main, hyperparameters"):
        study_file("mian")


def test_all_methods_on_request(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"title: T\nruns: [{ROW}, on_request: true}}]")
    with pytest.raises(ValueError, match=r"All methods of study my are on request: name some of A \(--methods\)\."):
        read_study(file).chosen(None)
    assert [row.name for row in read_study(file).chosen(["A"]).rows] == ["A"]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: 2024-13-45", "is no YAML file: month must be in 1..12"),
        ("[" * 5000, "is no YAML file: it is nested too deeply"),
        ("title: T\ntitle: U\nruns: []", "the key 'title' comes twice"),
        (BOMB, "holds more than 100,000 entries"),
        ("&a [*a]", "holds more than 100,000 entries"),
        (f"title: [T]\nruns: [{ROW}}}]", "title and setting must be texts"),
        ("title: T\nruns: [{name: [A], trainer: nnUNetTrainerNACL}]", "run 1: name must be a text"),
        (f"title: T\nruns: [{ROW}, value: .nan}}]", "value must be a finite number or a word; got nan"),
        (f"title: T\nruns: [{ROW}, value: true}}]", "value must be a finite number or a word; got True"),
        (f"title: T\nruns: [{ROW}, training_cases: 1e999999999%}}]", "must be a share such as 25%"),
    ],
)
def test_tables_that_would_do_harm(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read_study(file)
    assert str(file) in str(raised.value)
    assert len(str(raised.value)) < 1000
