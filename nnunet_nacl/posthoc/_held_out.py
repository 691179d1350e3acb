"""What calibration changes: NLL and ECE before and after, on the sample and on cases held out from the fit."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import BinCounts, expected_calibration_error, nll_sum
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import Calibrator, at_voxels, calibrate, fit_method
from nnunet_nacl.posthoc._sample import Sample

NUM_PARTS = 5
Change = dict[str, dict[str, float]]


def figures(probabilities: NDArray[np.floating], truth: NDArray[Any]) -> dict[str, float]:
    """NLL and ECE as the evaluation has them: 15 bins, p of at least 1.19e-7 in the NLL; means over regions.

    Args:
        probabilities: (C, n).
        truth: (n,) classes or bool (R, n).
    """
    if truth.ndim == 1:
        chosen = np.take_along_axis(probabilities, truth[None].astype(np.intp), 0)[0]
        bins = BinCounts.of(probabilities.max(0), probabilities.argmax(0) == truth)
        return {"NLL": nll_sum(chosen) / truth.size, "ECE": float(expected_calibration_error(bins))}
    each = []
    for p, inside in zip(probabilities.astype(np.float64), truth, strict=True):
        bins = BinCounts.of(np.maximum(p, 1 - p), (p > 0.5) == inside)
        each.append((nll_sum(np.where(inside, p, 1 - p)) / p.size, float(expected_calibration_error(bins))))
    return {"NLL": float(np.mean([nll for nll, _ in each])), "ECE": float(np.mean([ece for _, ece in each]))}


def change(calibrator: Calibrator | LocalTemperature, sample: Sample) -> Change:
    """The figures of a sample before and after."""
    after = calibrate(at_voxels(calibrator, sample.surroundings), sample.probabilities, regions=sample.truth.ndim > 1)
    return {"before": figures(sample.probabilities, sample.truth), "after": figures(after, sample.truth)}


def held_out_figures(method: str, samples: Mapping[str, Sample], parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Fit on all parts but one, and look at that one.

    Args:
        method: one of ``METHODS``.
        samples: by case.
        parts: cases by name of the part.

    Returns:
        ``parts``, a list of entries with ``part``, ``cases``, ``voxels``, and either ``before`` and ``after`` or
        ``error``; and ``before`` and ``after`` of all voxels of those that have them, if any has.
    """
    entries: list[dict[str, Any]] = []
    for name, cases in parts.items():
        inside = [samples[case] for case in cases if samples[case].size]
        others = [samples[case] for other in parts if other != name for case in parts[other]]
        voxels = sum(sample.size for sample in inside)
        entry: dict[str, Any] = {"part": name, "cases": sorted(cases), "voxels": voxels}
        if not voxels or not any(sample.size for sample in others):
            entry["error"] = "no voxel in it." if not voxels else "no voxel in the others."
        else:
            entry |= _change_of_part(method, Sample.join(others), Sample.join(inside))
        entries.append(entry)
    done = [entry for entry in entries if "error" not in entry]
    result: dict[str, Any] = {"parts": entries}
    if done:
        weights = [entry["voxels"] for entry in done]
        result |= {
            when: {
                metric: float(np.average([entry[when][metric] for entry in done], weights=weights))
                for metric in ("NLL", "ECE")
            }
            for when in ("before", "after")
        }
    return result


def _change_of_part(method: str, others: Sample, part: Sample) -> dict[str, Any]:
    try:
        calibrator = fit_method(method, others.probabilities, others.truth, others.surroundings)
    except ValueError as error:
        return {"error": f"without it, {error}"}
    return dict(change(calibrator, part))


def split_cases(cases: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Five parts of nearly one size, or as many as there are cases; drawn by their names."""
    drawn = sorted(cases, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    parts = min(NUM_PARTS, len(drawn))
    return {f"part {number + 1} of {parts}": drawn[number::parts] for number in range(parts)}
