"""The review page: the list of cases, and pictures of each. One self-contained file."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nnunet_nacl import __version__
from nnunet_nacl.files import whole_file
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.use._counting import CountedCase
from nnunet_nacl.use._judging import Rows
from nnunet_nacl.use._pictures import LABEL_COLORS
from nnunet_nacl.use._quantities import structure_names


def write_page(
    file: Path,
    cases: Mapping[str, Rows],
    counted: Mapping[str, CountedCase],
    meaning: LabelMeaning,
    **texts: Any,
) -> None:
    """Write the page of cases with their rows, completely or not at all; ``texts`` are for the template."""
    rows = [row for of_case in cases.values() for row in of_case]
    pictures = [picture for case in counted.values() for picture in case.pictures]
    outlined = sorted({int(label) for picture in pictures for label in picture["outlines"]})
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.use"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    html = environment.get_template("review.html.j2").render(
        cases=cases,
        reasons={
            case: [f"{row['structure']}: {reason}" for row in of_case for reason in row["reasons"]]
            for case, of_case in cases.items()
        },
        counted=counted,
        known={name for row in rows for name, value in row.items() if value is not None},
        structures=sorted(structure_names(meaning)),
        outlines={
            label: (meaning.name_of(label), LABEL_COLORS[(label - 1) % len(LABEL_COLORS)])
            for label in outlined
        },
        version=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **texts,
    )
    with whole_file(file) as partial:
        partial.write_text(html, encoding="utf-8")
