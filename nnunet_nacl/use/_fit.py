"""Fits predicted Dice, volume intervals and recall thresholds to predictions with ground truth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl import __version__
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import check_output, only_writer, read_json, write_json
from nnunet_nacl.nnunet import Model, PredictionFolder, Predictions
from nnunet_nacl.use._conformal import THRESHOLDS, DiceFit, VolumeFit, fit_dice, fit_volume, threshold_of_mean
from nnunet_nacl.use._counting import CountedCase, CountSettings, count_cases
from nnunet_nacl.use._decode import RecallThresholds, decoding_of
from nnunet_nacl.use._judging import Judged, Judgement, judge, judgement_table

FIT_NAME = "review_fit.json"
_FORMAT: Literal["review fit of nnunet_nacl"] = "review fit of nnunet_nacl"
_EACH = ", each fold by its own fit"
_EPSILON_VOXELS = 10
"""A difference in volume of so many voxels does not matter."""
_ISOTONIC = 100
"""From so many cases on the map from predicted to true Dice is isotonic, below it is a line."""
_OTHER_UNIT = 100
"""Voxels this many times larger or smaller than those of all calibration cases have their spacing in another unit."""


@dataclass(frozen=True)
class MissedShare:
    """How much of a structure the masks p ≥ threshold miss: the mean over the calibration cases that have it."""

    thresholds: tuple[float, ...]
    mean: tuple[float, ...]
    num_cases: int

    def __post_init__(self) -> None:
        if len(self.thresholds) != len(self.mean) or (self.num_cases > 0) > (len(self.mean) > 0):
            raise ValueError("expected as many means as thresholds, and some if there are cases")

    @classmethod
    def of(cls, rates: Sequence[NDArray[np.float64]]) -> "MissedShare":
        """The mean of rates, each (T,) for ``THRESHOLDS``."""
        if not rates:
            return cls((), (), 0)
        mean: NDArray[np.float64] = np.stack(rates).mean(0)
        kept = np.append(mean[1:] != mean[:-1], True)
        kept[0] = True
        return cls(tuple(THRESHOLDS[kept].tolist()), tuple(mean[kept].tolist()), len(rates))

    def threshold(self, alpha: float) -> float:
        """See :func:`nnunet_nacl.use.recall_threshold`."""
        if not self.num_cases:
            raise ValueError("no calibration case has the structure.")
        return threshold_of_mean(np.array(self.mean), self.num_cases, alpha, np.array(self.thresholds))


@dataclass(frozen=True)
class StructureFit:
    """What was fitted for a structure; no ``dice`` if too few cases have something segmented, ``no_dice`` says why."""

    volume: VolumeFit
    dice: DiceFit | None
    missed: MissedShare
    no_dice: str | None = None


@dataclass(frozen=True)
class HeldOutPart:
    """A part of the cases, such as ``fold 0``, judged with a fit to the others; or the error why there is none."""

    part: str
    cases: list[str]
    judgements: list[Judgement]
    error: str | None = None


@dataclass(frozen=True)
class HeldOut:
    """How a fit does on cases that were held out from it: part by part, and on the cases of all parts together."""

    parts: list[HeldOutPart]
    judgements: list[Judgement]


@dataclass(frozen=True)
class ReviewFit:
    """What :func:`fit_review` returns."""

    model: Model
    calibration: str | None
    decoded: str | None
    coverage: float
    voxel_ml: tuple[float, float]
    structures: dict[str, StructureFit]
    held_out: HeldOut
    cases: list[str]
    gt_folder: str
    pred_folders: list[str]
    skipped: list[Skipped]
    version: str = __version__
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def read(cls, file: str | Path) -> "ReviewFit":
        """Read what :func:`fit_review` wrote."""
        return replace(read_json(Path(file), _Stored).fit, file=Path(file))

    def recall_threshold(self, structure: str, alpha: float) -> float:
        """The largest threshold λ whose masks p ≥ λ miss at most a share alpha of a structure, on average.

        The mean is over new cases that have the structure and are exchangeable with those of the fit. Of a single case
        it promises nothing.

        Raises:
            ValueError: no such structure, or fewer than 1/alpha − 1 calibration cases have it.
        """
        if structure not in self.structures:
            raise ValueError(f"{self.file} has no structure {structure!r}; it has {', '.join(self.structures)}.")
        try:
            return self.structures[structure].missed.threshold(alpha)
        except ValueError as error:
            raise ValueError(f"{self.file}: {structure}: {error}") from error

    def recall_thresholds(
        self, predictions: PredictionFolder, alpha: float, *, force: bool = False
    ) -> RecallThresholds:
        """Those of all structures, to decode a folder with; errors as for the methods that it calls."""
        self.check(predictions, force=force, segmented=False)
        of = {name: self.recall_threshold(name, alpha) for name in self.structures}
        return RecallThresholds(of, alpha, str(self.file))

    def check(self, predictions: PredictionFolder, *, force: bool, segmented: bool = True) -> list[str]:
        """What must be said if it is used for a folder of predictions; a ValueError if it must not be.

        Args:
            predictions: the folder.
            force: allow cases that it was fitted to.
            segmented: whether it is used for segmentations, not for probabilities alone.
        """
        notes, folder, data_set = [], predictions.folder, predictions.data_set
        difference = self.model.difference(Model.of_folder(folder, predictions.plans, data_set))
        if difference is not None:
            raise ValueError(f"{self.file} cannot be used for {folder}: it was fitted to {difference}.")
        names = [data_set.meaning.name_of(structure) for structure in data_set.meaning.structures]
        if set(names) != set(self.structures):
            raise ValueError(f"{self.file} has the structures {[*self.structures]}, and {folder} has {names}.")
        calibration, decoded = _calibration_of(folder), decoding_of(folder)
        by_own_fits = self.calibration is not None and self.calibration.endswith(_EACH)
        same = calibration == self.calibration or (by_own_fits and _method(calibration) in str(self.calibration))
        if by_own_fits and calibration is None:
            notes.append(
                f"The fit is to calibrated predictions ({self.calibration}), and {folder} has no mark of one: it must "
                "come from the calibrated checkpoints."
            )
        elif not same:
            raise ValueError(
                f"{self.file} cannot be used for {folder}: it was fitted to predictions that are "
                f"{_said('calibrated', self.calibration)}, and these are {_said('calibrated', calibration)}."
            )
        if segmented and decoded != self.decoded:
            raise ValueError(
                f"{self.file} cannot be used for {folder}: it was fitted to segmentations that are "
                f"{_said('decoded', self.decoded)}, and these are {_said('decoded', decoded)}."
            )
        seen = sorted({case.name for case in predictions.cases} & set(self.cases))
        if seen and not force:
            raise ValueError(
                f"{self.file} was fitted to {len(seen)} of the {len(predictions.cases)} cases in {folder}: "
                f"{', '.join(seen[:5])}{', …' if len(seen) > 5 else ''}. It would look better there than it is; "
                "--force uses it nevertheless."
            )
        if seen:
            notes.append(f"The fit was fitted to {len(seen)} of these cases: what it says of them is too good.")
        return notes

    def other_unit(self, voxel_ml: float) -> str | None:
        """Why a voxel has a volume that no change of scanner explains; None if it has not."""
        low, high = self.voxel_ml
        if low / _OTHER_UNIT < voxel_ml < high * _OTHER_UNIT:
            return None
        return (
            f"a voxel has {voxel_ml:.3g} ml; those that {self.file} was fitted to have {low:.3g} to {high:.3g} ml. Is "
            "the spacing in another unit than mm?"
        )

    def judged(self, case: CountedCase, structure: str, threshold: float | None = None) -> Judged:
        """What it predicts of a structure and what is true, and the share missed below one of ``THRESHOLDS``."""
        one, counts = judged(case, structure), case.counts.structures[structure]
        assert counts.truth is not None
        fitted = self.structures[structure]
        one = replace(one, interval_ml=fitted.volume.interval_ml(one.expected_ml))
        if threshold is not None and counts.truth.voxels:
            one = replace(one, missed=float(counts.truth.rates()[np.searchsorted(THRESHOLDS, threshold)]))
        if fitted.dice is None or not counts.truth.sums.segmented:
            return one
        predicted = counts.truth.sums.predicted_dice
        dice, low = fitted.dice.expected(predicted), fitted.dice.lower_bound(predicted)
        return replace(one, fitted_dice=float(dice), dice_low=float(low))

    def summary(self) -> str:
        """A few lines for people."""
        lines = [f"Fitted to {len(self.cases)} cases, for a coverage of {self.coverage:g}."]
        for name, fit in self.structures.items():
            low, high = np.exp([fit.volume.low, fit.volume.high])
            dice = (
                f"no Dice: {fit.no_dice}"
                if fit.dice is None
                else f"Dice at least {fit.dice.margin:+.3f} from the fitted one"
            )
            lines.append(
                f"  {name}: volume {low:.2f} to {high:.2f} times the expected one (± {fit.volume.epsilon_ml:.3g} ml); "
                f"{dice}"
            )
        lines += [f"  {part.part}: {part.error}" for part in self.held_out.parts if part.error is not None]
        if self.held_out.judgements:
            lines += ["On held-out cases:", judgement_table(self.held_out.judgements)]
        else:
            lines.append("No values for held-out cases: it is not known how good this is.")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Stored:
    format: Literal["review fit of nnunet_nacl"]
    fit: ReviewFit


def fit_review(
    predictions: Predictions,
    *,
    coverage: float = 0.9,
    output: str | Path | None = None,
    num_processes: int = 1,
    seed: int = 0,
    ignore_geometry: bool = False,
    overwrite: bool = False,
) -> ReviewFit:
    """Fit predicted Dice, volume intervals and recall thresholds of each structure; write them as JSON.

    A case that cannot be used is in ``skipped`` with the reason. Of several folds each is held out in turn; a folder's
    cases are split into five parts. Run again after an interruption, it goes on with the cases that are left.

    Args:
        predictions: with ground truth: a folder, or the validation cases of a model, but not of fold ``all``.
        coverage: of the volume intervals and of the lower bound of the Dice, in (0, 1).
        output: the file; by default ``review_fit.json`` in the folder of predictions, or in the model's folder, which
            a rerun replaces.
        num_processes: how many cases are counted at a time.
        seed: at least 0, of the halves that the map of the Dice and its bound are fitted to, and of the five parts.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.
        overwrite: replace an output that exists.

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output exists or cannot be written.
        ValueError: no case can be used, or too few for the coverage; an argument has a value that it cannot have.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1; got {coverage}.")
    if seed < 0:
        raise ValueError(f"seed must be at least 0; got {seed}.")
    if "fold all" in predictions.groups:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: they look better than new ones would."
        )
    home = predictions.model_folder or predictions.pred_folders[0]
    file = check_output(output or home / FIT_NAME, overwrite=overwrite or output is None)
    predicted = predictions.to_fit_to()
    calibration, decoded = _shared_calibration(predictions.pred_folders), _shared_decoding(predictions.pred_folders)
    data_set = predicted.read_data_set()
    if not data_set.meaning.structures:
        raise ValueError(f"{predictions.dataset_json}: expected 2 labels or more, the background being one; got 1.")
    settings = CountSettings(truth=True, curves=True, ignore_geometry=ignore_geometry)
    with only_writer(file):
        counted, skipped, journal = count_cases(
            predicted.cases, data_set, settings, beside=file, known={}, num_processes=num_processes
        )
        if not counted:
            raise ValueError(
                f"None of {len(predicted.cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}"
            )
        by_name = {case.case: case for case in counted}
        parts = {
            group: [case.name for case in cases if case.name in by_name] for group, cases in predicted.groups.items()
        }
        if len(parts) == 1:
            from nnunet_nacl.calibrate import split_cases  # it imports torch, which worker processes need not spend

            parts = split_cases(list(by_name), seed)
        volumes = [case.counts.voxel_ml for case in counted]
        result = ReviewFit(
            model=Model.of_folder(home, predictions.plans, data_set),
            calibration=calibration,
            decoded=decoded,
            coverage=coverage,
            voxel_ml=(min(volumes), max(volumes)),
            structures=_fit_structures(counted, coverage, seed),
            held_out=HeldOut([], []),
            cases=sorted(by_name),
            gt_folder=str(predictions.gt_folder),
            pred_folders=list(map(str, predictions.pred_folders)),
            skipped=skipped,
        )
        result = replace(result, held_out=_hold_out(result, by_name, parts, seed))
        write_json(file, asdict(_Stored(_FORMAT, result)))
        journal.remove()
    return replace(result, file=file)


