"""The figures that ``nnunet_nacl logits`` has written, for the page."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

_FIGURES = {
    "logits_by_class": (
        "mean_logits",
        (
            "Mean absolute logits by true class: what each method's logits are in the voxels of a class, on the same "
            "scale. High bars of another class are most often strongly negative logits."
        ),
    ),
    "max_logits": (
        "max_logits",
        (
            "The largest logit of a voxel over the epochs of the training: in nnU-Net's validation patches; the "
            "darker, the more voxels. The line is the median."
        ),
    ),
}
"""File, its entry of a method in logits.json (null: the method is not in it), caption."""


@dataclass(frozen=True)
class LogitFigure:
    """A figure as the page has it.

    Attributes:
        source: a ``data:`` address.
        caption: what it shows.
        description: for those who do not see it.
    """

    source: str
    caption: str
    description: str


def read_logit_figures(folder: str | Path) -> list[LogitFigure]:
    """The figures in a folder of ``nnunet_nacl logits``.

    Raises:
        FileNotFoundError: it is no such folder.
        ValueError: ``logits.json`` is damaged.
    """
    folder = Path(folder)
    numbers, first = folder / "logits.json", folder / "logits_by_class.svg"
    for file in (numbers, first):
        if not file.is_file():
            raise FileNotFoundError(f"{file} does not exist: expected a folder that nnunet_nacl logits has written.")
    try:
        content = json.loads(numbers.read_text(encoding="utf-8"))
        shown = {
            stem: ", ".join(name for name, of_method in content["methods"].items() if of_method[key] is not None)
            for stem, (key, _) in _FIGURES.items()
        }
        fold = content["fold"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{numbers} is not what nnunet_nacl logits has written: {error!r}") from error
    files = {stem: folder / f"{stem}.svg" for stem in _FIGURES}
    return [
        LogitFigure(
            f"data:image/svg+xml;base64,{base64.b64encode(files[stem].read_bytes()).decode()}",
            caption,
            f"{caption.partition(':')[0]}: {shown[stem]}, fold {fold}",
        )
        for stem, (_, caption) in _FIGURES.items()
        if files[stem].is_file()
    ]
