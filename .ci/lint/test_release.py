"""What a release is made of says the same everywhere."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnunet_nacl import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]


def test_one_version_with_a_date() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    newest = re.search(
        r"^## \[(\d.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest is not None
    assert newest.groups() == (
        __version__,
        "unreleased" if "date-released" not in citation else str(citation["date-released"]),
    )


def test_the_workflow_tests_what_the_package_promises() -> None:
    promised = [
        name.rpartition(" ")[2]
        for name in PROJECT["classifiers"]
        if name.startswith("Programming Language :: Python")
    ]
    assert JOBS["test"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert JOBS["publish"]["needs"] == "build"
    assert JOBS["build"]["needs"] == ["test", "lowest", "slow"]


def test_pages_name_the_versions_that_are_required() -> None:
    (nnunet,) = (one for one in PROJECT["dependencies"] if one.startswith("nnunetv2"))
    lowest = re.search(r">=([\d.]+)", nnunet)
    assert lowest is not None
    versions = [
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if ":: Python :: 3." in name
    ]
    pythons = f"{versions[0]} to {versions[-1]}"
    install = (ROOT / "docs" / "install.md").read_text()
    assert f"(`{nnunet}`)" in install
    assert f"| Python | {pythons};" in install
    readme = (ROOT / "README.md").read_text()
    assert f"Python {pythons}" in readme
    assert f"nnU-Net {lowest[1]}" in readme


def test_the_workflow_runs_scripts_that_are_there() -> None:
    scripts = {
        step["run"].split()[0]
        for job in JOBS.values()
        for step in job["steps"]
        if step.get("run", "").startswith(".")
    }
    assert scripts == {".ci/run", ".ci/lowest", ".ci/slow", ".ci/release"}
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
