"""Comparisons of methods on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.paper.experiments._commands import run_command
from nnunet_nacl.paper.experiments._configuration import add_configuration
from nnunet_nacl.paper.experiments._plan import (
    Experiment,
    Job,
    Options,
    plan_experiment,
    plan_on_data_sets,
)
from nnunet_nacl.paper.experiments._report import report_experiments
from nnunet_nacl.paper.experiments._run import print_commands, run_experiments
from nnunet_nacl.paper.experiments._steps import clear_the_way, steps_left

__all__ = [
    "Experiment",
    "Job",
    "Options",
    "add_configuration",
    "clear_the_way",
    "plan_experiment",
    "plan_on_data_sets",
    "print_commands",
    "report_experiments",
    "run_command",
    "run_experiments",
    "steps_left",
]
