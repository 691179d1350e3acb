"""Imports run one way, as docs/architecture.md says, and stop at public names; what is imported is declared."""

import ast
import re
import runpy
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import nnunet_nacl

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[1]
PACKAGE = Path(nnunet_nacl.__file__).parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_BASE = {"files", "case_loop", "metrics", "nnunet"}
IMPORTS = {
    "files": set(),
    "paths": set(),
    "typing": set(),
    "losses": set(),
    "metrics": set(),
    "linking": set(),
    "pages": {"files"},
    "pictures": set(),
    "patients": set(),
    "case_loop": {"files"},
    "nnunet": {"files", "paths", "metrics", "linking"},
    "new_folder": {"files", "case_loop", "nnunet"},
    "evaluation": {*_BASE, "paths"},
    "trainers": {"files", "losses", "metrics", "nnunet", "evaluation"},
    "calibrate": {*_BASE, "paths", "patients", "evaluation", "new_folder"},
    "use": {*_BASE, "patients", "evaluation", "new_folder", "pages", "pictures"},
    "report": {"files", "paths", "patients", "metrics", "nnunet", "evaluation", "pages", "pictures"},
    "paper": {*_BASE, "patients", "evaluation", "trainers", "report", "linking"},
    "export": {"files", "nnunet"},
    "demo": {"files", "nnunet", "evaluation", "paper", "report", "linking"},
}
"""What each part imports of the others, no more and no less."""
ALL_PARTS = sorted({*IMPORTS, "commands", "cli"})
projects_of_modules = cache(packages_distributions)


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
    assert parts - {"__init__", "__main__"} == set(ALL_PARTS)
    for part in ALL_PARTS:
        assert files_of(part), part


@pytest.mark.parametrize("part", IMPORTS)
def test_each_part_imports_what_the_table_says(part: str) -> None:
    names = set().union(*map(imported, files_of(part)))
    parts = {name.split(".")[1] for name in names if name.startswith("nnunet_nacl.")}
    assert parts - {part, "typing", "__version__"} == IMPORTS[part]


def test_the_table_has_no_circle() -> None:
    TopologicalSorter(IMPORTS).prepare()


def distributions(files: Iterable[Path]) -> set[str]:
    """The projects whose modules the files import, as pyproject.toml spells them."""
    names = {name.partition(".")[0] for file in files for name in imported(file)}
    found = projects_of_modules()
    return {canonical(project) for name in names - sys.stdlib_module_names for project in found.get(name, [])}


def canonical(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def declared(requirements: Iterable[str]) -> set[str]:
    return {canonical(one) for one in requirements}


def test_the_package_requires_what_it_imports() -> None:
    networks = set(files_of("paper/networks"))
    others = set(PACKAGE.rglob("*.py")) - networks
    extras = PROJECT["optional-dependencies"]
    required = declared([*PROJECT["dependencies"], *extras["rankseg"]])
    assert distributions(others) - {"nnunet-nacl"} == required
    of_networks = distributions(networks) - declared(PROJECT["dependencies"]) - {"nnunet-nacl"}
    assert of_networks == declared(extras["networks"])


def test_no_circle_among_files() -> None:
    """Imports for types count, too; a package's ``__init__`` only gathers names."""
    files = {}
    for file in PACKAGE.rglob("*.py"):
        if file.name != "__init__.py":
            files[".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)] = file
    needs = {name: {one.rpartition(".")[0] for one in imported(file)} & files.keys() for name, file in files.items()}
    TopologicalSorter(needs).prepare()


@pytest.mark.parametrize("part", ALL_PARTS)
def test_no_package_imports_anothers_private_names_and_few_import_nnunet(part: str) -> None:
    for file in files_of(part):
        for name in imported(file):
            package, *path = name.split(".")
            assert package != "nnunetv2" or part in {"nnunet", "trainers", "paper"}, file
            if package == "nnunet_nacl" and path[0] not in {part, "__version__"}:
                assert not any(one.startswith("_") for one in path), f"{file}: {name}"


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda script: script.stem)
def test_what_a_benchmark_imports_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(script.parent)
    runpy.run_path(str(script), run_name="imported")
