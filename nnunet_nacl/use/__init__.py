"""Uses of confidences: cases to look at, volumes, guarantees, other segmentations, maps."""

from nnunet_nacl.use._conformal import TooFewCasesError, fit_dice, fit_volume, recall_threshold
from nnunet_nacl.use._fit import ReviewFit, fit_review
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._review import review_folder
from nnunet_nacl.use._thresholds import decode_folder

__all__ = [
    "ReviewFit",
    "TooFewCasesError",
    "decode_folder",
    "fit_dice",
    "fit_review",
    "fit_volume",
    "recall_threshold",
    "review_folder",
    "write_maps",
]
