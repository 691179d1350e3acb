"""What results of one data set share, and results reduced to it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnunet_nacl.evaluation import CalibrationTables, Case, CaseResult, FolderResult, Region, Voxels
from nnunet_nacl.metrics import BinCounts

_NAMED = 5  # how many cases a note names


def class_name(result: FolderResult, structure: int | Region) -> str:
    """What ``dataset.json`` calls a label or region."""
    for name, value in result.settings["labels"].items():
        labels = (value,) if isinstance(value, int) else tuple(value)
        if labels == ((structure,) if isinstance(structure, int) else structure):
            return str(name)
    return str(structure)


def shared_structures(results: Mapping[str, FolderResult], notes: list[str]) -> list[int | Region]:
    """Labels or regions that have the same name and meaning in all results; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    found = {
        name: {structure: class_name(result, structure) for structure in result.names}
        for name, result in results.items()
    }
    for name, structures in found.items():
        if not structures:
            reasons = "; ".join(f"{one.case}: {one.reason}" for one in results[name].skipped[:1])
            raise ValueError(f"{name} has no evaluated case{f' ({reasons})' if reasons else ''}.")
    first, *others = found.values()
    has_regions = any(isinstance(one, tuple) for one in first)
    shared = [one for one, called in first.items() if all(other.get(one) == called for other in others)]
    shown = "; ".join(f"{name}: {_described(structures)}" for name, structures in found.items())
    if not shared:
        raise ValueError(f"the methods share no structure ({shown}).")
    if any(len(structures) != len(shared) for structures in found.values()):
        notes.append(
            f"The methods know different structures ({shown}). Those that all share are compared."
            if has_regions
            else f"The methods know different structures ({shown}). Dice and HD95 are over those that all share, "
            "CECE over their probabilities; which voxels count, ECE and the further figures are each method's own, and "
            "so not quite comparable."
        )
    return shared


def _described(structures: Mapping[int | Region, str]) -> str:
    labels = {
        one: f"label {one}" if isinstance(one, int) else f"labels {'+'.join(map(str, one))}" for one in structures
    }
    return ", ".join(f"{name} ({labels[one]})" for one, name in structures.items())


def coarsest_bins(results: Mapping[str, FolderResult], notes: list[str]) -> int:
    """The number of bins whose edges all results have; notes it if they have different ones.

    Raises:
        ValueError: they share no edge but 0 and 1.
    """
    counts = {name: int(result.settings["num_bins"]) for name, result in results.items()}
    shared = math.gcd(*counts.values())
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        if shared == 1:
            raise ValueError(f"the methods share no bin edges ({shown} bins); evaluate with the same --bins.")
        notes.append(f"The methods were evaluated with different numbers of bins ({shown}); compared with {shared}.")
    return shared


