"""The paper's published values, and the table that shows them beside ours."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean

from nnunet_nacl.json_files import read_json
from nnunet_nacl.metrics import Interval
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._formats import NO_INTERVAL, Cell, Mark, Table
from nnunet_nacl.report._metrics import DICE, Metric

_FILE = Path(__file__).with_name("published.json")

# Names of data sets without nnU-Net's DatasetXXX_, in lower case: those of docs/datasets.md, and the paper's own.
_DATA_SETS = {
    "ACDC": {"acdc"},
    "FLARE": {"flare", "flare21"},
    "BraTS": {"brats", "brats19", "brats2019", "brats19regions"},
    "PROSTATE": {"prostate"},
    "KiTS": {"kits", "kits19"},
    "MRBrainS": {"mrbrains", "mrbrains18"},
}
# Words in the names of methods that say what the paper's main tables have anyway.
_BUDGET = re.compile(r"paperSchedule|\d+(epochs|iterations)")
_PAPERS_SETTINGS = {
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


@dataclass(frozen=True)
class PublishedRow:
    """A row of one of the paper's tables.

    Attributes:
        dataset: as the paper calls it.
        metric: ``DSC``, ``HD`` (95th percentile, in pixels), ``ECE`` or ``CECE`` (over the foreground).
        values: of the table's methods, in their order.
        structure: as the paper calls it; None for the mean over structures.
    """

    dataset: str
    metric: str
    values: list[float]
    structure: str | None = None


@dataclass(frozen=True)
class PublishedTable:
    """One of the paper's tables.

    Attributes:
        number: in the paper.
        methods: the paper's names, with NACL's variants as ``NACL Gaussian`` and ``NACL l2``.
        rows: what the paper prints, but not its means over data sets.
    """

    number: int
    methods: list[str]
    rows: list[PublishedRow] = field(default_factory=list)


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
        return fmean(self.value(dataset, method, metric) for dataset in _DATA_SETS)


@cache
def published() -> Published:
    """The paper's tables, from a file of this package."""
    return read_json(_FILE, Published, "file of the paper's values")


def published_data_set(name: str) -> str | None:
    """The paper's name of a data set, or None if the paper has not used it.

    >>> published_data_set("Dataset127_ACDC, trained on fold 0"), published_data_set("Dataset004_Hippocampus")
    ('ACDC', None)
    """
    plain = re.sub(r"^Dataset\d{3}_", "", name).partition(",")[0].strip().lower()
    return next((dataset for dataset, names in _DATA_SETS.items() if plain in names), None)


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
    if loss not in _PAPERS_SETTINGS:
        return None
    changed = settings - _PAPERS_SETTINGS[loss]
    if not changed:
        return loss
    variants = ("NACL l2", "NACL Gaussian") if loss == "NACL" else ()
    return next((variant for variant in variants if changed <= _PAPERS_SETTINGS[variant]), None)


def has_published(dataset: str, methods: Sequence[str]) -> bool:
    """Whether the paper has values on this very data set for one of the methods."""
    return published_data_set(dataset) is not None and any(published_method(name) is not None for name in methods)


def published_table(comparison: Comparison) -> Table:
    """Our means over cases, and beside them what the paper has published: of the data set, or the mean of its six.

    Raises:
        ValueError: the paper's tables have none of the methods.
    """
    theirs = [published_method(name) for name in comparison.names]
    if all(method is None for method in theirs):
        raise ValueError(
            f"the paper's tables have none of the methods {', '.join(comparison.names)}; they have "
            f"{', '.join(_PAPERS_SETTINGS)}. Names of methods are compared (--names)."
        )
    dataset = published_data_set(comparison.dataset)
    columns, cells = ["method"], []
    for metric, title in _our_metrics(comparison):
        estimates = [metric.of(method) for method in comparison.methods]
        columns.append(title)
        intervals = [one.interval for one in estimates]
        cells.append(_column([one.value for one in estimates], metric.digits, metric.higher_is_better, intervals))
    for name, arrow, digits in (("DSC", "↑", 3), ("HD", "↓", 2), ("ECE", "↓", 3), ("CECE", "↓", 3)):
        values = [math.nan if method is None else _value(dataset, method, name) for method in theirs]
        columns.append(f"the paper's {name}{' (pixels)' if name == 'HD' else ''} {arrow}")
        cells.append(_column(values, digits, name == "DSC", [NO_INTERVAL] * len(values)))
    return Table(
        f"Beside the paper: {comparison.dataset}" if comparison.dataset else "Beside the paper",
        _note(dataset),
        columns,
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.names)],
    )


def _our_metrics(comparison: Comparison) -> list[tuple[Metric, str]]:
    metrics = [(DICE, "Dice ↑")]
    if comparison.has_surface:
        metrics.append((Metric("HD95_voxels", digits=2), "HD95 (voxels) ↓"))
    if "foreground" in comparison.voxels:
        metrics += [(Metric(name, "foreground"), f"{name} foreground ↓") for name in ("ECE", "CECE")]
    return metrics


def _value(dataset: str | None, method: str, metric: str) -> float:
    paper = published()
    return paper.mean(method, metric) if dataset is None else paper.value(dataset, method, metric)


def _note(dataset: str | None) -> str:
    paper = published()
    which = ", ".join(_DATA_SETS)
    what = f"those on {dataset}" if dataset else f"means of its data sets, {which}, which this one is not"
    text = (
        f"The paper's columns are no results of ours, but published values (Murugesan et al., {paper.journal} "
        f"{paper.year}, tables 1 to 4): {what}. They are means over the cases of its own split, of 2D networks trained "
        "on slices for 100 epochs. Compare the order of the methods and how far they are apart, not the values. –: not "
        "in its tables. Our columns are means over cases, with 95 % bootstrap intervals."
    )
    if dataset == "BraTS":
        text += " The paper's DSC and HD are of ET, TC and WT, put together from four exclusive classes."
    return text


def _column(values: list[float], digits: int, higher_is_better: bool, intervals: list[Interval]) -> list[Cell]:
    """Cells, the best and the second of those that are known marked."""
    order = sorted({value for value in values if not math.isnan(value)}, reverse=higher_is_better)
    marks: dict[float, Mark] = dict(zip(order, ("best", "second"), strict=False)) if len(values) > 1 else {}
    return [
        Cell(value, digits, interval=interval, mark=marks.get(value, ""))
        for value, interval in zip(values, intervals, strict=True)
    ]
