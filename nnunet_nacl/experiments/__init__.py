"""Comparisons of methods on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.experiments._commands import duration, run_command
from nnunet_nacl.experiments._plan import Job, Options, plan_experiment
from nnunet_nacl.experiments._report import report_experiment
from nnunet_nacl.experiments._run import print_commands, run_experiments
from nnunet_nacl.experiments._study import STUDIES, read_study, study_file

__all__ = [
    "STUDIES",
    "Job",
    "Options",
    "duration",
    "plan_experiment",
    "print_commands",
    "read_study",
    "report_experiment",
    "run_command",
    "run_experiments",
    "study_file",
]
