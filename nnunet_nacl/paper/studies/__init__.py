"""Studies: which methods are trained and compared; importing them takes neither torch nor the report."""

from nnunet_nacl.paper.studies._read import STUDIES, read_study, studies_called
from nnunet_nacl.paper.studies._study import FigureKind, Method, Study

__all__ = ["STUDIES", "FigureKind", "Method", "Study", "read_study", "studies_called"]
