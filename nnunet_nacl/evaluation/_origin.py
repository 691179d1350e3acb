"""What a result was computed from."""

import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from nnunet_nacl.metrics import LabelMeaning, Settings
from nnunet_nacl.nnunet import CalibratedMark, Predictions, dataset_number, names_in, nnunet_folder
from nnunet_nacl.typing import Record

SUMMARY_NAME = "calibration_summary.json"
COUNTING = 7
"""Raise it when the same files and settings give different tables, so that the results are never mixed."""
USUAL_SETTINGS = Settings(surface=True)
"""Those of the command ``evaluate`` without options: what is counted with them is not counted again by it."""
_PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class Folders:
    """A folder of predictions and the folder of their ground truth, empty without any."""

    gt_folder: str
    pred_folder: str


@dataclass(frozen=True)
class Origin:
    """What a result was computed from, and how; merged results have the versions of the first.

    ``part`` is the part's number and the number of parts, if only a part of the cases was evaluated.
    """

    settings: Settings
    folders: tuple[Folders, ...]
    labels: LabelMeaning
    reader: str
    versions: dict[str, str]
    part: tuple[int, int] | None = None
    counting: int = COUNTING

    @classmethod
    def of(
        cls, predictions: Predictions, settings: Settings, part: tuple[int, int] | None = None
    ) -> "Origin":
        """The origin of what this version counts."""
        # Absolute: the data set's name is among the folders, and a report may be made elsewhere
        gt_folder = predictions.gt_folder
        truth = "" if gt_folder is None else str(gt_folder.absolute())
        folders = tuple(
            Folders(truth, str(folder.absolute())) for folder in predictions.pred_folders
        )
        versions = {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        }
        data_set = predictions.data_set
        return cls(settings, folders, data_set.meaning, data_set.reader.name, versions, part)

    @property
    def has_truth(self) -> bool:
        """Whether there is ground truth."""
        return all(pair.gt_folder for pair in self.folders)

    @property
    def calibration(self) -> CalibratedMark | None:
        """How the first folder of predictions was calibrated, if it was."""
        return CalibratedMark.read(Path(self.folders[0].pred_folder))

    @property
    def evaluate_command(self) -> str:
        """The ``nnunet_nacl evaluate`` command that gives this result; for merged folders one line each."""
        return "\n".join(
            shlex.join(
                [
                    "nnunet_nacl",
                    "evaluate",
                    pair.gt_folder,
                    pair.pred_folder,
                    *self.evaluate_options,
                ]
            )
            for pair in self.folders
        )

    @property
    def evaluate_options(self) -> list[str]:
        """The options of ``nnunet_nacl evaluate`` that differ from its defaults."""
        usual = USUAL_SETTINGS
        options = [] if self.settings.surface else ["--no_surface"]
        if self.settings.num_bins != usual.num_bins:
            options += ["--bins", str(self.settings.num_bins)]
        if self.settings.margin_mm != usual.margin_mm:
            options += ["--margin", f"{self.settings.margin_mm:g}"]
        if self.settings.protocol != usual.protocol:
            options += ["--protocol", self.settings.protocol]
        if self.settings.ignore_geometry:
            options.append("--ignore_geometry")
        if self.part is not None:
            options += ["--num_parts", str(self.part[1]), "--part_id", str(self.part[0])]
        return options

    @property
    def model_options(self) -> list[str]:
        """``-d -c -tr -p -f`` of the model in ``nnUNet_results`` whose folds were validated in these folders, if any.

        For what ``calibrate --npz`` has written, with ``--calibrated``.
        """
        folders = [Path(pair.pred_folder) for pair in self.folders]
        kinds = {folder.name for folder in folders}
        models = {folder.parent.parent for folder in folders}
        names = names_in(folders[0].parent.parent)
        folds = [folder.parent.name.removeprefix("fold_") for folder in folders]
        is_validation = all(folder.parent.name.startswith("fold_") for folder in folders)
        if not is_validation or len(models) > 1 or "dataset" not in names:
            return []
        try:
            results = nnunet_folder("nnUNet_results").resolve()
        except RuntimeError:  # it is not set
            return []
        if models.pop().resolve().parent.parent != results:
            return []
        if kinds not in ({"validation"}, {"validation_calibrated"}):
            return []
        return [
            *("-d", dataset_number(names["dataset"]), "-c", names["configuration"]),
            *("-tr", names["trainer"], "-p", names["plans"], "-f", *folds),
            *(["--calibrated"] if kinds == {"validation_calibrated"} else []),
        ]

    @property
    def review_command(self) -> str:
        """The ``nnunet_nacl review`` command that judges these predictions; a line for each folder."""
        return "\n".join(
            shlex.join(["nnunet_nacl", "review", pair.pred_folder, "-gt", pair.gt_folder])
            for pair in self.folders
        )

    def difference(self, other: "Origin") -> str | None:
        """The first difference that changes what is counted, if any: settings, labels or counting."""
        others = other._counted_by()
        for key, mine in self._counted_by().items():
            if mine != others[key]:
                return f"{key}: {mine!r} and {others[key]!r}"
        return None

    def _counted_by(self) -> Record:
        labels = {
            "labels": self.labels.labels,
            "regions": self.labels.regions,
            "regions_class_order": self.labels.written,
            "reader": self.reader,
        }
        return {"counting": self.counting, **asdict(self.settings), **labels}

    def settings_json(self) -> Record:
        """Settings, folders and labels, as summaries have them."""
        folders = {}
        for name in ("gt_folder", "pred_folder"):
            paths = [getattr(pair, name) for pair in self.folders]
            folders[name] = paths[0] if len(set(paths)) == 1 else paths
        return {**folders, "part": self.part, **self._counted_by()}


def default_summary(pred_folders: Sequence[Path]) -> Path:
    """Where ``evaluate`` writes the summary of a folder of predictions, or of the validation folders of a model."""
    if len(pred_folders) == 1:
        return pred_folders[0] / SUMMARY_NAME
    folds = "_".join(folder.parent.name.removeprefix("fold_") for folder in pred_folders)
    kind = pred_folders[0].name.removeprefix("validation")  # _calibrated
    return pred_folders[0].parent.parent / f"calibration{kind}_folds_{folds}_summary.json"
