"""Uses of confidences: cases to look at, volumes, guarantees, other segmentations, maps."""

from nnunet_nacl.use._conformal import TooFewCasesError, fit_dice, fit_volume, recall_threshold
from nnunet_nacl.use._decode import decode_folder
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._review import review_folder
from nnunet_nacl.use._review_fit import ReviewFit, fit_review

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
