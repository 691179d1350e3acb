"""Uses of confidences: cases to look at, volumes, guarantees, other segmentations, maps."""

from nnunet_nacl.use._conformal import (
    TooFewCasesError,
    fewest_cases,
    fit_dice,
    fit_volume,
    recall_threshold,
)
from nnunet_nacl.use._doubt import most_doubtful
from nnunet_nacl.use._fit import ReviewFit, fit_review
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._review import (
    REVIEW_NAME,
    mean_pairwise_dice,
    ranked_cases,
    review_folder,
)
from nnunet_nacl.use._structures import (
    judge_structures,
    judgement_table,
    risk_coverage_area,
)
from nnunet_nacl.use._thresholds import decode_folder

__all__ = [
    "REVIEW_NAME",
    "ReviewFit",
    "TooFewCasesError",
    "decode_folder",
    "fewest_cases",
    "fit_dice",
    "fit_review",
    "fit_volume",
    "judge_structures",
    "judgement_table",
    "mean_pairwise_dice",
    "most_doubtful",
    "ranked_cases",
    "recall_threshold",
    "review_folder",
    "risk_coverage_area",
    "write_maps",
]
