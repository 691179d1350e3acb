"""HTML pages: one self-contained file each, made from a template of the package."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nnunet_nacl import __version__
from nnunet_nacl.files import whole_file


def write_page(
    file: Path,
    template: str,
    content: Mapping[str, Any],
    filters: Mapping[str, Any] | None = None,
) -> None:
    """Write the page that a template makes of this content, the version and the date; whole or not at all.

    Templates, and what they include or extend, are named by their paths in this package.
    """
    environment = Environment(
        loader=PackageLoader("nnunet_nacl", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    html = environment.get_template(template).render(content, version=__version__, date=date)
    with whole_file(file) as partial:
        partial.write_text(html, encoding="utf-8")
