"""Pages that are made from what is elsewhere: README, CONTRIBUTING, CHANGELOG, commands and public names.

    python docs/pages.py

writes ``commands.md``, ``reference.md`` and the lists in ``metrics.md``, to be read in the repository. On the site each
package of the reference has its whole docstrings.
"""

import importlib
import inspect
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from nnunet_nacl.cli import COMMANDS, overview
from nnunet_nacl.metrics import CALIBRATION_METRICS, SEGMENTATION_METRICS

_ROOT = Path(__file__).parents[1]
_PACKAGES = {
    "Losses": "nnunet_nacl.losses",
    "Metrics of arrays": "nnunet_nacl.metrics",
    "Calibration after training": "nnunet_nacl.calibrate",
    "nnU-Net's files": "nnunet_nacl.nnunet",
    "Evaluation of folders": "nnunet_nacl.evaluation",
    "Report": "nnunet_nacl.report",
    "Plots": "nnunet_nacl.report.panels",
    "What the confidences are good for": "nnunet_nacl.use",
    "Trainers": "nnunet_nacl.trainers",
    "Logits": "nnunet_nacl.paper.logits",
    "Data sets": "nnunet_nacl.paper.datasets",
    "Studies": "nnunet_nacl.paper.experiments",
    "The paper's report": "nnunet_nacl.paper.report",
}
_ONLY = {
    "nnunet_nacl.nnunet": [
        "CaseFiles",
        "DataSet",
        "LabelledImages",
        "PreprocessedCases",
        "Predictions",
        "Provenance",
        "Split",
        "model_folder",
        "read_checkpoint",
    ],
    "nnunet_nacl.metrics": [
        "CALIBRATION_METRICS",
        "METRICS",
        "SEGMENTATION_METRICS",
        "RECALL_THRESHOLDS",
        "VOXEL_SETS",
        "BinCounts",
        "CalibrationTables",
        "Counts",
        "Doubt",
        "Estimate",
        "LabelMeaning",
        "MetricDefinition",
        "Settings",
        "StructureSums",
        "TruthCounts",
        "average_calibration_error",
        "confusion_matrix",
        "dice",
        "evaluate_case",
        "expected_calibration_error",
        "maximum_calibration_error",
        "measure",
        "near_core",
        "segment",
        "surface_metrics",
    ],
    "nnunet_nacl.evaluation": [
        "CountedCase",
        "Counting",
        "FolderResult",
        "SavedCase",
        "evaluate",
        "format_table",
        "read_result",
        "write_result",
    ],
    "nnunet_nacl.report.panels": ["draw_panels", "save_plot", "to_svg"],
    "nnunet_nacl.paper.experiments": [
        "Options",
        "plan_on_data_sets",
        "print_commands",
        "report_experiments",
        "run_experiments",
    ],
}
"""Packages most of whose names only other packages import: what users need of them."""
_REFERENCE = """# Reference

The packages that you import, one after the other. What is not here may change. `help(NAME)` in Python, and the site,
have the whole docstrings.
"""
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        for other, its_page in _PAGES.items():
            text = text.replace(f"]({other}", f"]({its_page}")
        text = re.sub(r"\[([^]]*)\]\((CITATION\.cff)\)", r"\1", text).replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Put whole docstrings in place of the list of names."""
    if page.file.src_uri != "reference.md":
        return markdown

    def docstrings(of_package: re.Match[str]) -> str:
        if of_package[1] not in _ONLY:
            return f"::: {of_package[1]}\n"
        return (
            f"::: {of_package[1]}\n    options: {{members: [{', '.join(_ONLY[of_package[1]])}]}}\n"
        )

    return re.sub(r"`(nnunet_nacl\.[\w.]+)`\n\n(\|.*\n)+", docstrings, markdown)


def command_help() -> dict[str, str]:
    """The help of each command, by its name as a user types it; first that of all."""
    texts = {"nnunet_nacl": overview()}
    for name, command in COMMANDS.items():
        texts[f"nnunet_nacl {name}"] = command.parser().format_help()
    return texts


def reference() -> str:
    """The public names of each package with the first line of their docstrings."""
    parts = [_REFERENCE]
    for title, package in _PACKAGES.items():
        module = importlib.import_module(package)
        rows = []
        for name in _ONLY.get(package) or module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
            first = first.replace("|", "\\|").replace("``", "`")
            rows.append(f"| `{name}` | {first} |\n")
        parts.append(f"## {title}\n\n`{package}`\n\n| | |\n|---|---|\n{''.join(rows)}")
    return "\n".join(parts)


def commands() -> str:
    """The help of every command."""
    parts = [f"## {name}\n\n```text\n{text}```\n" for name, text in command_help().items()]
    return "# Commands\n\n" + "\n".join(parts)


def metrics(text: str) -> str:
    """``metrics.md`` with the lists of the registry."""
    for title, registered in (
        ("calibration", CALIBRATION_METRICS),
        ("segmentation", SEGMENTATION_METRICS),
    ):
        rows = ""
        for one in registered.values():
            formula = one.formula.replace("|", "\\|")
            rows += f"| `{one.name}` | {formula} |\n"
        head, table, rest = re.split(rf"(?<=<!-- {title}: )(.*\n\n.*\n.*\n)(?:\|.*\n)*", text)
        text = head + table + rows + rest
    return text


if __name__ == "__main__":
    lists = metrics((_ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"))
    for name, text in (
        ("commands.md", commands()),
        ("reference.md", reference()),
        ("metrics.md", lists),
    ):
        (_ROOT / "docs" / name).write_text(text, encoding="utf-8")
