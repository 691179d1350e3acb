"""Results put together: the parts of a folder, or the folds of a method."""

import glob
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from nnunet_nacl.evaluation._result import FolderResult, bins_file


def merge_results(results: Sequence[FolderResult]) -> FolderResult:
    """Put parts, or folders of one data set, together; the same numbers as if evaluated at once.

    A case that one of them has evaluated and another could not is not skipped.

    Raises:
        ValueError: nothing to merge, different settings or labels, tables that were counted in different ways, missing
            parts, or a case that is in two.
    """
    if not results:
        raise ValueError("nothing to merge.")
    origins = [result.origin for result in results]
    for origin in origins[1:]:
        difference = origins[0].difference(origin)
        if difference is not None:
            raise ValueError(f"parts differ in {difference}.")
    parts = sorted(origin.part for origin in origins if origin.part is not None)
    if parts and parts != [(number, len(origins)) for number in range(len(origins))]:
        have = ", ".join(f"{number} of {count}" for number, count in parts)
        raise ValueError(f"expected all parts of one folder, numbered from 0, and nothing else; got {have}.")
    cases = sorted((case for result in results for case in result.cases), key=lambda case: case.name)
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(f"the case {case.name} is in two parts.")
    evaluated = {case.name for case in cases}
    skipped = {entry.case: entry for result in results for entry in result.skipped if entry.case not in evaluated}
    places = tuple(dict.fromkeys(place for origin in origins for place in origin.places))
    origin = replace(origins[0], places=places, part=None)
    return FolderResult(cases, [skipped[case] for case in sorted(skipped)], origin)


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def read_summary_or_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if there is none of that name, those of the parts that were asked for by that name.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: a file is damaged, or something else.
    """
    summary = Path(summary)
    pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
    parts = [] if bins_file(summary).is_file() else sorted(summary.parent.glob(pattern))
    return [FolderResult.read(file) for file in parts or [summary]]
