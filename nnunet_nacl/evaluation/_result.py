"""The result of a folder: its cases, means over them, and all their voxels together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.cases import Skipped
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._table import POOLED, format_table
from nnunet_nacl.files import file_state
from nnunet_nacl.metrics import (
    CALIBRATION_METRICS,
    METRICS,
    PAPER_METRICS,
    VOXEL_SETS,
    CalibrationTables,
    CaseResult,
    Estimate,
    Interval,
    LabelMeaning,
    Settings,
    Structure,
    Voxels,
    mean_of_known,
)
from nnunet_nacl.nnunet import CaseFiles
from nnunet_nacl.typing import Numbers, Record

if TYPE_CHECKING:
    import pandas


_WIDE = 0.95  # of the images' voxels


@dataclass(frozen=True)
class Case:
    """An evaluated case; ``states`` are the states of its files when they were read (``CaseFiles.states``)."""

    files: CaseFiles
    result: CaseResult
    states: Record

    @property
    def name(self) -> str:
        return self.files.name


@dataclass(frozen=True, repr=False)
class FolderResult:
    """What ``evaluate`` returns: evaluated cases by name, skipped cases, and their files and settings.

    ``file`` is the summary that it was written to or read from, if any.
    """

    cases: list[Case]
    skipped: list[Skipped]
    origin: Origin
    file: Path | None = None

    def __repr__(self) -> str:
        name = "" if self.file is None else self.file.parent.name
        return f"{len(self.cases)} cases\n{format_table({name: self})}"

    @property
    def settings(self) -> Settings:
        return self.origin.settings

    @property
    def meaning(self) -> LabelMeaning:
        return self.origin.labels

    @property
    def voxels(self) -> list[Voxels]:
        return list(self.settings.voxels)

    @property
    def structures(self) -> list[Structure]:
        """Foreground labels, or regions."""
        return self.meaning.structures

    def stale_cases(self) -> list[str]:
        """Cases with a file that was replaced or changed since; missing files do not count."""
        return [
            case.name
            for case in self.cases
            if any(
                file_state(Path(state[0])) not in (None, state)
                for state in filter(None, case.states.values())
            )
        ]

    def tables(self, voxels: Voxels) -> list[CalibrationTables]:
        """The tables of each case."""
        return [case.result.calibration[voxels] for case in self.cases]

    def values(self, voxels: Voxels, metric: str) -> list[float]:
        """A calibration metric of each case; NaN where its voxel set is empty or the metric was not computed."""
        return [tables.metrics().get(metric, np.nan) for tables in self.tables(voxels)]

    def mean(self, voxels: Voxels, metric: str) -> float:
        """Unweighted mean over the cases whose voxel set is not empty (the paper's mean)."""
        return _mean(self.values(voxels, metric))

    def segmentation(self, name: Structure, metric: str) -> list[float]:
        """A segmentation metric of a label or region for each case; NaN where it was not computed."""
        return [case.result.segmentation[name].get(metric, np.nan) for case in self.cases]

    def foreground_mean(self, metric: str = "Dice") -> float:
        """Mean over labels or regions of their means: nnU-Net's ``foreground_mean``, except for absent ones."""
        return _mean([_mean(self.segmentation(name, metric)) for name in self.structures])

    def row(self) -> Numbers:
        """Dice, the scores that compare methods, and the paper's metrics; NaN if unknown."""
        values = {metric: self.foreground_mean(metric) for metric in ("Dice", "HD95", "NSD")}
        values[METRICS["Dice_mask"].titled()] = self.foreground_mean("Dice_mask")
        for title, (voxels, metric) in POOLED.items():
            values[title] = self.pooled(voxels).get(metric, np.nan)
        for metric in PAPER_METRICS:
            for voxels in VOXEL_SETS[:2]:
                title = METRICS[metric].titled(voxels)
                values[title] = self.mean(voxels, metric) if voxels in self.voxels else np.nan
        return values

    @cached_property
    def all_voxels(self) -> dict[Voxels, CalibrationTables]:
        """The tables of all cases added up, in the order of their names; nothing without cases."""
        return (
            {voxels: reduce(add, self.tables(voxels)) for voxels in self.voxels}
            if self.cases
            else {}
        )

    def pooled(self, voxels: Voxels) -> Numbers:
        """Metrics of all cases' voxels together; over the image, the scores per foreground voxel too."""
        if voxels not in self.all_voxels:
            return {}
        tables = self.all_voxels[voxels]
        return tables.metrics() | (tables.per_foreground() if self._has_scores(voxels) else {})

    @property
    def near_is_wide(self) -> bool:
        """Whether the voxel set near is nearly the whole of the images, so that it is hardly near any more."""
        return self.pooled("near").get("share", 0.0) > _WIDE

    @property
    def notes(self) -> list[str]:
        """What to know before reading the numbers, in sentences for users."""
        notes = []
        if any(Path(pair.pred_folder).parent.name == "fold_all" for pair in self.origin.folders):
            notes.append(
                "fold all is validated on the cases that it was trained with: unseen cases will score worse."
            )
        if self.near_is_wide:
            share = self.pooled("near")["share"]
            notes.append(
                f"The voxel set near (within {self.settings.margin_mm:g} mm of where the model sees or suspects a "
                f"structure) is {100 * share:.0f} % of the images: its ECE is one of the background, too. Either the "
                "model is unsure everywhere, or that is far in these images: then give evaluate a smaller --margin."
            )
        return notes

    @property
    def segmentation_metrics(self) -> list[str]:
        """The segmentation metrics that were computed."""
        return (
            list(self.cases[0].result.segmentation[self.structures[0]])
            if self.cases and self.structures
            else []
        )

    def pooled_interval(self, voxels: Voxels) -> dict[str, Interval]:
        """95 % percentile bootstrap intervals over the cases of some pooled metrics; NaN for fewer than two cases."""
        if not self.cases:
            return {}
        tables = self.tables(voxels)
        how = {"pooled", "sums"} if self._has_scores(voxels) else {"pooled"}
        return {
            metric.name: Estimate.of_tables(metric, tables).interval
            for metric in CALIBRATION_METRICS.values()
            if metric.over_cases in how
        }

    def _has_scores(self, voxels: Voxels) -> bool:
        """Whether it has scores per foreground voxel.

        Not with the authors' protocol: its tables leave out voxels with p = 0, so their foreground may be incomplete.
        """
        return voxels == "image" and self.settings.counts_all_voxels

    def by_class(self, tables: CalibrationTables) -> dict[str, Numbers]:
        """Metrics of each channel of some tables, by label or region; 0 is the background."""
        names = ["0"] * self.meaning.activation.first_structure + list(map(str, self.structures))
        return dict(zip(names, tables.class_metrics(), strict=True))

    @cached_property
    def figures(self) -> list[dict[str, Record]]:
        """All metrics of each case.

        ``calibration``: voxel set -> metric -> value, and -> ``classes`` -> class -> metric -> value; ``segmentation``:
        structure -> metric -> value.
        """
        found = []
        for case in self.cases:
            calibration: Record = {}
            for voxels, tables in case.result.calibration.items():
                calibration[voxels] = tables.metrics()
                if self._has_scores(voxels):
                    calibration[voxels] |= tables.score_sums()
                calibration[voxels]["classes"] = self.by_class(tables)
            segmentation = {
                str(name): metrics for name, metrics in case.result.segmentation.items()
            }
            found.append({"calibration": calibration, "segmentation": segmentation})
        return found

    def to_dataframe(self) -> "pandas.DataFrame":
        """The metrics of the cases in long form: columns case, voxels, class, metric, value; empty where none is."""
        import pandas

        rows = []
        for case, figures in zip(self.cases, self.figures, strict=True):
            for voxels, metrics in figures["calibration"].items():
                of_all = {metric: value for metric, value in metrics.items() if metric != "classes"}
                for label, of_label in {"": of_all, **metrics["classes"]}.items():
                    rows += [(case.name, voxels, label, *item) for item in of_label.items()]
            for structure, of_structure in figures["segmentation"].items():
                rows += [(case.name, "", structure, *item) for item in of_structure.items()]
        return pandas.DataFrame(rows, columns=["case", "voxels", "class", "metric", "value"])

    @staticmethod
    def merged(results: "Sequence[FolderResult]") -> "FolderResult":
        """Merge parts, or folders of one data set; the numbers are the same as if evaluated at once.

        Raises a ValueError for different settings or labels, missing parts, or a case in two parts.
        """
        origins = [result.origin for result in results]
        for origin in origins:
            if difference := origins[0].difference(origin):
                raise ValueError(f"parts differ in {difference}.")
        parts = sorted(origin.part for origin in origins if origin.part is not None)
        if parts and parts != [(number, len(origins)) for number in range(len(origins))]:
            have = ", ".join(f"{number} of {count}" for number, count in parts)
            raise ValueError(
                f"expected all parts of one folder, numbered from 0, and nothing else; got {have}."
            )
        cases: dict[str, Case] = {}
        skipped: dict[str, Skipped] = {}
        for result in results:
            for case in result.cases:
                if case.name in cases:
                    raise ValueError(f"the case {case.name} is in two parts.")
                cases[case.name] = case
            skipped |= {entry.case: entry for entry in result.skipped}
        folders = tuple(dict.fromkeys(pair for origin in origins for pair in origin.folders))
        origin = replace(origins[0], folders=folders, part=None)
        left = sorted(skipped.keys() - cases.keys())
        return FolderResult(
            [cases[name] for name in sorted(cases)], [skipped[name] for name in left], origin
        )


def _mean(values: Sequence[float]) -> float:
    return float(mean_of_known(values))
