"""Which cases to look at: predicted Dice, volumes with intervals and doubt of a folder of predictions, worst first."""

from nnunet_nacl.review._fit_file import HeldOut, HeldOutPart, MissedShare, ReviewFit, SkippedCase, StructureFit
from nnunet_nacl.review._judgement import Judgement

__all__ = [
    "HeldOut",
    "HeldOutPart",
    "Judgement",
    "MissedShare",
    "ReviewFit",
    "SkippedCase",
    "StructureFit",
]
