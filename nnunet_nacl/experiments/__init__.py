"""The paper's comparisons on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.experiments._executors import Slurm
from nnunet_nacl.experiments._experiment import (
    Experiment,
    Outcome,
    find_device,
    plan_experiment,
    print_commands,
    report_experiment,
    run_experiments,
    submit_experiments,
)
from nnunet_nacl.experiments._plan import Budget, Run, plan_runs
from nnunet_nacl.experiments._status import format_status
from nnunet_nacl.experiments._steps import Job
from nnunet_nacl.experiments._study import STUDIES, Row, StudyTable, read_study, study_file

__all__ = [
    "STUDIES",
    "Budget",
    "Experiment",
    "Job",
    "Outcome",
    "Row",
    "Run",
    "Slurm",
    "StudyTable",
    "find_device",
    "format_status",
    "plan_experiment",
    "plan_runs",
    "print_commands",
    "read_study",
    "report_experiment",
    "run_experiments",
    "study_file",
    "submit_experiments",
]