def judged(case: CountedCase, structure: str) -> Judged:
    """What is predicted of a structure without a fit, and what is true of it, over the voxels that are not ignored."""
    truth, voxel_ml = case.counts.structures[structure].truth, case.counts.voxel_ml
    assert truth is not None
    expected_ml = voxel_ml * truth.sums.probability
    return Judged(case.case, structure, truth.sums.dice_to_expect, truth.dice, expected_ml, truth.voxels * voxel_ml)


def _calibration_of(folder: Path) -> str | None:
    from nnunet_nacl.calibrate import calibration_of  # as above

    return calibration_of(folder)


def _said(done: str, how: str | None) -> str:
    return f"not {done}" if how is None else f"{done} ({how})"


def _method(calibration: str | None) -> str:
    return str(calibration).split()[0]


def _shared_calibration(folders: Sequence[Path]) -> str | None:
    """How the predictions were calibrated: all alike, or each folder by a fit of its own."""
    found = {folder: _calibration_of(folder) for folder in folders}
    different = set(found.values())
    if len(different) > 1 and None in different:
        listed = ", ".join(f"{folder} ({how or 'not calibrated'})" for folder, how in found.items())
        raise ValueError(f"Some of the folders are calibrated, and some are not: {listed}.")
    if len(different) > 1 or all(folder.name == "validation_calibrated" for folder in folders):
        return " or ".join(sorted({_method(how) for how in different})) + _EACH
    return next(iter(different))


