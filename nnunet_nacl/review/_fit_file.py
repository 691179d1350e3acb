"""The fit of a review, and its JSON file."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl import __version__
from nnunet_nacl.confidence import THRESHOLDS, DiceFit, VolumeFit, recall_threshold
from nnunet_nacl.files import Kind, whole_file
from nnunet_nacl.json_files import load_json, typed
from nnunet_nacl.nnunet import DataSet, Model
from nnunet_nacl.review._judgement import Judgement, judgement_table

REVIEW_FIT = Kind("a fit of a review", re.compile(rb'\A\{\s*"format": "review fit of nnunet_nacl"'))
_FORMAT = "review fit of nnunet_nacl"
_SHOWN = 5
_OTHER_UNIT = 100
"""Voxels this many times larger or smaller than those of all calibration cases have their spacing in another unit."""


@dataclass(frozen=True)
class MissedShare:
    """How much of a structure the masks p ≥ threshold miss: the mean over the calibration cases that have it.

    Attributes:
        thresholds: ascending, the first one 0. Of thresholds that miss the same, the first and the largest.
        mean: false negative rate of each threshold, 1 − recall.
        num_cases: that have the structure.
    """

    thresholds: tuple[float, ...]
    mean: tuple[float, ...]
    num_cases: int

    def __post_init__(self) -> None:
        if len(self.thresholds) != len(self.mean) or (self.num_cases > 0) > (len(self.mean) > 0):
            raise ValueError("expected as many means as thresholds, and some if there are cases")

    @classmethod
    def of(cls, rates: Sequence[NDArray[np.float64]]) -> "MissedShare":
        """The mean of rates, each (T,) for the thresholds of ``MissedVoxels``."""
        if not rates:
            return cls((), (), 0)
        mean: NDArray[np.float64] = np.stack(rates).mean(0)
        kept = np.append(mean[1:] != mean[:-1], True)
        kept[0] = True
        return cls(tuple(THRESHOLDS[kept].tolist()), tuple(mean[kept].tolist()), len(rates))

    def threshold(self, alpha: float) -> float:
        """See :meth:`ReviewFit.recall_threshold`."""
        if not self.num_cases:
            raise ValueError("no calibration case has the structure.")
        # The threshold depends on the sum of the cases' rates alone.
        rates = np.tile(self.mean, (self.num_cases, 1))
        return recall_threshold(rates, alpha=alpha, thresholds=np.array(self.thresholds))

    def at(self, threshold: float) -> float:
        """The mean rate of one of the thresholds."""
        return self.mean[self.thresholds.index(threshold)]


@dataclass(frozen=True)
class StructureFit:
    """What was fitted for a structure.

    Attributes:
        volume: intervals of the volume.
        dice: from predicted to true Dice; None if too few cases have something segmented.
        missed: how much masks of p ≥ threshold miss.
        no_dice: why there is no ``dice``.
    """

    volume: VolumeFit
    dice: DiceFit | None
    missed: MissedShare
    no_dice: str | None = None


@dataclass(frozen=True)
class HeldOutPart:
    """A part of the cases, judged with a fit to the other parts.

    Attributes:
        part: its name, such as ``fold 0``.
        cases: in it.
        judgements: by structure; empty if there is no such fit.
        error: then, why not.
    """

    part: str
    cases: list[str]
    judgements: list[Judgement]
    error: str | None = None


@dataclass(frozen=True)
class HeldOut:
    """How a fit does on cases that were held out from it.

    Attributes:
        parts: each judged with a fit to the others.
        judgements: of the cases of all parts together, each with the fit that it was held out from.
    """

    parts: list[HeldOutPart]
    judgements: list[Judgement]


@dataclass(frozen=True)
class SkippedCase:
    """A case that could not be used, and why."""

    case: str
    reason: str


@dataclass(frozen=True)
class ReviewFit:
    """What :func:`fit_review` returns.

    Attributes:
        model: whose predictions it was fitted to, and may be used for.
        calibration: how these were calibrated after training; None if they were not.
        coverage: of the intervals and of the lower bound.
        voxel_ml: the smallest and the largest volume of a voxel, in ml.
        structures: by name in ``dataset.json``.
        held_out: the fit judged on held-out cases.
        cases: the names of the cases that it was fitted to.
        gt_folder: with the ground truth.
        pred_folders: with the predictions.
        skipped: cases that could not be used.
        version: of the package that made it.
        file: that it was written to or read from, if it was.
    """

    model: Model
    calibration: str | None
    coverage: float
    voxel_ml: tuple[float, float]
    structures: dict[str, StructureFit]
    held_out: HeldOut
    cases: list[str]
    gt_folder: str
    pred_folders: list[str]
    skipped: list[SkippedCase]
    version: str = __version__
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def read(cls, file: str | Path) -> "ReviewFit":
        """Read what :meth:`write` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or something else.
        """
        file = Path(file)
        stored = typed(load_json(file, finite=True), _Stored, str(file), _FORMAT)
        if stored.format != _FORMAT:
            raise ValueError(f"{file} is no {_FORMAT}: its format is {stored.format!r}.")
        if _cases_hash(stored.fit.cases) != stored.cases_sha256:
            raise ValueError(f"{file}: the list of cases is not the one that it was written with.")
        return replace(stored.fit, file=file)

    def write(self, file: Path, *, overwrite: bool = False) -> None:
        """Write it, whole or not at all.

        Raises:
            OSError: it cannot be written, or there is a file that is no fit of a review, which ``overwrite`` replaces.
        """
        content = {"format": _FORMAT, "cases_sha256": _cases_hash(self.cases), "fit": asdict(replace(self, file=None))}
        with whole_file(file, REVIEW_FIT, overwrite=overwrite) as partial:
            partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def recall_threshold(self, structure: str, alpha: float) -> float:
        r"""The largest threshold λ whose masks p ≥ λ miss at most a share alpha of a structure, on average.

        It is conformal risk control: the mean is over new cases that have the structure and are exchangeable with those
        of the fit. Of a single case it promises nothing.

        Args:
            structure: its name in ``dataset.json``.
            alpha: share that may be missed, in (0, 1).

        Raises:
            ValueError: no such structure, or fewer than 1/alpha − 1 calibration cases have it.
        """
        if structure not in self.structures:
            known = ", ".join(self.structures)
            raise ValueError(f"{self._name()} has no structure {structure!r}; it has {known}.")
        try:
            return self.structures[structure].missed.threshold(alpha)
        except ValueError as error:
            raise ValueError(f"{self._name()}: {structure}: {error}") from error

    def check(
        self,
        pred_folder: Path,
        plans: Path | None,
        data_set: DataSet,
        cases: Sequence[str],
        *,
        force: bool = False,
    ) -> list[str]:
        """Raise a ValueError unless it may be used for a folder of predictions.

        Args:
            pred_folder: the predictions.
            plans: their ``plans.json``, if there is one.
            data_set: how they are read.
            cases: names of the cases in it.
            force: allow cases that it was fitted to.

        Returns:
            The cases that it was fitted to, if that is forced.

        Raises:
            ValueError: it was fitted to other labels, another model, calibrated otherwise, or to the same cases.
        """
        from nnunet_nacl.calibrate import calibration_of  # it imports torch, which worker processes need not spend

        difference = self.model.difference(Model.of_folder(pred_folder, plans, data_set))
        if difference is not None:
            raise ValueError(f"{self._name()} cannot be used for {pred_folder}: it was fitted to {difference}.")
        calibration = calibration_of(pred_folder)
        if calibration != self.calibration:
            raise ValueError(
                f"{self._name()} cannot be used for {pred_folder}: it was fitted to predictions that are "
                f"{_calibrated(self.calibration)}, and these are {_calibrated(calibration)}."
            )
        seen = sorted(set(cases) & set(self.cases))
        if seen and not force:
            shown = ", ".join(seen[:_SHOWN]) + (", …" if len(seen) > _SHOWN else "")
            raise ValueError(
                f"{self._name()} was fitted to {len(seen)} of the {len(cases)} cases in {pred_folder}: {shown}. It "
                "would look better there than it is; --force uses it nevertheless."
            )
        return seen

    def check_voxel(self, voxel_ml: float) -> None:
        """Raise a ValueError if a voxel has a volume that no change of scanner explains."""
        low, high = self.voxel_ml
        if not low / _OTHER_UNIT < voxel_ml < high * _OTHER_UNIT:
            raise ValueError(
                f"a voxel has {voxel_ml:.3g} ml; those that {self._name()} was fitted to have {low:.3g} to {high:.3g} "
                "ml. Is the spacing in another unit than mm?"
            )

    def summary(self) -> str:
        """A few lines for people."""
        lines = [f"Fitted to {len(self.cases)} cases, for a coverage of {self.coverage:g}."]
        for name, fit in self.structures.items():
            low, high = math.exp(fit.volume.low), math.exp(fit.volume.high)
            volume = f"volume {low:.2f} to {high:.2f} times the expected one (± {fit.volume.epsilon_ml:.3g} ml)"
            if fit.dice is None:
                dice = f"no Dice: {fit.no_dice}"
            else:
                dice = f"Dice at least {fit.dice.margin:+.3f} from the fitted one"
            lines.append(f"  {name}: {volume}; {dice}")
        lines += [f"  {part.part}: {part.error}" for part in self.held_out.parts if part.error is not None]
        if self.held_out.judgements:
            lines += ["On held-out cases:", judgement_table(self.held_out.judgements)]
        else:
            lines.append("No values for held-out cases: it is not known how good this is.")
        return "\n".join(lines)

    def _name(self) -> str:
        return "the fit" if self.file is None else str(self.file)


@dataclass(frozen=True)
class _Stored:
    format: str
    cases_sha256: str
    fit: ReviewFit


def _cases_hash(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def _calibrated(calibration: str | None) -> str:
    return "not calibrated" if calibration is None else f"calibrated ({calibration})"
