"""Uses of confidences: cases to look at, volumes, guarantees, other segmentations, maps.

A review (``_review``) counts cases and with ground truth judges what it predicted (``_judgement``); it is a ranked list
(``_review_list``) and a page (``_review_page``, ``_views``). A fit to cases with ground truth
(``_review_fit``, of each structure ``_structure_fit``) gives bounds and intervals to it, and thresholds
(``_conformal``) to ``_decode``.
"""

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
