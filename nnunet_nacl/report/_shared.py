"""What results of several methods share, and results reduced to that."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnunet_nacl.evaluation import CalibrationTables, Case, CaseResult, FolderResult, Origin, Voxels
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.nnunet import Region
from nnunet_nacl.report._wording import first_few

Label = int | Region
Results = Mapping[str, FolderResult]

_WITHOUT_SURFACE = ("Dice", "Missed", "Spurious")


def shared_structures(results: Results, origins: Mapping[str, Origin], notes: list[str]) -> list[Label]:
    """Labels or regions that have the same name and meaning in all results; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    by_method = {
        name: {one: origins[name].labels.name_of(one) for one in result.names} for name, result in results.items()
    }
    for name, structures in by_method.items():
        if not structures:
            reasons = "; ".join(f"{one.case}: {one.reason.removesuffix('.')}" for one in results[name].skipped[:1])
            raise ValueError(f"{name} has no evaluated case{f' ({reasons})' if reasons else ''}.")
    first, *others = by_method.values()
    shared = [one for one, called in first.items() if all(other.get(one) == called for other in others)]
    shown = "; ".join(f"{name}: {_described(structures)}" for name, structures in by_method.items())
    if not shared:
        raise ValueError(f"the methods share no structure ({shown}).")
    if any(len(structures) != len(shared) for structures in by_method.values()):
        notes.append(
            f"The methods know different structures ({shown}). Those that all share are compared."
            if not next(iter(origins.values())).labels.has_background
            else f"The methods know different structures ({shown}). Dice and HD95 are over those that all share, "
            "CECE over their probabilities; which voxels count, ECE and the further metrics are each method's own, and "
            "so not quite comparable."
        )
    return shared


def _described(structures: Mapping[Label, str]) -> str:
    labels = {
        one: f"label {one}" if isinstance(one, int) else f"labels {'+'.join(map(str, one))}" for one in structures
    }
    return ", ".join(f"{name} ({labels[one]})" for one, name in structures.items())


def coarsest_bins(origins: Mapping[str, Origin], notes: list[str]) -> int:
    """The largest number of bins whose edges all results have; notes it if their numbers of bins differ.

    Raises:
        ValueError: they share no edge but 0 and 1.
    """
    counts = {name: origin.settings.num_bins for name, origin in origins.items()}
    shared = math.gcd(*counts.values())
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        if shared == 1:
            raise ValueError(f"the methods share no bin edges ({shown} bins); evaluate with the same --bins.")
        notes.append(f"The methods were evaluated with different numbers of bins ({shown}); compared with {shared}.")
    return shared


def shared_cases(
    results: Results, origins: Mapping[str, Origin], voxels: Sequence[Voxels], notes: list[str]
) -> list[str]:
    """Cases that all results have, with the same ground truth; notes those that are left out.

    Raises:
        ValueError: there is none.
    """
    by_method = {name: {case.name: case for case in result.cases} for name, result in results.items()}
    every = sorted({case for cases in by_method.values() for case in cases})
    shared = [case for case in every if all(case in cases for cases in by_method.values())]
    if not shared:
        shown = "; ".join(f"{name}: {first_few(list(cases))}" for name, cases in by_method.items())
        raise ValueError(f"the methods share no case ({shown}).")
    if len(shared) < len(every):
        left_out = [case for case in every if case not in set(shared)]
        notes.append(
            f"{len(shared)} of {len(every)} cases are compared. Left out, since not every method has them: "
            f"{first_few(left_out)}."
        )
    for name, result in results.items():
        if result.skipped:
            notes.append(
                f"{name}: {len(result.skipped)} case{'' if len(result.skipped) == 1 else 's'} could not be evaluated: "
                f"{first_few([entry.case for entry in result.skipped])}."
            )
    alike = [
        case for case in shared if _same_ground_truth([cases[case] for cases in by_method.values()], origins, voxels)
    ]
    different = [case for case in shared if case not in set(alike)]
    if not alike:
        raise ValueError(f"the methods share no case: their ground truth differs in {first_few(different)}.")
    if different:
        notes.append(f"Left out, since the methods' ground truth differs: {first_few(different)}.")
    return alike


