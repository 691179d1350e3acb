"""What the confidences are good for: which cases to look at, volumes, guarantees, better segmentations, ensembles."""

from nnunet_nacl.use._decode import decode_folder
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._fit import ReviewFit, fit_review
from nnunet_nacl.use._judging import ALL, Judged, Judgement, RiskCoverage, VolumeJudgement, judge_volumes, risk_coverage
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._members import combine_members
from nnunet_nacl.use._pictures import image_layer, outline, window_around
from nnunet_nacl.use._review import REVIEW_NAME, read_judged, review_folder

__all__ = [
    "ALL",
    "REVIEW_NAME",
    "Judged",
    "Judgement",
    "ReviewFit",
    "RiskCoverage",
    "VolumeJudgement",
    "combine_members",
    "decode_folder",
    "dice_optimal_labels",
    "dice_optimal_mask",
    "fit_review",
    "image_layer",
    "judge_volumes",
    "outline",
    "read_judged",
    "review_folder",
    "risk_coverage",
    "window_around",
    "write_maps",
]
