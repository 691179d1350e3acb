"""Imports run one way, as docs/architecture.md says, and stop at a package's public names."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nnunet_nacl

PACKAGE = Path(nnunet_nacl.__file__).parent
_BASE = {"nnunet", "files", "cases", "metrics"}
MAY_IMPORT = {
    "files": set(),
    "typing": set(),
    "cases": {"files"},
    "pages": {"files"},
    "losses": set(),
    "metrics": set(),
    "linking": {"files"},
    "nnunet": {"files", "linking", "metrics"},
    "evaluation": _BASE,
    "trainers": {"losses", "metrics", "nnunet", "evaluation", "files"},
    "folders": {"cases", "files", "nnunet"},
    "calibrate": {*_BASE, "evaluation", "folders"},
    "use": {*_BASE, "evaluation", "calibrate", "folders", "pages"},
    "report": {*_BASE, "evaluation", "use", "pages"},
    "paper": {*_BASE, "losses", "trainers", "evaluation", "calibrate", "report", "linking"},
    "export": {"paper", "nnunet", "trainers", "files"},
    "demo": {*_BASE, "evaluation", "paper", "trainers", "report", "calibrate", "linking"},
}
ALL_PARTS = sorted({*MAY_IMPORT, "commands", "cli"})


def files_of(part: str) -> list[Path]:
    file = PACKAGE / f"{part}.py"
    return [file] if file.is_file() else sorted((PACKAGE / part).rglob("*.py"))


def imported(file: Path) -> set[str]:
    """The modules, and names from modules, that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_part_is_in_the_table() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts - {"__init__"} == set(ALL_PARTS)
    for part in ALL_PARTS:
        assert files_of(part), part


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_run_one_way(part: str) -> None:
    for file in files_of(part):
        parts = {name.split(".")[1] for name in imported(file) if name.startswith("nnunet_nacl.")}
        assert parts - {part, "typing", "__version__"} <= MAY_IMPORT[part], file


def test_the_table_has_no_circle() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_circle_among_files() -> None:
    """Imports for types count, too; a package's ``__init__`` only gathers names."""
    files = {}
    for file in PACKAGE.rglob("*.py"):
        if file.name != "__init__.py":
            files[".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)] = file
    needs = {name: {one.rpartition(".")[0] for one in imported(file)} & files.keys() for name, file in files.items()}
    TopologicalSorter(needs).prepare()


@pytest.mark.parametrize("part", ALL_PARTS)
def test_no_package_imports_anothers_private_names(part: str) -> None:
    for file in files_of(part):
        for name in imported(file):
            package, *path = name.split(".")
            if package != "nnunet_nacl" or path[0] in {part, "__version__"}:
                continue
            assert not any(one.startswith("_") for one in path), f"{file}: {name}"


@pytest.mark.parametrize("part", sorted({*ALL_PARTS} - {"nnunet", "trainers", "paper"}))
def test_nnunet_is_imported_in_few_places(part: str) -> None:
    for file in files_of(part):
        assert not any(name.startswith("nnunetv2") for name in imported(file)), file


def test_one_step_a_statement() -> None:
    """``a, b = x, y`` only where one needs the other's old value."""
    packed = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                packed += [f"{file.name}:{node.lineno}"] * isinstance(node.targets[0], ast.Tuple)
    assert len(packed) <= 3, packed
