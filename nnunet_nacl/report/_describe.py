"""What the figures show, in words, for those who cannot see them."""

import numpy as np

from nnunet_nacl.report._ranking import Ranking
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._slices import CaseSlice
from nnunet_nacl.report._tradeoff import Tradeoff


def describe_reliability(curve: Reliability, voxels: str) -> str:
    """What a reliability diagram shows."""
    what = f" for {curve.what}" if curve.what else ""
    if not curve.share.any():
        return f"Reliability diagram of {curve.name}{what} over the {voxels}: no voxels."
    fullest = int(curve.share.argmax())
    return (
        f"Reliability diagram of {curve.name}{what} over the {voxels}: pooled ECE {curve.error:.3f}. The fullest bin "
        f"holds {100 * curve.share[fullest]:.0f} % of the voxels, at confidence {curve.confidence[fullest]:.2f} and "
        f"accuracy {curve.accuracy[fullest]:.2f}."
    )


def describe_classes(curves: list[Reliability], voxels: str) -> str:
    """What the reliability curves of a class show."""
    return f"Reliability curves of the probability of {curves[0].what} over the {voxels}. Pooled ECE: " + _listed(
        {curve.name: curve.error for curve in curves}
    )


def describe_tradeoff(data: Tradeoff, kind: str) -> str:
    """What a scatter or radar plot shows."""
    pairs = zip(data.names, data.dice, data.error, strict=True)
    figures = "; ".join(
        f"{name}: Dice {_number(dice)}, {data.error_name} {_number(error)}" for name, dice, error in pairs
    )
    return f"{kind} of Dice against {data.error_name}. {figures}."


def describe_ranking(data: Ranking) -> str:
    """What a heat map of ranks shows."""
    order = np.argsort(data.overall, kind="stable")
    return f"Overall {data.scheme}, best first: " + "; ".join(
        f"{data.methods[one]}: {data.overall[one]:.4g}, first in {100 * data.stability[one, 0]:.0f} % of resamples"
        for one in order
    )


def describe_case(data: CaseSlice, errors: dict[str, float]) -> str:
    """What the pictures of a case show."""
    return (
        f"Slice {data.number + 1} of {data.num_slices} of case {data.case}: image, reference, and for each method "
        f"segmentation, map of confidence and reliability curve. ECE: {_listed(errors)}"
    )


def _listed(figures: dict[str, float]) -> str:
    return "; ".join(f"{name}: {_number(value)}" for name, value in figures.items()) + "."


def _number(value: float) -> str:
    return "not defined" if np.isnan(value) else f"{value:.3f}"