def shared_cases(results: Mapping[str, FolderResult], voxels: Sequence[Voxels], notes: list[str]) -> list[str]:
    """Cases that all results have, with the same reference; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    by_name = {name: {case.name: case for case in result.cases} for name, result in results.items()}
    every = sorted({case for cases in by_name.values() for case in cases})
    shared = [case for case in every if all(case in cases for cases in by_name.values())]
    if not shared:
        shown = "; ".join(f"{name}: {_some(list(cases))}" for name, cases in by_name.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if len(shared) < len(every):
        left_out = [case for case in every if case not in set(shared)]
        notes.append(
            f"{len(shared)} of {len(every)} cases are compared; left out, since not every method has them: "
            f"{_some(left_out)}."
        )
    for name, result in results.items():
        if result.skipped:
            notes.append(
                f"{name}: {len(result.skipped)} case{'' if len(result.skipped) == 1 else 's'} could not be evaluated: "
                f"{_some([entry.case for entry in result.skipped])}."
            )
    alike = [case for case in shared if _same_reference([cases[case] for cases in by_name.values()], results, voxels)]
    unlike = [case for case in shared if case not in set(alike)]
    if not alike:
        raise ValueError(f"the methods share no case: their references differ in {_some(unlike)}.")
    if unlike:
        notes.append(f"Left out, since the methods' references differ: {_some(unlike)}.")
    return alike


def _same_reference(cases: Sequence[Case], results: Mapping[str, FolderResult], voxels: Sequence[Voxels]) -> bool:
    """Whether each structure has as many voxels in all; True where the tables cannot tell.

    A class's hits are the voxels that have its label, so in a voxel set that holds all of the structure they are its
    size, whatever was predicted. The reference protocol drops some, and structures must mean the same.
    """
    whole = [chosen for chosen in voxels if chosen not in {"near", "boundary"}]
    dropped = any(result.settings["protocol"] == "reference" for result in results.values())
    labels = [result.settings["labels"] for result in results.values()]
    if not whole or dropped or any(one != labels[0] for one in labels):
        return True
    first, *others = [case.result.calibration[whole[0]].classwise.hits.sum(-1) for case in cases]
    kept = slice(None) if isinstance(next(iter(cases[0].result.segmentation)), tuple) else slice(1, None)
    return all(np.array_equal(first[kept], other[kept]) for other in others)


def _some(cases: Sequence[str]) -> str:
    named = ", ".join(cases[:_NAMED])
    return f"{named} and {len(cases) - _NAMED} more" if len(cases) > _NAMED else named or "none"


def unlike_settings(results: Mapping[str, FolderResult]) -> list[str]:
    """A note for each setting that changes figures and is not the same in all results."""
    notes = []
    for setting in ("protocol", "margin_mm", "boundary_mm", "tolerance_mm"):
        # What was evaluated before there was the voxel set near has no margin_mm.
        values = {name: result.settings[setting] for name, result in results.items() if setting in result.settings}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(f"The methods were evaluated with different --{setting} ({shown}): not quite comparable.")
    for name, result in results.items():
        if result.settings["part"] is not None:
            part, count = result.settings["part"]
            notes.append(f"{name}: only part {part} of {count} of the cases was evaluated.")
    return notes


def restrict(
    result: FolderResult,
    cases: Sequence[str],
    voxels: Sequence[Voxels],
    structures: Sequence[int | Region],
    num_bins: int,
) -> FolderResult:
    """A result reduced to some cases (in that order), voxel sets and structures, with bins joined to ``num_bins``."""
    by_name = {case.name: case for case in result.cases}
    names = result.names
    positions = [names.index(structure) for structure in structures]
    has_regions = isinstance(names[0], tuple)
    channels = positions if has_regions else [0, *(position + 1 for position in positions)]

    def reduced(tables: CalibrationTables) -> CalibrationTables:
        rows = positions if has_regions else [0]  # of what is there once, or once a region

        def binned(table: BinCounts | None, chosen: Sequence[int]) -> Any:
            return None if table is None else _join_bins(_take(table, chosen), num_bins)

        return replace(
            tables,
            top=binned(tables.top, rows),
            classwise=binned(tables.classwise, channels),
            fine=_take(tables.fine, rows),
            nll=tables.nll[rows],
            brier=tables.brier[rows],
            num_classes=sum(channel < tables.num_classes for channel in channels),
            expected_top=binned(tables.expected_top, rows),
            expected_classwise=binned(tables.expected_classwise, channels),
            image_voxels=None if tables.image_voxels is None else tables.image_voxels[rows],
        )

    def case_of(name: str) -> Case:
        found = by_name[name].result
        return replace(
            by_name[name],
            result=CaseResult(
                {chosen: reduced(found.calibration[chosen]) for chosen in voxels},
                {structure: found.segmentation[structure] for structure in structures},
            ),
        )

    settings = {**result.settings, "voxels": list(voxels), "num_bins": num_bins}
    return replace(result, cases=[case_of(name) for name in cases], settings=settings)


def _take(tables: BinCounts, rows: Sequence[int]) -> BinCounts:
    chosen = list(rows)
    return BinCounts(tables.count[chosen], tables.hits[chosen], tables.confidence[chosen], tables.unbinned[chosen])


def _join_bins(tables: BinCounts, num_bins: int) -> BinCounts:
    shape = (*tables.count.shape[:-1], num_bins, -1)
    return BinCounts(
        tables.count.reshape(shape).sum(-1),
        tables.hits.reshape(shape).sum(-1),
        tables.confidence.reshape(shape).sum(-1),
        tables.unbinned,
    )
