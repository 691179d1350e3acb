"""A case of a folder, evaluated."""

from dataclasses import dataclass
from typing import Any

from nnunet_nacl.evaluation._saved import SavedCase, saved_as
from nnunet_nacl.metrics import CaseArrays, CaseResult, Settings, evaluate_arrays
from nnunet_nacl.nnunet import CaseFiles, DataSet


@dataclass(frozen=True)
class Case:
    """An evaluated case; ``states`` are those of its files when they were read (``CaseFiles.states``)."""

    files: CaseFiles
    result: CaseResult
    states: dict[str, Any]

    @property
    def name(self) -> str:
        return self.files.name


def evaluate_files(files: CaseFiles, data_set: DataSet, settings: Settings) -> CaseResult:
    """Evaluate the files of one case; errors as those of :class:`SavedCase`."""
    saved = SavedCase(files, data_set)
    truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
    return evaluate_arrays(
        CaseArrays(
            saved.channels,
            truth,
            saved.labels,
            data_set.meaning,
            geometry.spacing,
            settings,
            saved_as(files),
            files.thresholds,
        )
    )
