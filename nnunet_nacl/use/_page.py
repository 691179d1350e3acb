"""The page to work from: the list of cases, and each one in pictures. One self-contained file."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import whole_file
from nnunet_nacl.nnunet import CaseFiles
from nnunet_nacl.use._counting import CaseCounts, first_channel
from nnunet_nacl.use._rows import CaseReview

_COLORS = ("#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#0072B2", "#E69F00", "#D55E00")
"""Okabe and Ito's, which color-blind readers can tell apart; those last that are most like the red of doubt."""

_COLUMNS = (
    ("predicted Dice", "predicted_dice", "%.3f", "the Dice to expect of the segmentation"),
    ("fitted Dice", "fitted_dice", "%.3f", "predicted Dice after the fit"),
    ("Dice at least", "dice_low", "%.3f", "lower bound of the Dice, with the fit's coverage"),
    ("segmented ml", "segmented_ml", "%.3g", "volume of the saved segmentation"),
    ("expected ml", "volume_ml", "%.3g", "expected volume: the sum of the probabilities"),
    ("from ml", "volume_low_ml", "%.3g", "lower end of the volume's interval"),
    ("to ml", "volume_high_ml", "%.3g", "upper end of the volume's interval"),
    ("unsure ml", "unsure_ml", "%.3g", "volume where 0.1 < p < 0.9"),
    ("max p", "max_probability", "%.3f", "highest probability of the structure in any voxel"),
    ("errors expected", "mean_error", "%.3f", "mean of 1 − confidence near the structures"),
    ("entropy", "mean_entropy", "%.3f", "mean entropy near the structures, in nats"),
    ("agreement", "agreement", "%.3f", "mean pairwise Dice of the members"),
    ("true Dice", "dice", "%.3f", "Dice with the ground truth"),
    ("true ml", "true_ml", "%.3g", "volume in the ground truth"),
)
"""Of a case's table: head, attribute of ``StructureReview``, form, hint."""


def write_page(
    cases: Sequence[CaseReview],
    file: Path,
    *,
    folder: Path,
    counts: Mapping[str, CaseCounts],
    files: Mapping[str, CaseFiles],
    notes: Sequence[str],
    judgement: str,
    skipped: Sequence[Skipped],
    labels: Mapping[int, str],
    images: Path | None,
) -> None:
    """Write the page, whole or not at all."""
    rows = [row for case in cases for row in case.rows]
    outlined = sorted({int(label) for one in counts.values() for picture in one.pictures for label in picture.outlines})
    environment = Environment(
        loader=PackageLoader("nnunet_nacl.use"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    html = environment.get_template("review.html.j2").render(
        folder=folder.resolve(),
        cases=cases,
        counts=counts,
        links={case.case: _links(files[case.case], images, file) for case in cases},
        columns=[column for column in _COLUMNS if any(getattr(row, column[1]) is not None for row in rows)],
        structures=sorted({row.structure for row in rows}),
        notes=notes,
        judgement=judgement,
        skipped=skipped,
        outlines={label: (labels.get(label, label), _COLORS[(label - 1) % len(_COLORS)]) for label in outlined},
        version=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with whole_file(file) as partial:
        partial.write_text(html, encoding="utf-8")


def _links(files: CaseFiles, images: Path | None, page: Path) -> dict[str, str]:
    """Addresses of a case's files by what they are: relative, so that folder and page can be moved together."""
    linked = {"segmentation": files.prediction, "probabilities": files.probabilities}
    if images is not None and first_channel(files, images).exists():
        linked["image"] = first_channel(files, images)
    here = page.resolve().parent
    return {title: quote(os.path.relpath(file.resolve(), here).replace(os.sep, "/")) for title, file in linked.items()}
