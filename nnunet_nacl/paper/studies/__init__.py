"""Studies: which methods are trained and compared; importing them takes neither torch nor the report."""

from nnunet_nacl.paper.studies._studies import (
    STUDIES,
    Method,
    Study,
    read_study,
    study_file,
)

__all__ = ["STUDIES", "Method", "Study", "read_study", "study_file"]
