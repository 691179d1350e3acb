"""What our other packages use beside ``evaluate_case``: reading, checking and counting a case, what bins say."""

from nnunet_nacl.metrics._agreement import DisagreementError, labels_given
from nnunet_nacl.metrics._bootstrap import case_weights, resample_weights
from nnunet_nacl.metrics._case import evaluate_arrays
from nnunet_nacl.metrics._channels import (
    BLOCK,
    Blocks,
    Channels,
    above,
    check_dtype,
    check_shape,
    checked_blocks,
    to_numpy,
)
from nnunet_nacl.metrics._columns import each_column, named_columns, with_columns
from nnunet_nacl.metrics._count import CaseArrays
from nnunet_nacl.metrics._decomposition import ScoreParts, split_scores
from nnunet_nacl.metrics._estimate import error_by_chance
from nnunet_nacl.metrics._labels import canonical_labels, region_of, whole_numbers
from nnunet_nacl.metrics._means import mean_of_known, ratio
from nnunet_nacl.metrics._overlap import dice_of_sizes
from nnunet_nacl.metrics._sums import no_counts

__all__ = [
    "BLOCK",
    "Blocks",
    "CaseArrays",
    "Channels",
    "DisagreementError",
    "ScoreParts",
    "above",
    "canonical_labels",
    "case_weights",
    "check_dtype",
    "check_shape",
    "checked_blocks",
    "dice_of_sizes",
    "each_column",
    "error_by_chance",
    "evaluate_arrays",
    "labels_given",
    "mean_of_known",
    "named_columns",
    "no_counts",
    "ratio",
    "region_of",
    "resample_weights",
    "split_scores",
    "to_numpy",
    "whole_numbers",
    "with_columns",
]