def _shared_decoding(folders: Sequence[Path]) -> str | None:
    found = {decoding_of(folder) for folder in folders}
    if len(found) > 1:
        raise ValueError(f"The folders are not decoded alike: {', '.join(map(str, folders))}.")
    return next(iter(found))


def _fit_structures(cases: Sequence[CountedCase], coverage: float, seed: int) -> dict[str, StructureFit]:
    epsilon_ml = _EPSILON_VOXELS * median(case.counts.voxel_ml for case in cases)
    fits: dict[str, StructureFit] = {}
    for name in cases[0].counts.structures:
        rows = [judged(case, name) for case in cases]
        expected, true = [row.expected_ml for row in rows], [row.true_ml for row in rows]
        try:
            volume = fit_volume(expected, true, epsilon_ml=epsilon_ml, coverage=coverage)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        truths = [truth for case in cases if (truth := case.counts.structures[name].truth) is not None]
        segmented = [truth for truth in truths if truth.sums.segmented]
        dice = reason = None
        try:
            dice = fit_dice(
                [truth.sums.predicted_dice for truth in segmented],
                [truth.dice for truth in segmented],
                kind="isotonic" if len(segmented) >= _ISOTONIC else "linear",
                coverage=coverage,
                seed=seed,
            )
        except ValueError as error:
            reason = str(error)
        missed = MissedShare.of([truth.rates() for truth in truths if truth.voxels])
        fits[name] = StructureFit(volume, dice, missed, reason)
    return fits


