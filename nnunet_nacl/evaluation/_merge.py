"""Results of parts or folders put together."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nnunet_nacl.evaluation._summary import FolderResult

PLACES = ("gt_folder", "pred_folder", "dataset_json", "plans", "part")
"""Settings that say where the files lie and which of them were taken, and change no case's figures."""


def dependencies(settings: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """What figures depend on beside their files: the settings and versions, but not where the files lie."""
    chosen = {key: value for key, value in settings.items() if key not in PLACES}
    packages = {key: value for key, value in versions.items() if key != "python"}
    return json.loads(json.dumps({**chosen, "versions": packages}))  # type: ignore[no-any-return]


def merge_results(results: Sequence[FolderResult]) -> FolderResult:
    """Put parts, or folders of one data set, together; the same figures as if evaluated at once.

    A case that one of them lacks a prediction for and another has evaluated is not skipped.

    Raises:
        ValueError: nothing to merge, different settings, labels or versions, missing parts, or a case that is in two.
    """
    if not results:
        raise ValueError("nothing to merge.")
    first = dependencies(results[0].settings, results[0].versions)
    for result in results[1:]:
        other = dependencies(result.settings, result.versions)
        for key in sorted(first.keys() | other.keys()):
            if first.get(key) != other.get(key):
                raise ValueError(f"parts differ in {key}: {first.get(key)!r} and {other.get(key)!r}.")
    _check_parts([result.settings["part"] for result in results])
    settings = {**results[0].settings, "part": None}
    for place in PLACES[:-1]:
        found = [result.settings[place] for result in results]
        settings[place] = found[0] if all(one == found[0] for one in found) else found
    cases = sorted((case for result in results for case in result.cases), key=lambda case: case.name)
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(f"the case {case.name} is in two parts.")
    evaluated = {case.name for case in cases}
    skipped = {
        (entry.case, entry.reason): entry
        for result in results
        for entry in result.skipped
        if not (entry.missing and entry.case in evaluated)
    }
    return FolderResult(cases, [skipped[key] for key in sorted(skipped)], settings, results[0].versions)


def _check_parts(parts: list[list[int] | None]) -> None:
    """Raise a ValueError unless parts of a folder are all there."""
    numbered = [part for part in parts if part is not None]
    if not numbered:
        return
    count = numbered[0][1]
    lacking = sorted(set(range(count)) - {number for number, _ in numbered})
    if lacking or len(numbered) < len(parts) or any(total != count for _, total in numbered):
        have = ", ".join("a whole folder" if part is None else f"{part[0]} of {part[1]}" for part in parts)
        raise ValueError(f"expected all of the {count} parts, numbered from 0, and nothing else; got {have}.")
