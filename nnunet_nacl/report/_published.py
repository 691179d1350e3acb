"""The values that the paper has published, and our names of its methods and data sets."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from nnunet_nacl.files import read_json

# Names of data sets without nnU-Net's DatasetXXX_, in lower case: those of docs/datasets.md, and the paper's own.
DATA_SETS = {
    "ACDC": {"acdc"},
    "FLARE": {"flare", "flare21"},
    "BraTS": {"brats", "brats19", "brats2019", "brats19regions"},
    "PROSTATE": {"prostate"},
    "KiTS": {"kits", "kits19"},
    "MRBrainS": {"mrbrains", "mrbrains18"},
}
# Words in the names of methods that say what the paper's main tables have anyway.
_BUDGET = re.compile(r"paperSchedule|\d+(epochs|iterations)")
METHODS = {
    "CE+DSC": set(),
    "FL": {"gamma3", "γ=3"},
    "ECP": {"classMean", "alpha0p1", "α=0.1"},
    "LS": {"alpha0p1", "α=0.1"},
    "SVLS": {"sigma2", "σ=2"},
    "MbLS": {"margin5", "m=5"},
    "NACL": {"weight0p1", "λ=0.1", "mean", "l1", "logits"},
    "NACL l2": {"l2"},
    "NACL Gaussian": {"gaussian", "Gaussian", "sigma1", "σ=1"},
}
"""The paper's methods, and the words in our names that say the settings of its tables."""


@dataclass(frozen=True)
class PublishedRow:
    """Values of a table's methods: ``DSC``, ``HD`` (95th percentile, in pixels), ``ECE`` or ``CECE`` (foreground).

    ``structure`` is None for the mean over structures.
    """

    dataset: str
    metric: str
    values: list[float]
    structure: str | None = None


@dataclass(frozen=True)
class PublishedTable:
    """One of the paper's tables: what it prints, but not its means over data sets."""

    number: int
    methods: list[str]
    rows: list[PublishedRow]


@dataclass(frozen=True)
class Published:
    """The values that the paper has published.

    References:
        Murugesan et al., Medical Image Analysis 2025, doi:10.1016/j.media.2025.103501, tables 1 to 4.
    """

    title: str
    authors: str
    journal: str
    year: int
    doi: str
    arxiv: str
    tables: list[PublishedTable]

    def value(self, dataset: str, method: str, metric: str, structure: str | None = None) -> float:
        """A value of the first table that has it; NaN if none has."""
        for table in self.tables:
            for row in table.rows:
                same = (row.dataset, row.metric, row.structure) == (dataset, metric, structure)
                if same and method in table.methods:
                    return row.values[table.methods.index(method)]
        return math.nan

    def mean(self, method: str, metric: str) -> float:
        """The mean over the paper's six data sets; NaN if one of them has no value."""
        return fmean(self.value(dataset, method, metric) for dataset in DATA_SETS)


@cache
def published() -> Published:
    """The paper's tables, from a file of this package."""
    return read_json(Path(__file__).with_name("published.json"), Published)


def published_data_set(name: str) -> str | None:
    """The paper's name of a data set, or None if the paper has not used it.

    >>> published_data_set("Dataset127_ACDC, trained on fold 0"), published_data_set("Dataset004_Hippocampus")
    ('ACDC', None)
    """
    plain = re.sub(r"^Dataset\d{3}_", "", name).partition(",")[0].strip().lower()
    return next((dataset for dataset, names in DATA_SETS.items() if plain in names), None)


def published_method(name: str) -> str | None:
    """The paper's name of a method with the settings of its tables, or None if its tables have no such method.

    Args:
        name: ours, such as ``nnUNetTrainerNACL_l2_paperSchedule``, ``ECP_classMean`` or ``FL γ=3``.

    >>> published_method("nnUNetTrainerDiceCE"), published_method("NACL_l2"), published_method("NACL_weight0p2")
    ('CE+DSC', 'NACL l2', None)
    """
    first, *words = re.split(r"[\s_]+", name.removeprefix("nnUNetTrainer"))
    loss = "CE+DSC" if first in {"", "DiceCE", "CE+DSC"} else first
    settings = {word for word in words if word and not _BUDGET.fullmatch(word)}
    if loss not in METHODS:
        return None
    changed = settings - METHODS[loss]
    if not changed:
        return loss
    variants = ("NACL l2", "NACL Gaussian") if loss == "NACL" else ()
    return next((variant for variant in variants if changed <= METHODS[variant]), None)


def has_published(dataset: str, methods: Sequence[str]) -> bool:
    """Whether the paper has values on this very data set for one of the methods."""
    return published_data_set(dataset) is not None and any(published_method(name) is not None for name in methods)
