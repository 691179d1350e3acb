"""The paper's tables: ranks, and our values beside the published ones."""

from collections.abc import Sequence
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.paper.report._published import (
    DATA_SETS,
    published_data_set,
    published_method,
    published_value,
)
from nnunet_nacl.paper.report._ranks import SCHEMES, rank_by_scores, rank_methods, rank_table
from nnunet_nacl.report import (
    DICE,
    Column,
    Comparison,
    MakeTables,
    Metric,
    Table,
    metric_columns,
    paper_metrics,
    table_of_each,
)


def published_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Our means over cases, beside the paper's published values: for the data set, or the mean of its six."""
    theirs = [published_method(name) for name in comparison.names]
    dataset = published_data_set(comparison.dataset)
    voxels = voxels or "foreground"
    metrics = [DICE]
    if comparison.has_surface:
        metrics.append(Metric("HD95_voxels"))
    if voxels in comparison.voxels:
        metrics += paper_metrics(comparison, voxels)
    columns = metric_columns(comparison, metrics)
    for metric, unit, arrow, digits in (("DSC", "", "↑", 3), ("HD", " (pixels)", "↓", 2), ("ECE", "", "↓", 3),
                                        ("CECE", "", "↓", 3)):  # fmt: skip
        values = [published_value(method, metric, dataset) for method in theirs]
        columns.append(Column(f"the paper's {metric}{unit}", values, digits=digits, arrow=arrow))
    what = (
        f"those on {dataset}"
        if dataset
        else f"means of its data sets, {', '.join(DATA_SETS)}, not of this one"
    )
    note = (
        "The paper's columns are not our results but published values (Murugesan et al., Medical Image Analysis "
        f"2025, tables 1 to 4): {what}. They come from other splits, networks and lengths of training (of BraTS, "
        "from regions combined from classes): compare the order of the methods, not the values."
    )
    return Table("Beside the paper", comparison.dataset, note, comparison.names, columns)


def _ranks(comparisons: Sequence[Comparison], voxels: Voxels | None) -> list[Table]:
    ranking = rank_by_scores(comparisons, voxels)
    if ranking is None:
        raise ValueError(
            "ranks need the voxel sets near and image, which some summaries lack: evaluate again."
        )
    return [rank_table(ranking, comparisons)]


def _ranks_by_scheme(
    comparisons: Sequence[Comparison], voxels: Voxels | None, scheme: str
) -> list[Table]:
    return [rank_table(rank_methods(comparisons, scheme, voxels), comparisons)]


TABLES: dict[str, MakeTables] = {
    **report.TABLES,
    "published": table_of_each(published_table),
    "ranks": _ranks,
    **{scheme: partial(_ranks_by_scheme, scheme=scheme) for scheme in SCHEMES},
}
"""The report's tables and the paper's, for ``write_table``."""
