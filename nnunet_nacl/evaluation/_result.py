"""The result of a folder: its cases, means over them, and all their voxels together."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation._counting import CountedCase, Counting
from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    CORE_PROBABILITY,
    METRICS,
    PAPER_METRICS,
    SEGMENTATION_METRICS,
    VOXEL_SETS,
    CalibrationTables,
    Counts,
    Estimate,
    LabelMeaning,
    Settings,
    Structure,
    Voxels,
    mean_of_known,
    measure,
)
from nnunet_nacl.nnunet import validates_training_cases
from nnunet_nacl.typing import ByName, Floats

if TYPE_CHECKING:
    import pandas


NEARLY_ALL = 0.95
"""The share of the images' voxels above which the voxel set near is nearly all of them."""
_SHOWN: tuple[tuple[str, Voxels | Literal[""]], ...] = (
    *((metric, "") for metric in ("Dice", "HD95", "NSD")),
    ("NLL_per_foreground", "image"),
    ("ECE", "near"),
    ("over_confidence", "near"),
    *((metric, voxels) for metric in PAPER_METRICS for voxels in BY_LABEL),
)
"""Metrics and voxel sets of the table in a terminal, in its order."""

ColumnKey = tuple[Voxels | Literal[""], str, str]
"""The voxel set (empty for the segmentation), the label (of a class, or of a structure), if any, and the metric."""


