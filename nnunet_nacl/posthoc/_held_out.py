"""What calibration changes: NLL and ECE before and after, on the sample and on cases held out from the fit."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import BinCounts, expected_calibration_error, nll_sum, region_top_label
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import Calibrator, at_voxels, calibrate, fit_method
from nnunet_nacl.posthoc._sample import Sample

NUM_PARTS = 5
Change = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Tally:
    """What NLL and ECE of voxels are computed from, as the evaluation does; tallies of parts add up.

    Attributes:
        nll: () or, for regions, (R,), summed over voxels.
        bins: of the confidence in the most probable class, or for each region whether the voxel is in it.
    """

    nll: NDArray[np.float64]
    bins: BinCounts

    @classmethod
    def of(cls, probabilities: NDArray[np.floating], truth: NDArray[Any]) -> "Tally":
        """Count voxels.

        Args:
            probabilities: (C, n).
            truth: (n,) classes or bool (R, n).
        """
        if truth.ndim == 1:
            chosen = np.take_along_axis(probabilities, truth[None].astype(np.intp), 0)[0]
            bins = BinCounts.of(probabilities.max(0), probabilities.argmax(0) == truth)
            return cls(np.array(nll_sum(chosen)), bins)
        exact = probabilities.astype(np.float64)
        nll = [nll_sum(np.where(inside, p, 1 - p)) for p, inside in zip(exact, truth, strict=True)]
        each = [BinCounts.of(*region_top_label(p, inside)) for p, inside in zip(exact, truth, strict=True)]
        return cls(np.array(nll), BinCounts.stack(each))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.nll + other.nll, self.bins + other.bins)

    def figures(self) -> dict[str, float]:
        """NLL and ECE: 15 bins, p of at least 1.19e-7 in the NLL; means over regions."""
        return {
            "NLL": float(np.mean(self.nll / self.bins.total)),
            "ECE": float(np.mean(expected_calibration_error(self.bins))),
        }


def tallies(calibrator: Calibrator | LocalTemperature, sample: Sample) -> dict[str, Tally]:
    """Of a sample before and after."""
    after = calibrate(at_voxels(calibrator, sample.surroundings), sample.probabilities, regions=sample.truth.ndim > 1)
    return {"before": Tally.of(sample.probabilities, sample.truth), "after": Tally.of(after, sample.truth)}


def change(calibrator: Calibrator | LocalTemperature, sample: Sample) -> Change:
    """The figures of a sample before and after."""
    return {when: tally.figures() for when, tally in tallies(calibrator, sample).items()}


def held_out_figures(method: str, samples: Mapping[str, Sample], parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Fit on all parts but one, and look at that one.

    Args:
        method: one of ``METHODS``.
        samples: by case.
        parts: cases by name of the part.

    Returns:
        ``parts``, a list of entries with ``part``, ``cases``, ``voxels``, and either ``before`` and ``after`` or
        ``error``; and ``before`` and ``after`` of all voxels of those that have them, pooled, if any has.
    """
    entries: list[dict[str, Any]] = []
    pooled: dict[str, Tally] = {}
    for name, cases in parts.items():
        inside = [samples[case] for case in cases if samples[case].size]
        others = [samples[case] for other in parts if other != name for case in parts[other]]
        voxels = sum(sample.size for sample in inside)
        entry: dict[str, Any] = {"part": name, "cases": sorted(cases), "voxels": voxels}
        if not voxels or not any(sample.size for sample in others):
            entry["error"] = "no voxel in it." if not voxels else "no voxel in the others."
        else:
            try:
                calibrator = _fit(method, Sample.join(others))
            except ValueError as error:
                entry["error"] = f"without it, {error}"
            else:
                of_part = tallies(calibrator, Sample.join(inside))
                entry |= {when: tally.figures() for when, tally in of_part.items()}
                pooled = {when: pooled[when] + tally if pooled else tally for when, tally in of_part.items()}
        entries.append(entry)
    return {"parts": entries, **{when: tally.figures() for when, tally in pooled.items()}}


def bias_of(method: str, biased: Calibrator | LocalTemperature, near: Sample) -> dict[str, Any]:
    """What a set that voxels are chosen for by their label has done: the fit beside one to near.

    Args:
        method: one of ``METHODS``.
        biased: fitted to the other set.
        near: the voxels of near of the same cases.

    Returns:
        ``parameters`` fitted to near and ``NLL`` over near: ``before``, of ``this`` fit, and of the one to ``near``;
        or the ``error`` for which there is none.
    """
    try:
        honest = _fit(method, near)
    except ValueError as error:
        return {"error": str(error)}
    changes = change(biased, near), change(honest, near)
    nll = {
        "before": changes[0]["before"]["NLL"],
        "this": changes[0]["after"]["NLL"],
        "near": changes[1]["after"]["NLL"],
    }
    return {"parameters": honest.parameters(), "NLL": nll}


def _fit(method: str, sample: Sample) -> Calibrator | LocalTemperature:
    return fit_method(method, sample.probabilities, sample.truth, sample.surroundings)


def split_cases(cases: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Five parts of nearly one size, or as many as there are cases; drawn by their names."""
    drawn = sorted(cases, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    parts = min(NUM_PARTS, len(drawn))
    return {f"part {number + 1} of {parts}": drawn[number::parts] for number in range(parts)}
