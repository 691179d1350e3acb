"""Which cases to look at: predicted Dice, volumes with intervals and doubt of a folder of predictions, worst first."""

from nnunet_nacl.review._cases import CountedCase
from nnunet_nacl.review._counts import CaseCounts, StructureCounts, TruthCounts, voxel_volume_ml
from nnunet_nacl.review._fit import fit_review
from nnunet_nacl.review._fit_file import HeldOut, HeldOutPart, MissedShare, ReviewFit, SkippedCase, StructureFit
from nnunet_nacl.review._judgement import ALL, Judged, Judgement
from nnunet_nacl.review._pictures import image_layer, outline, window_around
from nnunet_nacl.review._review import REVIEW_NAME, Review, read_judged, review_folder
from nnunet_nacl.review._rows import StructureReview

__all__ = [
    "ALL",
    "REVIEW_NAME",
    "CaseCounts",
    "CountedCase",
    "HeldOut",
    "HeldOutPart",
    "Judged",
    "Judgement",
    "MissedShare",
    "Review",
    "ReviewFit",
    "SkippedCase",
    "StructureCounts",
    "StructureFit",
    "StructureReview",
    "TruthCounts",
    "fit_review",
    "image_layer",
    "outline",
    "read_judged",
    "review_folder",
    "voxel_volume_ml",
    "window_around",
]