@dataclass(frozen=True, repr=False)
class FolderResult:
    """The result of ``evaluate``: the records of the cases, and skipped cases.

    Attributes:
        counted: the cases, and their files when they were counted.
        counts: all that was counted of them.
        skipped: cases without counts.
        counting: how they were counted.
        file: the summary that it was written to or read from, if any.
    """

    counted: list[CountedCase]
    counts: Counts
    skipped: list[Skipped]
    counting: Counting
    file: Path | None = None

    def __repr__(self) -> str:
        name = "" if self.file is None else self.file.parent.name
        return f"{len(self.cases)} cases\n{format_table({name: self})}"

    @property
    def cases(self) -> list[str]:
        """The names of the cases."""
        return [case.name for case in self.counted]

    @property
    def settings(self) -> Settings:
        return self.counting.settings

    @property
    def meaning(self) -> LabelMeaning:
        return self.counting.meaning

    def take(self, rows: Sequence[int]) -> "FolderResult":
        """Return some of the cases."""
        return replace(
            self,
            counted=[self.counted[row] for row in rows],
            counts=self.counts.take(rows),
        )

    def only(self, cases: Collection[str]) -> "FolderResult":
        """Return the cases of these names."""
        return self.take([row for row, case in enumerate(self.cases) if case in cases])

    def folders(self, of: Literal["prediction", "ground_truth"]) -> list[Path]:
        """List the folders that the cases' files lie in, such as the validation folders of a model."""
        return sorted({case.file(of).parent for case in self.counted})

    def settings_json(self) -> ByName:
        """Return folders, and how the cases were counted, as summaries have them."""
        folders = folders_json(self.folders("ground_truth"), self.folders("prediction"))
        return folders | self.counting.as_json()

    def stale_cases(self) -> list[str]:
        """List the cases with a file that was added, replaced or changed since; missing files do not count."""
        return [
            case.name
            for case in self.counted
            if any(state.has_changed for state in case.states.values())
        ]

    def values(
        self, metric: str, voxels: Voxels | Literal[""] = "", label: Structure | str = ""
    ) -> Floats:
        """Return a metric of each case (cases,), of one label if it is given; NaN where it is unknown.

        A label is one of ``meaning.structures``, or 0 for the background's class. Without a label, a metric of a
        segmentation is the mean over the structures that have a value. Raises a ValueError for a metric or label that
        does not exist, or a voxel set that the metric does not have.
        """
        sets = ("",) if metric in SEGMENTATION_METRICS else VOXEL_SETS
        for what, value, known in (
            ("metric", metric, METRICS),
            (f"voxel set of {metric}", voxels, sets),
            ("label", str(label), ("", *self.meaning.channel_labels)),
        ):
            if value not in known:
                raise ValueError(
                    f"{what}: expected one of {', '.join(known)}; got {value or 'none'}."
                )
        of_structures = self.counts.segmentation_metrics.get(metric)
        if of_structures is not None and not str(label):
            return mean_of_known(of_structures)
        key = (voxels, str(label), metric)
        return self.columns.get(key, np.full(len(self.cases), np.nan))

    def estimate(
        self,
        metric: str,
        voxels: Voxels | Literal[""] = "",
        patients: NDArray[np.intp] | None = None,
        *,
        label: Structure | str = "",
    ) -> Estimate:
        """Return a metric's value over the cases and its interval; NaN where it is unknown.

        Scores per foreground voxel, and over near and image ECE, CECE and confidence − accuracy, are of all cases'
        voxels together (``MetricDefinition.pooled_over``). Every other metric is a mean over cases, and that of a
        segmentation a mean over structures of such means.

        Args:
            metric: one of ``METRICS``.
            voxels: the voxel set; none for metrics of a segmentation.
            patients: (cases,) the number of each case's patient, from 0; by default, each case is a patient.
            label: of a single structure, or 0 for the background's class; by default, of all.

        Raises:
            ValueError: no such metric or label, or a voxel set that the metric does not have.
        """
        of_cases = self.values(metric, voxels, label)[:, np.newaxis]
        definition = METRICS[metric]
        if label != "":
            definition = definition.of_channel(self.meaning.channel_labels.index(str(label)))
        elif metric in self.counts.segmentation_metrics:
            of_cases = self.counts.segmentation_metrics[metric]
        is_known = definition.case_score is None or self.has_scores(voxels)
        if voxels and voxels in definition.pooled_over and is_known:
            return Estimate.of_tables(definition, self.counts.calibration[voxels], patients)
        return Estimate.of_means(of_cases, patients)

    def pooled(self, voxels: Voxels) -> ByName:
        """Return the metrics of all cases' voxels together; over the image, the scores per foreground voxel too."""
        return measure(self.counts[voxels], scores=self.has_scores(voxels))

    @property
    def notes(self) -> dict[str, str]:
        """Notes for users to read before the numbers, by subject: ``training``, ``near``, ``regions``, ``empty``."""
        found = {}
        if any(map(validates_training_cases, self.folders("prediction"))):
            found["training"] = (
                "fold all is validated on the cases that it was trained with: unseen cases will score worse."
            )
        share = self.pooled("near")["share"]
        if share > NEARLY_ALL:
            found["near"] = (
                f"The voxel set near (within {self.settings.margin_mm:g} mm of foreground "
                f"probabilities above {CORE_PROBABILITY:g}) is {100 * share:.0f} % of the images: its ECE is one of "
                "the background, too. Either the model is unsure everywhere, or that is far in these images: then give "
                "evaluate a smaller --margin."
            )
        if lost := self.meaning.note_on_overlap:
            found["regions"] = f"{lost} Dice, like nnU-Net's, is that of the label map."
        if empty := np.count_nonzero(np.isnan(self.values("ECE", "foreground"))):
            found["empty"] = (
                f"{empty} of {len(self.cases)} cases have no foreground: ECE and CECE over the foreground are means "
                "over the others."
            )
        return found

    def has_scores(self, voxels: str = "image") -> bool:
        """Whether results list NLL and Brier per foreground voxel of a set: of the image, if its tables are complete.

        Those of the authors' protocol may not be.
        """
        return voxels == "image" and self.settings.protocol == "standard"

    @cached_property
    def columns(self) -> dict[ColumnKey, Floats]:
        """All metrics of the cases, (cases,) each, in the order of the file of cases."""
        found: dict[ColumnKey, Floats] = {}
        for voxels, tables in self.counts.calibration.items():
            of_set = {"": measure(tables)}
            if self.has_scores(voxels):
                of_set[""] |= {
                    "NLL_sum": tables.nll.sum(-1),
                    "Brier_sum": tables.brier.sum(-1),
                    "foreground_voxels": tables.foreground_voxels,
                }
            for label, metrics in (of_set | metrics_by_label(self.meaning, tables)).items():
                for metric, values in metrics.items():
                    found[voxels, label, metric] = values
        for number, structure in enumerate(self.meaning.structures):
            for metric, values in self.counts.segmentation_metrics.items():
                found["", str(structure), metric] = values[:, number]
        return found

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the metrics of the cases in long form: columns case, voxels, class (the label), metric, value.

        Texts are empty where there is none.
        """
        import pandas

        rows = [
            (case, *key, values[row])
            for row, case in enumerate(self.cases)
            for key, values in self.columns.items()
        ]
        return pandas.DataFrame(rows, columns=["case", "voxels", "class", "metric", "value"])

    @staticmethod
    def merged(results: "Sequence[FolderResult]") -> "FolderResult":
        """Put cases, or folders of one data set, together; the numbers are the same as if evaluated at once.

        Surface distances are left out unless all have them: trainers measure them, ``--no_surface`` does not.

        Raises a ValueError for different settings or labels, or a case in two results.
        """
        counting = results[0].counting
        surface = all(result.settings.surface for result in results)
        counted_by = [result.counting.as_json({"surface"}) for result in results]
        if any(other != counted_by[0] for other in counted_by):
            raise ValueError(
                "expected parts that were counted alike; their settings or labels differ."
            )
        counted = [case for result in results for case in result.counted]
        names = [case.name for case in counted]
        for name, number in Counter(names).most_common(1):
            if number > 1:
                raise ValueError(f"the case {name} is in two parts.")
        measured = [result.counts.segmentation_metrics for result in results]
        shared = set.intersection(*map(set, measured))
        parts = [
            replace(
                result.counts,
                segmentation_metrics={name: own[name] for name in own if name in shared},
            )
            for result, own in zip(results, measured, strict=True)
        ]
        rows = sorted(range(len(names)), key=names.__getitem__)
        skipped = {entry.case: entry for result in results for entry in result.skipped}
        return FolderResult(
            [counted[row] for row in rows],
            Counts.joined(parts).take(rows),
            [skipped[name] for name in sorted(skipped.keys() - set(names))],
            replace(counting, settings=replace(counting.settings, surface=surface)),
        )


def folders_json(gt_folders: Sequence[Path], pred_folders: Sequence[Path]) -> ByName:
    """Return the folders as summaries have them: as a text if there is one, else as a list."""
    folders = {"gt_folder": gt_folders, "pred_folder": pred_folders}
    return {
        name: str(paths[0]) if len(paths) == 1 else list(map(str, paths))
        for name, paths in folders.items()
    }


def format_table(results: Mapping[str, FolderResult]) -> str:
    """Format a line for each result, by name (``–`` if unknown), and the meaning of the columns."""
    # Takes half a second to import, which worker processes need not spend
    import pandas

    columns = {}
    formats = {}
    pooled = []
    for name, voxels in _SHOWN:
        metric = METRICS[name]
        title = metric.titled(voxels)
        values = [result.estimate(name, voxels).value for result in results.values()]
        if np.isnan(values).all() and name != "Dice":
            continue
        columns[title] = values
        formats[title] = f"{{:{'+' if metric.signed else ''}.{metric.digits}f}}".format
        if voxels in metric.pooled_over:
            pooled.append(title)
    shown = pandas.DataFrame(columns, list(results)).rename_axis(columns="method")
    table = shown.to_string(formatters=formats, na_rep="–")
    about_pooled = "Means over cases."
    if pooled:
        about_pooled = f"{', '.join(pooled)}: all cases pooled; the others are means over cases."
    return f"{table}\n{about_pooled}"


def metrics_by_label(meaning: LabelMeaning, tables: CalibrationTables) -> dict[str, ByName]:
    """Compute the metrics (...) of each channel of some tables, by label or region; 0 is the background."""
    metrics = {
        name: metric.from_bins(tables.classwise)
        for name, metric in CALIBRATION_METRICS.items()
        if metric.from_bins is not None
    }
    return {
        label: {name: np.moveaxis(values, -1, 0)[channel] for name, values in metrics.items()}
        for channel, label in enumerate(meaning.channel_labels)
    }
