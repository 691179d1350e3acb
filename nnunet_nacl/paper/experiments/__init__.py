"""Comparisons of methods on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.paper.experiments._plan import Options, plan_on_data_sets
from nnunet_nacl.paper.experiments._report import report_experiments
from nnunet_nacl.paper.experiments._run import (
    carry_out,
    print_commands,
    run_command,
    run_experiments,
)

__all__ = [
    "Options",
    "carry_out",
    "plan_on_data_sets",
    "print_commands",
    "report_experiments",
    "run_command",
    "run_experiments",
]
