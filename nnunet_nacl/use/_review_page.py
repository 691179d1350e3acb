"""The page of a review: the ranked cases, each with its views."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.use._judgement import judgement_table
from nnunet_nacl.use._review_list import Review, ranked_cases
from nnunet_nacl.use._views import FULL_DOUBT, View


def write_review_page(
    file: Path,
    review: Review,
    views: Mapping[str, View],
    meaning: LabelMeaning,
    folder: Path,
) -> None:
    """Write the ranked cases, with pictures of each, into one self-contained file; completely or not at all."""
    cases = ranked_cases(review.table)
    slices = chain.from_iterable(view.slices for view in views.values())
    outlined = sorted({label for one in slices for label in one.picture.outlines})
    content = {
        "cases": cases,
        "views": views,
        "reasons": {
            case: [
                (row["structure"], f"{row['structure']}: {reason}")
                for row in of_case
                for reason in row["reasons"]
            ]
            for case, of_case in cases.items()
        },
        "known": {*review.table.columns[review.table.notna().any()]},
        "structures": sorted(meaning.names),
        "outlines": {label: (meaning.name_of(label), label_color(label)) for label in outlined},
        "full_doubt": FULL_DOUBT,
        "folder": folder,
        "judgement": judgement_table(review.judgements) if review.judgements else "",
        "notes": review.notes,
        "skipped": review.skipped,
    }
    write_page(file, "use/templates/review.html.j2", content)
