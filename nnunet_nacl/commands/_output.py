"""Output of several commands: the main path, and cases that were skipped."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnunet_nacl.case_loop import Skipped

MAIN_PATH = (
    "# Train and predict, with nnU-Net's own commands (_paperSchedule: Adam, 100 epochs, as in the paper)",
    "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_paperSchedule",
    "nnUNetv2_predict -d 4 -c 2d -f 0 -tr nnUNetTrainerNACL_paperSchedule -i imagesTs -o NACL --save_probabilities",
    "# Measure: ECE and CECE over foreground and union, Dice, HD95, and NLL, a proper score",
    "nnunet_nacl evaluate labelsTs NACL",
    "# Benchmark: eight losses trained, predicted, evaluated and compared on one page",
    "nnunet_nacl experiment main -d 4 -c 2d -f 0 --paper_schedule",
    "# Calibrate an existing model: a checkpoint that any nnU-Net predicts with",
    "nnunet_nacl calibrate -d 4 -c 2d -f 0 -tr nnUNetTrainer",
)
"""The commands that help, demo and README begin with."""


def print_skipped(skipped: Iterable["Skipped"]) -> int:
    """Print the cases that were skipped, with the reasons; returns the exit status."""
    shown = [f"skipped {entry.case}: {entry.reason}\n" for entry in skipped]
    sys.stderr.writelines(shown)
    return 1 if shown else 0
