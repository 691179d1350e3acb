"""The page to work from: the list, sortable and filterable, and each case in pictures. One self-contained file."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from nnunet_nacl import __version__
from nnunet_nacl.files import Kind, whole_file
from nnunet_nacl.nnunet import CaseFiles, image_file
from nnunet_nacl.review._cases import CountedCase
from nnunet_nacl.review._counts import CaseCounts
from nnunet_nacl.review._fit_file import SkippedCase
from nnunet_nacl.review._judgement import Judgement, judgement_table
from nnunet_nacl.review._rows import StructureReview

PAGE = Kind("a page of a review", re.compile(rb'<meta name="generator" content="review of nnunet_nacl '))
_COLORS = ("#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#0072B2", "#E69F00", "#D55E00")
"""Okabe and Ito's, which color-blind readers can tell apart; those last that are most like the red of doubt."""


@dataclass(frozen=True)
class Column:
    """A column of the list.

    Attributes:
        title: its head.
        hint: what it shows, in words.
        name: of the attribute of ``StructureReview``.
        form: of the numbers.
    """

    title: str
    hint: str
    name: str
    form: str = "{:.3f}"

    def text(self, row: StructureReview) -> str:
        """A cell."""
        value = getattr(row, self.name)
        return "–" if value is None else self.form.format(value)


_COLUMNS = (
    Column("predicted Dice", "the Dice to expect of the segmentation", "predicted_dice"),
    Column("fitted Dice", "predicted Dice after the fit", "fitted_dice"),
    Column("Dice at least", "lower bound of the Dice, with the fit's coverage", "dice_low"),
    Column("segmented ml", "volume of the saved segmentation", "segmented_ml", "{:.3g}"),
    Column("expected ml", "expected volume: the sum of the probabilities", "volume_ml", "{:.3g}"),
    Column("from ml", "lower end of the volume's interval", "volume_low_ml", "{:.3g}"),
    Column("to ml", "upper end of the volume's interval", "volume_high_ml", "{:.3g}"),
    Column("unsure ml", "volume where 0.1 < p < 0.9", "unsure_ml", "{:.3g}"),
    Column("max p", "highest probability of the structure in any voxel", "max_probability"),
    Column("errors expected", "mean of 1 − confidence near the structures", "mean_error"),
    Column("entropy", "mean entropy near the structures, in nats", "mean_entropy"),
    Column("agreement", "mean pairwise Dice of the members", "agreement"),
    Column("true Dice", "Dice with the ground truth", "dice"),
    Column("true ml", "volume in the ground truth", "true_ml", "{:.3g}"),
)


@dataclass(frozen=True)
class CaseView:
    """A case as the page shows it.

    Attributes:
        name: of the case.
        rows: of its structures, worst first.
        counts: with the pictures.
        links: title -> address.
    """

    name: str
    rows: list[StructureReview]
    counts: CaseCounts
    links: dict[str, str]


def write_page(
    rows: Sequence[StructureReview],
    cases: Sequence[CountedCase],
    file: Path,
    *,
    files: Mapping[str, CaseFiles],
    folder: Path,
    notes: Sequence[str],
    judgements: Sequence[Judgement],
    skipped: Sequence[SkippedCase],
    names: Sequence[str],
    labels: Mapping[int, str],
    images: Path | None,
    overwrite: bool = False,
) -> None:
    """Write the page, whole or not at all.

    Args:
        rows: of all cases, worst first.
        cases: with their pictures.
        file: the page.
        files: of each case, to link to.
        folder: of the predictions.
        notes: on the whole folder.
        judgements: by the ground truth, if there is any.
        skipped: cases that could not be reviewed.
        names: of the structures.
        labels: label -> its name, for the outlines.
        images: folder of the images, to link to.
        overwrite: replace a file that is no page of a review, too.

    Raises:
        OSError: it cannot be written.
    """
    counts = {case.case: case.counts for case in cases}
    order = dict.fromkeys(row.case for row in rows)  # by each case's worst structure
    views = [
        CaseView(
            name,
            [row for row in rows if row.case == name],
            counts[name],
            {title: _address(one, file) for title, one in _linked(files[name], images).items()},
        )
        for name in order
    ]
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.review"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    shown = [column for column in _COLUMNS if any(getattr(row, column.name) is not None for row in rows)]
    outlined = sorted({int(label) for case in cases for one in case.counts.pictures for label in one.outlines})
    html = environment.get_template("review.html.j2").render(
        folder=folder.resolve(),
        rows=rows,
        views=views,
        columns=shown,
        names=names,
        notes=notes,
        judgement=judgement_table(judgements) if judgements else "",
        skipped=skipped,
        colors={label: _COLORS[(label - 1) % len(_COLORS)] for label in outlined},
        labels={label: labels.get(label, str(label)) for label in outlined},
        version=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with whole_file(file, PAGE, overwrite=overwrite) as partial:
        partial.write_text(html, encoding="utf-8")


def _linked(files: CaseFiles, images: Path | None) -> dict[str, Path]:
    """The files of a case by what they are."""
    linked = {"segmentation": files.prediction, "probabilities": files.probabilities}
    if images is not None:
        with suppress(FileNotFoundError):
            linked["image"] = image_file(images, files.name, files.prediction.name.removeprefix(files.name))
    return linked


def _address(target: Path, page: Path) -> str:
    """A link from the page to a file: relative, so that folder and page can be moved together."""
    try:
        return quote(os.path.relpath(target.resolve(), page.resolve().parent).replace(os.sep, "/"))
    except ValueError:  # on another drive of Windows
        return target.resolve().as_uri()
