"""What the confidences are good for: which cases to look at, volumes, guarantees, better segmentations, ensembles."""

from nnunet_nacl.use._conformal import (
    TooFewCasesError,
    fewest_cases,
    fit_dice,
    fit_volume,
    recall_threshold,
)
from nnunet_nacl.use._decode import decode_folder
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._doubt import most_doubtful
from nnunet_nacl.use._fit import ReviewFit, fit_review
from nnunet_nacl.use._judging import (
    JUDGEMENT_LABELS,
    Judgement,
    judge_outcomes,
    judge_structures,
    judgement_table,
    risk_coverage_area,
)
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._members import combine_members, mean_pairwise_dice
from nnunet_nacl.use._ranking import ranked_cases
from nnunet_nacl.use._review import REVIEW_NAME, read_outcomes, review_folder
from nnunet_nacl.use._structures import Outcome

__all__ = [
    "JUDGEMENT_LABELS",
    "REVIEW_NAME",
    "Judgement",
    "Outcome",
    "ReviewFit",
    "TooFewCasesError",
    "combine_members",
    "decode_folder",
    "dice_optimal_labels",
    "dice_optimal_mask",
    "fewest_cases",
    "fit_dice",
    "fit_review",
    "fit_volume",
    "judge_outcomes",
    "judge_structures",
    "judgement_table",
    "mean_pairwise_dice",
    "most_doubtful",
    "ranked_cases",
    "read_outcomes",
    "recall_threshold",
    "review_folder",
    "risk_coverage_area",
    "write_maps",
]
