"""Imports run one way, losses -> trainers and metrics -> evaluation -> report; only the outer layer sees both."""

import ast
from pathlib import Path

import pytest

import nnunet_nacl

PACKAGE = Path(nnunet_nacl.__file__).parent
MAY_IMPORT = {
    "losses": {"losses"},
    "nnunet": {"nnunet", "linking"},
    "trainers": {"trainers", "losses", "metrics", "evaluation", "nnunet"},
    "metrics": {"metrics"},
    "evaluation": {"evaluation", "metrics", "nnunet"},
    "report": {"report", "evaluation", "metrics", "nnunet"},
    "datasets": {"datasets", "nnunet"},
    "posthoc": {"posthoc", "evaluation", "metrics", "nnunet"},
    "logits": {"logits", "report", "trainers", "nnunet"},
}


def imported_modules(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_run_one_way(part: str) -> None:
    for file in (PACKAGE / part).rglob("*.py"):
        parts = {name.split(".")[1] for name in imported_modules(file) if name.startswith("nnunet_nacl.")}
        assert parts - {"files", "__version__"} <= MAY_IMPORT[part], file


@pytest.mark.parametrize("part", ["losses", "metrics"])
def test_losses_and_metrics_do_not_need_nnunet(part: str) -> None:
    for file in (PACKAGE / part).rglob("*.py"):
        assert not any(name.startswith("nnunetv2") for name in imported_modules(file)), file
