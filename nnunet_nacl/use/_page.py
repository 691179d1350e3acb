"""The review page: the list of cases, and pictures of each. One self-contained file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.pages import write_page
from nnunet_nacl.use._counting import CountedCase
from nnunet_nacl.use._judging import Rows
from nnunet_nacl.use._pictures import LABEL_COLORS
from nnunet_nacl.use._quantities import structure_names


def write_review_page(
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
    content = {
        "cases": cases,
        "reasons": {
            case: [f"{row['structure']}: {reason}" for row in of_case for reason in row["reasons"]]
            for case, of_case in cases.items()
        },
        "counted": counted,
        "known": {name for row in rows for name, value in row.items() if value is not None},
        "structures": sorted(structure_names(meaning)),
        "outlines": {
            label: (meaning.name_of(label), LABEL_COLORS[(label - 1) % len(LABEL_COLORS)])
            for label in outlined
        },
        **texts,
    }
    write_page(file, "nnunet_nacl.use", "review.html.j2", content)
