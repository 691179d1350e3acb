"""Studies: which methods are trained and compared; importing them takes neither torch nor the report."""

from nnunet_nacl.paper.studies._studies import (
    STUDIES,
    STUDIES_OF_ALL,
    Method,
    Study,
    read_study,
    study_file,
)

__all__ = ["STUDIES", "STUDIES_OF_ALL", "Method", "Study", "read_study", "study_file"]
