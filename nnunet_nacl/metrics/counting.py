"""Reading, checking and counting a case, for our packages that have its files; users call ``evaluate_case``."""

from nnunet_nacl.metrics._agreement import DisagreementError, labels_given
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
from nnunet_nacl.metrics._labels import canonical_labels, whole_numbers
from nnunet_nacl.metrics._sums import no_counts

__all__ = [
    "BLOCK",
    "Blocks",
    "CaseArrays",
    "Channels",
    "DisagreementError",
    "above",
    "canonical_labels",
    "check_dtype",
    "check_shape",
    "checked_blocks",
    "each_column",
    "evaluate_arrays",
    "labels_given",
    "named_columns",
    "no_counts",
    "to_numpy",
    "whole_numbers",
    "with_columns",
]