def _same_ground_truth(cases: Sequence[Case], origins: Mapping[str, Origin], voxels: Sequence[Voxels]) -> bool:
    """Whether each structure has as many voxels in all; True where the tables cannot tell.

    A class's hits are the voxels that have its label, so in a voxel set that holds all of the structure they are its
    size, whatever was predicted. That needs tables of all voxels, and structures that mean the same.
    """
    whole = [one for one in voxels if one != "near"]
    first, *others = origins.values()
    can_tell = all(one.settings.counts_all_voxels for one in origins.values()) and all(
        other.labels.labels == first.labels.labels for other in others
    )
    if not whole or not can_tell:
        return True
    tables = [case.result.calibration[whole[0]] for case in cases]
    structures = slice(1 if tables[0].has_background else 0, None)
    sizes, *other_sizes = [one.classwise.hits.sum(-1)[structures] for one in tables]
    return all(np.array_equal(sizes, other) for other in other_sizes)


def different_settings(origins: Mapping[str, Origin]) -> list[str]:
    """A note for each setting that changes values and is not the same in all results."""
    notes = []
    for setting in ("protocol", "margin_mm", "tolerance_mm"):
        values = {
            name: getattr(origin.settings, setting)
            for name, origin in origins.items()
            if setting != "margin_mm" or origin.counting > 1  # before there was the voxel set near
        }
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value}" for name, value in values.items())
            notes.append(f"The methods were evaluated with different --{setting} ({shown}): not quite comparable.")
    for name, origin in origins.items():
        if origin.part is not None:
            part, count = origin.part
            notes.append(f"{name}: only part {part} of {count} of the cases was evaluated.")
    return notes


def restricted(
    result: FolderResult, cases: Sequence[str], voxels: Sequence[Voxels], structures: Sequence[Label], num_bins: int
) -> FolderResult:
    """A result reduced to some cases (in that order), voxel sets and structures, with bins joined to ``num_bins``."""
    by_name = {case.name: case for case in result.cases}
    positions = [result.names.index(structure) for structure in structures]
    # Rows of the class-wise tables, and of what is there once, or once for each region.
    channels = positions if not result.labels.has_background else [0, *(position + 1 for position in positions)]
    rows = positions if not result.labels.has_background else [0]

    def joined(table: BinCounts | None, chosen: list[int]) -> Any:
        return None if table is None else _join_bins(table[chosen], num_bins)

    def reduced(tables: CalibrationTables) -> CalibrationTables:
        return replace(
            tables,
            top=joined(tables.top, rows),
            classwise=joined(tables.classwise, channels),
            fine=tables.fine[rows],
            nll=tables.nll[rows],
            brier=tables.brier[rows],
            num_classes=sum(channel < tables.num_classes for channel in channels),
            expected_top=joined(tables.expected_top, rows),
            expected_classwise=joined(tables.expected_classwise, channels),
            image_voxels=None if tables.image_voxels is None else tables.image_voxels[rows],
        )

    def reduced_case(case: Case) -> Case:
        calibration = {one: reduced(case.result.calibration[one]) for one in voxels}
        segmentation = {one: case.result.segmentation[one] for one in structures}
        return replace(case, result=CaseResult(calibration, segmentation))

    settings = replace(result.settings, voxels=tuple(voxels), num_bins=num_bins)
    return replace(
        result,
        cases=[reduced_case(by_name[name]) for name in cases],
        origin=replace(result.origin, settings=settings),
    )


def _join_bins(tables: BinCounts, num_bins: int) -> BinCounts:
    shape = (*tables.count.shape[:-1], num_bins, -1)
    return BinCounts(
        tables.count.reshape(shape).sum(-1),
        tables.hits.reshape(shape).sum(-1),
        tables.confidence.reshape(shape).sum(-1),
        tables.unbinned,
    )


def without_surface(result: FolderResult) -> FolderResult:
    cases = []
    for case in result.cases:
        kept = {name: {m: values[m] for m in _WITHOUT_SURFACE} for name, values in case.result.segmentation.items()}
        cases.append(replace(case, result=replace(case.result, segmentation=kept)))
    return replace(result, cases=cases)
