"""What the confidences are good for: which cases to look at, volumes, guarantees, better segmentations, ensembles."""

from nnunet_nacl.use._decode import decode_folder
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._fit import fit_review
from nnunet_nacl.use._judging import judge
from nnunet_nacl.use._maps import write_maps
from nnunet_nacl.use._members import combine_members
from nnunet_nacl.use._pictures import LABEL_COLORS, picture, window_around
from nnunet_nacl.use._review import read_judged, review_folder

__all__ = [
    "LABEL_COLORS",
    "combine_members",
    "decode_folder",
    "dice_optimal_labels",
    "dice_optimal_mask",
    "fit_review",
    "judge",
    "picture",
    "read_judged",
    "review_folder",
    "window_around",
    "write_maps",
]
