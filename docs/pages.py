"""Pages of the site that are made from what is elsewhere: README, CONTRIBUTING, CHANGELOG, and each command's help."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from nnunet_nacl.cli import command_help

_ROOT = Path(__file__).parents[1]
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
    files.append(File.generated(config, "commands.md", content=commands()))
    return files


def commands() -> str:
    """The help of every command."""
    parts = [f"## {name}\n\n```text\n{text}```\n" for name, text in command_help().items()]
    return "# Commands\n\n" + "\n".join(parts)