def _hold_out(
    fit: ReviewFit, cases: Mapping[str, CountedCase], parts: Mapping[str, Sequence[str]], seed: int
) -> HeldOut:
    """Judge each part with a fit to the others."""
    alpha = 1 - fit.coverage
    pooled: list[Judged] = []
    results: list[HeldOutPart] = []
    for part, names in parts.items():
        others = [cases[name] for other in parts if other != part for name in parts[other]]
        if not names or not others:
            error = "no case in it." if not names else "no case in the others."
            results.append(HeldOutPart(part, sorted(names), [], error))
            continue
        try:
            of_others = replace(fit, structures=_fit_structures(others, fit.coverage, seed))
        except ValueError as error:
            results.append(HeldOutPart(part, sorted(names), [], f"without it, {error}"))
            continue
        rows = [
            of_others.judged(cases[name], structure, _threshold(fitted, alpha))
            for structure, fitted in of_others.structures.items()
            for name in names
        ]
        results.append(HeldOutPart(part, sorted(names), judge(rows)))
        pooled += rows
    by_structure = sorted(pooled, key=lambda row: list(fit.structures).index(row.structure))
    return HeldOut(results, judge(by_structure))


def _threshold(fit: StructureFit, alpha: float) -> float | None:
    """The recall threshold; None if too few cases have the structure."""
    enough = fit.missed.num_cases >= math.ceil(1 / alpha - 1 - 1e-9)
    return fit.missed.threshold(alpha) if enough else None
