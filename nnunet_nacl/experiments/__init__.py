"""The paper's comparisons on any data set of nnU-Net, by nnU-Net's own commands."""

from nnunet_nacl.experiments._executors import Slurm, print_commands, run_experiments, submit_experiments
from nnunet_nacl.experiments._plan import Budget, Experiment, Job, Run, plan_experiment, plan_runs
from nnunet_nacl.experiments._report import evaluated_test_cases, format_status, report_experiment
from nnunet_nacl.experiments._run import duration
from nnunet_nacl.experiments._study import STUDIES, Row, StudyTable, read_study, study_file

__all__ = [
    "STUDIES",
    "Budget",
    "Experiment",
    "Job",
    "Row",
    "Run",
    "Slurm",
    "StudyTable",
    "duration",
    "evaluated_test_cases",
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
