"""Comparisons of methods on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.paper.experiments._commands import run_command
from nnunet_nacl.paper.experiments._configuration import Normalization, add_configuration
from nnunet_nacl.paper.experiments._plan import (
    Checkpoint,
    Experiment,
    Job,
    plan_experiment,
)
from nnunet_nacl.paper.experiments._report import report_study
from nnunet_nacl.paper.experiments._run import print_commands, run_experiments
from nnunet_nacl.paper.experiments._steps import clear_the_way, steps_left
from nnunet_nacl.paper.experiments._study import STUDIES, Row, StudyTable, read_studies, read_study

__all__ = [
    "STUDIES",
    "Checkpoint",
    "Experiment",
    "Job",
    "Normalization",
    "Row",
    "StudyTable",
    "add_configuration",
    "clear_the_way",
    "plan_experiment",
    "print_commands",
    "read_studies",
    "read_study",
    "report_study",
    "run_command",
    "run_experiments",
    "steps_left",
]
