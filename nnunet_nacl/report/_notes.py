"""What to know before believing the numbers: voxel sets and metrics that are missing."""

import numpy as np

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import POOLED, CaseMeans, compared_metrics
from nnunet_nacl.report._results import evaluate_again_command
from nnunet_nacl.report._wording import listed


def missing_notes(comparison: Comparison) -> list[str]:
    """A note if the voxel sets that methods should be judged by were not evaluated, with the commands that do it."""
    if not (missing := [voxels for voxels in POOLED if voxels not in comparison.voxels]):
        return []
    lacking = [one for one in comparison.methods if set(missing) - set(one.origin.settings.voxels)]
    names = listed([one.name for one in lacking])
    sets = f"voxel set{'s' if len(missing) > 1 else ''} {listed(missing)}"
    biased = (
        " The verdict rests on voxels chosen by their label, where an under-confident model can score better than a "
        "perfectly calibrated one."
        if len(missing) > 1
        else ""
    )
    commands = "; ".join(evaluate_again_command(one.result, one.origin) for one in lacking)
    verb = "was" if len(lacking) == 1 else "were"
    return [f"{names} {verb} not evaluated over the {sets}.{biased} To evaluate again: {commands}"]


def undefined_notes(comparison: Comparison) -> list[str]:
    """A note for metrics that are not defined for all methods in the same cases and structures."""
    titles: dict[str, list[str]] = {}  # how many values each method has -> the metrics of which that is so
    for metric in compared_metrics(comparison):
        estimates = {method.name: metric.of(method) for method in comparison.methods}
        known = {name: ~np.isnan(one.values) for name, one in estimates.items() if isinstance(one, CaseMeans)}
        first = next(iter(known.values()), None)
        if first is not None and any(not np.array_equal(first, other) for other in known.values()):
            counts = ", ".join(f"{name}: {int(one.sum())}" for name, one in known.items())
            titles.setdefault(f"{counts} of {first.size} values", []).append(metric.title)
    return [
        f"{listed(metrics)} {'is' if len(metrics) == 1 else 'are'} not defined everywhere for every method ({counts}). "
        "Means are over each method's own values; differences and tests are over those that both have."
        for counts, metrics in titles.items()
    ]
