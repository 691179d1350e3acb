"""``nnunet_nacl demo``: from data to a calibrated model, on data with known class probabilities."""

from nnunet_nacl.demo._generated import DATASET, LABELS, draw_case, write_data_set
from nnunet_nacl.demo._run import run_demo

__all__ = [
    "DATASET",
    "LABELS",
    "draw_case",
    "run_demo",
    "write_data_set",
]
