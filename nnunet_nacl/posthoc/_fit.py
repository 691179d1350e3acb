"""Fits a method to predictions, and judges it by held-out cases."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.files import check_file
from nnunet_nacl.metrics import BinCounts, expected_calibration_error, nll_sum
from nnunet_nacl.nnunet import CALIBRATED_NAME, CaseFiles, Model, Predictions
from nnunet_nacl.posthoc._calibrator import Calibrator
from nnunet_nacl.posthoc._methods import method_of
from nnunet_nacl.posthoc._result import (
    FIT,
    Bias,
    Change,
    Fit,
    FitSettings,
    HeldOut,
    HeldOutPart,
    Metrics,
    SampleSize,
)
from nnunet_nacl.posthoc._surroundings import Images
from nnunet_nacl.posthoc._voxels import CHOSEN_BY_LABEL, VOXELS, Sample, VoxelSet, sample_case
from nnunet_nacl.posthoc._written import Skipped

NUM_PARTS = 5


def fit(
    predictions: Predictions,
    *,
    method: str = "temperature",
    voxels: VoxelSet | None = None,
    margin_mm: float = 5.0,
    images: str | Path | None = None,
    output: str | Path | None = None,
    num_voxels: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> Fit:
    """Fit a method to predictions that nnU-Net saved with their probabilities.

    Writes the fit as JSON. A case that cannot be used is in ``skipped`` with the reason. Of several folds each is held
    out in turn; a folder's cases are split into five parts, with a seed, to get values on held-out cases.

    Args:
        predictions: a folder, or the validation cases of a model, but not of fold ``all``.
        method: one of ``METHODS``.
        voxels: near = within ``margin_mm`` of where the prediction gives the foreground more than 0.05, the default;
            image = all, the default of vector, which takes no other. union = {y > 0 or predicted > 0} and foreground =
            {y > 0} choose voxels by their label, which favours under-confident models: the fit's ``bias`` says how
            much. local takes near and image.
        margin_mm: of near.
        images: folder with the images, ``CASE_0000<file_ending>``: the method local then looks at them, too.
        output: the file; by default ``posthoc_METHOD.json`` in the folder of predictions, or in the model's folder.
        num_voxels: how many voxels are drawn at most, the same number from each case; by default 2,000,000 divided by
            the number of channels (local: 200,000, divided by channels and images).
        seed: of the draw and the split.
        overwrite: replace a file that is no fit, too.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written, or there is a file that is no fit.
        ValueError: no case can be used, the predictions are calibrated already, an argument has a value that it cannot
            have, or the voxels do not determine the method's parameters.
    """
    _check_predictions(predictions)
    kind = method_of(method)
    voxels = _checked_voxels(kind, voxels, margin_mm)
    if images is not None and not kind.sees_surroundings:
        raise ValueError(f"the method {method} does not look at images; got {images}.")
    home = predictions.model_folder or predictions.pred_folders[0]
    file = check_file(Path(output) if output else home / f"posthoc_{method}.json", FIT, overwrite=overwrite)
    predicted = predictions.to_fit_to()
    cases = [case for group in predicted.groups.values() for case in group]
    folders = list(map(str, predictions.pred_folders))
    data_set = predicted.read_data_set()
    if data_set.meaning.regions is None and data_set.meaning.num_channels < 2:
        raise ValueError(f"{predictions.dataset_json}: expected 2 labels or more, the background being one; got 1.")
    image_folder = None if images is None else Images.find(Path(images), data_set, predictions.dataset_json)
    if num_voxels is None:
        image_channels = image_folder.channels if image_folder else 0
        num_voxels = kind.default_num_voxels(data_set.meaning.num_channels + image_channels)
    if num_voxels < len(cases):
        raise ValueError(f"num_voxels must be at least the number of cases, {len(cases)}; got {num_voxels}.")

    draw = partial(
        sample_case,
        data_set=data_set,
        margin_mm=margin_mm,
        most=num_voxels // len(cases),
        seed=seed,
        surroundings=kind.sees_surroundings,
        images=image_folder,
        ignore_geometry=ignore_geometry,
    )
    samples, skipped = _samples(cases, partial(draw, voxels=voxels))
    if not samples:
        raise ValueError(f"None of {len(cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}")
    whole = Sample.join(list(samples.values()))
    if whole.size == 0:
        raise ValueError(f"No voxel in the set {voxels} in any of {len(samples)} cases.")
    calibrator = kind.fit(whole)
    bias = None
    if voxels in CHOSEN_BY_LABEL:
        near, _ = _samples([case for case in cases if case.name in samples], partial(draw, voxels="near"))
        bias = bias_of(calibrator, Sample.join(list(near.values())))
    if len(predicted.groups) > 1:
        parts = {
            name: [case.name for case in group if case.name in samples] for name, group in predicted.groups.items()
        }
    else:
        parts = split_cases(list(samples), seed)
    result = Fit(
        calibrator=calibrator,
        model=Model.of_folder(home, predictions.plans, data_set),
        cases=sorted(samples),
        settings=FitSettings(
            gt_folder=str(predictions.gt_folder),
            pred_folder=folders if predictions.model_folder else folders[0],
            images=None if images is None else str(images),
            voxels=voxels,
            margin_mm=margin_mm,
            num_voxels=num_voxels,
            seed=seed,
        ),
        sample=SampleSize(whole.size, whole.available, whole.zeros),
        fitted=Tally.of(calibrator, whole).change(),
        held_out=hold_out(kind, samples, parts),
        skipped=skipped,
        bias=bias,
    )
    result.write(file, overwrite=overwrite)
    return replace(result, file=file)


def _check_predictions(predictions: Predictions) -> None:
    """Raise a ValueError if a method must not be fitted to these predictions."""
    for folder in (predictions.gt_folder, *predictions.pred_folders):
        if (folder / CALIBRATED_NAME).exists():
            raise ValueError(f"{folder} is calibrated already ({CALIBRATED_NAME}); fit to what the model predicted.")
    if "fold all" in predictions.groups:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: a fit to them would correct too little."
        )


def _checked_voxels(kind: type[Calibrator], voxels: VoxelSet | None, margin_mm: float) -> VoxelSet:
    """The set to fit to; raises a ValueError if the method cannot be fitted to it."""
    if voxels is not None and voxels not in VOXELS:
        raise ValueError(f"voxels must be one of {', '.join(VOXELS)}; got {voxels!r}.")
    if not 0 <= margin_mm < math.inf:
        raise ValueError(f"margin_mm must be at least 0 and finite; got {margin_mm}.")
    if voxels is not None and voxels not in kind.voxel_sets:
        possible = " or ".join(kind.voxel_sets)
        raise ValueError(f"{kind.method} scaling {kind.voxel_sets_reason}; voxels must be {possible}; got {voxels}.")
    return voxels or kind.voxel_sets[0]


def _samples(
    cases: Sequence[CaseFiles], draw: Callable[[CaseFiles], Sample]
) -> tuple[dict[str, Sample], list[Skipped]]:
    """A sample of each case, or the reason why there is none: a bad case must not take the others with it."""
    samples: dict[str, Sample] = {}
    skipped: list[Skipped] = []
    for case in tqdm(cases, desc="reading", unit="case"):
        reason = case.missing()
        if reason is None:
            try:
                samples[case.name] = draw(case)
            except (ValueError, FileNotFoundError) as error:
                reason = str(error)
            except Exception as error:  # noqa: BLE001
                reason = f"{case.probabilities}: {type(error).__name__}: {error}"
        if reason is not None:
            skipped.append(Skipped(case.name, reason))
    return samples, skipped


@dataclass(frozen=True)
class Tally:
    """What NLL and ECE of voxels before and after calibration are computed from; tally of parts add up.

    Attributes:
        nll: (2, rows) summed over voxels; a row for all classes, or one for each region.
        bins: (2, rows, 15) of the confidence in what is predicted, and whether it is right.
    """

    nll: NDArray[np.float64]
    bins: BinCounts

    @classmethod
    def of(cls, calibrator: Calibrator, sample: Sample) -> "Tally":
        """Count the voxels of a sample."""
        link, truth = sample.link, sample.truth
        nll, bins = [], []
        for p in (sample.probabilities, calibrator.apply(sample.probabilities, sample.surroundings)):
            rows = zip(link.confidence(p), link.hits(p, truth), strict=True)
            bins.append(BinCounts.stack([BinCounts.of(confidence, hits) for confidence, hits in rows]))
            nll.append([nll_sum(row) for row in link.of_truth(p, truth)])
        return cls(np.array(nll), BinCounts.stack(bins))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.nll + other.nll, self.bins + other.bins)

    def change(self) -> Change:
        """Means over the rows."""
        nll, ece = self.nll / self.bins.total, expected_calibration_error(self.bins)
        before, after = (Metrics(float(n.mean()), float(e.mean())) for n, e in zip(nll, ece, strict=True))
        return Change(before, after)


def hold_out(kind: type[Calibrator], samples: Mapping[str, Sample], parts: Mapping[str, Sequence[str]]) -> HeldOut:
    """Fit to all parts but one, and calibrate that one; each part in turn.

    Args:
        kind: the method.
        samples: by case.
        parts: cases by name of the part.
    """
    results: list[HeldOutPart] = []
    pooled: Tally | None = None
    for name, cases in parts.items():
        inside = [samples[case] for case in cases if samples[case].size]
        others = [samples[case] for other in parts if other != name for case in parts[other]]
        part = HeldOutPart(name, sorted(cases), sum(sample.size for sample in inside))
        if not inside or not any(sample.size for sample in others):
            part = replace(part, error="no voxel in it." if not inside else "no voxel in the others.")
        else:
            try:
                calibrator = kind.fit(Sample.join(others))
            except ValueError as error:
                part = replace(part, error=f"without it, {error}")
            else:
                tally = Tally.of(calibrator, Sample.join(inside))
                part = replace(part, change=tally.change())
                pooled = pooled + tally if pooled else tally
        results.append(part)
    return HeldOut(results, pooled.change() if pooled else None)


def bias_of(biased: Calibrator, near: Sample) -> Bias:
    """Compare a fit to voxels that were chosen by their label with one to near.

    Args:
        biased: fitted to the other set.
        near: the voxels of near of the same cases.
    """
    try:
        honest = type(biased).fit(near)
    except ValueError as error:
        return Bias(error=str(error))
    this, other = Tally.of(biased, near).change(), Tally.of(honest, near).change()
    return Bias(honest, this.before.NLL, this.after.NLL, other.after.NLL)


def split_cases(cases: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Five parts of nearly one size, or as many as there are cases; drawn by their names."""
    drawn = sorted(cases, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    parts = min(NUM_PARTS, len(drawn))
    return {f"part {number + 1} of {parts}": drawn[number::parts] for number in range(parts)}
