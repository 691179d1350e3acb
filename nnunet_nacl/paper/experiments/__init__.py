"""Comparisons of methods on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.paper.experiments._commands import run_command
from nnunet_nacl.paper.experiments._plan import plan_experiment
from nnunet_nacl.paper.experiments._report import report_experiment
from nnunet_nacl.paper.experiments._run import print_commands, run_experiments
from nnunet_nacl.paper.experiments._study import read_studies

__all__ = [
    "plan_experiment",
    "print_commands",
    "read_studies",
    "report_experiment",
    "run_command",
    "run_experiments",
]
