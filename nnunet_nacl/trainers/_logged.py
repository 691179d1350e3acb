"""Names of what our trainers log in each epoch. This module imports neither torch nor nnU-Net."""

MAX_LOGIT_HISTOGRAM = "max_logit_histogram"
"""The histogram of the maximum logit, a list of counts."""
MAX_LOGIT_EDGES = tuple(range(-10, 61))
"""Edges of its bins. The outer bins also hold all values beyond."""
LEVELS = (5, 25, 50, 75, 95)
"""Percents of the maximum logit's quantiles."""
MAX_LOGIT_QUANTILES = tuple(f"max_logit_p{level:02}" for level in LEVELS)
LOSS_STATE = "loss_state"
"""The state that a loss adapts, such as CRaC's weights: its buffers by name."""
VALUES = ("ece", "over_confidence", *MAX_LOGIT_QUANTILES)
"""The numbers."""
