"""HTML pages: one self-contained file each, made from a template of the package."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from nnunet_nacl import __version__
from nnunet_nacl.files import printable, whole_file


def write_page(
    file: Path,
    package: str,
    template: str,
    content: Mapping[str, Any],
    filters: Mapping[str, Any] = MappingProxyType({}),
    *,
    base: str = "",
) -> None:
    """Write the page that a package's template makes of this content, the version and the date; whole or not at all.

    ``base`` is the package whose template it extends, if any. All templates may include ``page.css``, the colors and
    marks that pages share.
    """
    packages = [package, *filter(None, [base]), "nnunet_nacl"]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    html = environment.get_template(template).render(content, version=__version__, date=date)
    with whole_file(file) as partial:
        partial.write_text(printable(html), encoding="utf-8")
