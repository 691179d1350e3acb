"""The page of a review: each case with its most doubtful slices, and how far members of an ensemble agree on it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnunet_nacl.case_loop import check_any_used, each_case
from nnunet_nacl.evaluation import FolderResult, SavedCase
from nnunet_nacl.metrics import LabelMeaning, mean_pairwise_dice
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions, first_channel
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.use._doubtful_slices import FULL_DOUBT, DoubtfulSlice, doubtful_slices
from nnunet_nacl.use._judgement import judgement_table
from nnunet_nacl.use._review_list import Review, ranked_cases


class View(NamedTuple):
    """A case as it is looked at.

    Attributes:
        agreement: of the members on each structure; NaN without members.
        slices: with pictures, those to show.
        problem: the reason why its image is not shown, if it should be.
    """

    agreement: tuple[float, ...]
    slices: list[DoubtfulSlice]
    problem: str | None


def view_cases(
    counted: FolderResult,
    predictions: Predictions,
    *,
    members: Sequence[Predictions],
    images: str | Path | None,
    with_pictures: bool,
    num_processes: int,
) -> tuple[dict[str, View], FolderResult]:
    """View the cases; also returns the result with those alone that could be viewed."""
    views, failed = each_case(
        {name: predictions.by_name[name] for name in counted.cases},
        partial(
            _view,
            data_set=predictions.data_set,
            members=members,
            images=None if images is None else Path(images).resolve(),
            with_pictures=with_pictures,
        ),
        doing="drawing",
        num_processes=num_processes,
    )
    check_any_used(views, failed)
    return views, replace(counted.only(views), skipped=[*counted.skipped, *failed])


def _view(
    files: CaseFiles,
    *,
    data_set: DataSet,
    members: Sequence[Predictions],
    images: Path | None,
    with_pictures: bool,
) -> View:
    """Compare a case's members and draw its slices; an OSError or a ValueError if files are missing or do not fit."""
    case = SavedCase(files, data_set)
    agreement = (np.nan,) * len(data_set.meaning.structures)
    if members:
        labels = [case.read_like(member.home / files.prediction.name)[0] for member in members]
        agreement = mean_pairwise_dice(labels, data_set.meaning)
    if not with_pictures:
        return View(agreement, [], None)
    image = None if images is None else first_channel(images, files.name, files.prediction)
    shown, problem = doubtful_slices(case, data_set, image)
    return View(agreement, shown, problem)


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
