"""What ``nnunet_nacl logits`` has written, for the page."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.files import check_input
from nnunet_nacl.json_files import read_json

_LOGIT_PLOTS = {
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
class LogitPlot:
    """A plot of ``nnunet_nacl logits``, as the page shows it.

    Attributes:
        source: a ``data:`` address.
        caption: what it shows.
        description: for readers who cannot see it.
    """

    source: str
    caption: str
    description: str


@dataclass(frozen=True)
class _LogitNumbersOfMethod:
    mean_logits: Any
    max_logits: Any


@dataclass(frozen=True)
class _LogitNumbers:
    """What we use of ``logits.json``."""

    fold: str | int
    methods: dict[str, _LogitNumbersOfMethod]


def read_logit_plots(folder: str | Path) -> list[LogitPlot]:
    """The plots in a folder that ``nnunet_nacl logits`` has written.

    Raises:
        FileNotFoundError: the folder is something else.
        ValueError: ``logits.json`` is damaged.
    """
    folder = Path(folder)
    numbers, first = folder / "logits.json", folder / "logits_by_class.svg"
    for file in (numbers, first):
        check_input(file, ": expected a folder that nnunet_nacl logits has written.")
    content = read_json(numbers, _LogitNumbers, "file that nnunet_nacl logits has written")
    shown = {
        stem: ", ".join(name for name, method in content.methods.items() if getattr(method, key) is not None)
        for stem, (key, _) in _LOGIT_PLOTS.items()
    }
    files = {stem: folder / f"{stem}.svg" for stem in _LOGIT_PLOTS}
    return [
        LogitPlot(
            f"data:image/svg+xml;base64,{base64.b64encode(files[stem].read_bytes()).decode()}",
            caption,
            f"{caption.partition(':')[0]}: {shown[stem]}, fold {content.fold}",
        )
        for stem, (_, caption) in _LOGIT_PLOTS.items()
        if files[stem].is_file()
    ]
