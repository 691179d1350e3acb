"""What the confidences are good for: predicted Dice, volumes, doubt, agreement, better segmentations, guarantees."""

from nnunet_nacl.confidence._case import UNSURE, DoubtSums, StructureSums, class_entropy, region_entropy
from nnunet_nacl.confidence._conformal import (
    THRESHOLDS,
    DiceFit,
    MissedVoxels,
    VolumeFit,
    fit_dice,
    fit_volume,
    recall_threshold,
)
from nnunet_nacl.confidence._dice_optimal import (
    DiceOptimalLabels,
    DiceOptimalMask,
    dice_optimal_labels,
    dice_optimal_mask,
    expected_dice,
)
from nnunet_nacl.confidence._judging import (
    DiceJudgement,
    IntervalJudgement,
    RiskCoverage,
    VolumeJudgement,
    excess_area,
    judge_dice,
    judge_intervals,
    judge_volumes,
    risk_coverage,
)
from nnunet_nacl.confidence._members import MemberOverlap, mutual_information, region_mutual_information

__all__ = [
    "THRESHOLDS",
    "UNSURE",
    "DiceFit",
    "DiceJudgement",
    "DiceOptimalLabels",
    "DiceOptimalMask",
    "DoubtSums",
    "IntervalJudgement",
    "MemberOverlap",
    "MissedVoxels",
    "RiskCoverage",
    "StructureSums",
    "VolumeFit",
    "VolumeJudgement",
    "class_entropy",
    "dice_optimal_labels",
    "dice_optimal_mask",
    "excess_area",
    "expected_dice",
    "fit_dice",
    "fit_volume",
    "judge_dice",
    "judge_intervals",
    "judge_volumes",
    "mutual_information",
    "recall_threshold",
    "region_entropy",
    "region_mutual_information",
    "risk_coverage",
]
