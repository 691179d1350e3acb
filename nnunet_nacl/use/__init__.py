"""What the confidences are good for: which cases to look at, volumes, guarantees, better segmentations, ensembles."""

from nnunet_nacl.use._conformal import fit_dice, fit_volume, recall_threshold
from nnunet_nacl.use._decode import RecallThresholds, decode_folder
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask, expected_dice
from nnunet_nacl.use._fit import ReviewFit, fit_review
from nnunet_nacl.use._judging import ALL, Judged, Judgement, RiskCoverage, VolumeJudgement, judge_volumes, risk_coverage
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._members import combine_members
from nnunet_nacl.use._pictures import image_layer, outline, window_around
from nnunet_nacl.use._quantities import StructureSums
from nnunet_nacl.use._review import REVIEW_NAME, Review, read_judged, review_folder

__all__ = [
    "ALL",
    "REVIEW_NAME",
    "Judged",
    "Judgement",
    "RecallThresholds",
    "Review",
    "ReviewFit",
    "RiskCoverage",
    "StructureSums",
    "VolumeJudgement",
    "combine_members",
    "decode_folder",
    "dice_optimal_labels",
    "dice_optimal_mask",
    "expected_dice",
    "fit_dice",
    "fit_review",
    "fit_volume",
    "image_layer",
    "judge_volumes",
    "outline",
    "read_judged",
    "recall_threshold",
    "review_folder",
    "risk_coverage",
    "window_around",
    "write_maps",
]
