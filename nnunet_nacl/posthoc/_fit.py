"""Fits a method to predictions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from nnunet_nacl.files import check_file
from nnunet_nacl.nnunet import CaseFiles, Predictions
from nnunet_nacl.posthoc._fit_file import Fit, Skipped, versions
from nnunet_nacl.posthoc._held_out import bias_of, change, held_out_figures, split_cases
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import METHODS, fit_method
from nnunet_nacl.posthoc._model import APPLIED_NAME, Model
from nnunet_nacl.posthoc._sample import CHOSEN_BY_LABEL, VOXELS, Sample, VoxelSet, sample_case
from nnunet_nacl.posthoc._surroundings import NUM_PLACES, Images
from nnunet_nacl.posthoc._vector import VectorScaling

NUM_VALUES = 2_000_000
"""Voxels times channels that are drawn at most, if nothing else is asked for: 16 MB in float64."""

NUM_VALUES_AROUND = 25_000_000
"""Voxels times channels times places around them, for the method local: 50 MB in float16."""

_TAKE_ONLY: dict[str, tuple[tuple[VoxelSet, ...], str]] = {
    VectorScaling.method: (
        ("image",),
        "changes segmentations, so it must see all of the background that was predicted rightly",
    ),
    LocalTemperature.method: (
        ("near", "image"),
        "gives arbitrary temperatures to places unlike those that it has seen, which must not depend on labels",
    ),
}
"""The sets that a method can be fitted to, the default first, and why; others take all sets."""


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

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written.
        ValueError: no case can be used, the predictions are calibrated already, an argument has a value that it cannot
            have, or the voxels do not determine the method's parameters.
    """
    _check_predictions(predictions)
    voxels = _checked_voxels(method, voxels, margin_mm, images)
    local = method == LocalTemperature.method
    home = predictions.model_folder or predictions.pred_folders[0]
    file = check_file(Path(output) if output else home / f"posthoc_{method}.json")
    predicted = predictions.predicted()
    cases = [case for group in predicted.groups.values() for case in group]
    folders = list(map(str, predictions.pred_folders))
    if not cases:
        raise ValueError(f"No prediction found in {', '.join(folders)}; train or validate with --npz.")
    data_set = predicted.read_data_set()
    if data_set.meaning.regions is None and data_set.meaning.num_channels < 2:
        raise ValueError(f"{predictions.dataset_json}: expected 2 labels or more, the background being one; got 1.")
    found = None if images is None else Images.find(Path(images), data_set, predictions.dataset_json)
    if num_voxels is None:
        channels = data_set.meaning.num_channels + (found.channels if found else 0)
        num_voxels = NUM_VALUES_AROUND // (NUM_PLACES * channels) if local else NUM_VALUES // channels
    if num_voxels < len(cases):
        raise ValueError(f"num_voxels must be at least the number of cases, {len(cases)}; got {num_voxels}.")

    draw = partial(
        sample_case,
        data_set=data_set,
        margin_mm=margin_mm,
        most=num_voxels // len(cases),
        seed=seed,
        surroundings=local,
        images=found,
    )
    samples, skipped = _samples(cases, partial(draw, voxels=voxels))
    if not samples:
        raise ValueError(f"None of {len(cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}")
    whole = Sample.join(list(samples.values()))
    if whole.size == 0:
        raise ValueError(f"No voxel in the set {voxels} in any of {len(samples)} cases.")
    calibrator = fit_method(method, whole.probabilities, whole.truth, whole.surroundings)
    if isinstance(calibrator, LocalTemperature) and voxels == "near":
        calibrator = replace(calibrator, margin_mm=margin_mm)
    bias = None
    if voxels in CHOSEN_BY_LABEL:
        near, _ = _samples([case for case in cases if case.name in samples], partial(draw, voxels="near"))
        bias = bias_of(method, calibrator, Sample.join(list(near.values())))
    if len(predicted.groups) > 1:
        parts = {
            name: [case.name for case in group if case.name in samples] for name, group in predicted.groups.items()
        }
    else:
        parts = split_cases(list(samples), seed)
    result = Fit(
        calibrator,
        Model.of_folder(home, predictions.dataset_json, predictions.plans, data_set),
        sorted(samples),
        {
            "gt_folder": str(predictions.gt_folder),
            "pred_folder": folders if predictions.model_folder else folders[0],
            "images": None if images is None else str(images),
            "voxels": voxels,
            "margin_mm": margin_mm,
            "num_voxels": num_voxels,
            "seed": seed,
        },
        {"voxels": whole.size, "available": whole.available, "zeros": whole.zeros},
        change(calibrator, whole),
        held_out_figures(method, samples, parts),
        skipped,
        versions(),
        bias,
    )
    result.write(file)
    return replace(result, file=file)


def _check_predictions(predictions: Predictions) -> None:
    """Raise a ValueError if they are no predictions to fit to."""
    for folder in (predictions.gt_folder, *predictions.pred_folders):
        if (folder / APPLIED_NAME).exists():
            raise ValueError(f"{folder} is calibrated already ({APPLIED_NAME}); fit to what the model predicted.")
    if "fold all" in predictions.groups:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: a fit to them would be too mild."
        )


def _checked_voxels(method: str, voxels: VoxelSet | None, margin_mm: float, images: str | Path | None) -> VoxelSet:
    """The set to fit to; raises a ValueError for options that do not go."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    if voxels is not None and voxels not in VOXELS:
        raise ValueError(f"voxels must be one of {', '.join(VOXELS)}; got {voxels!r}.")
    if not 0 <= margin_mm < math.inf:
        raise ValueError(f"margin_mm must be at least 0 and finite; got {margin_mm}.")
    possible, reason = _TAKE_ONLY.get(method, (VOXELS, ""))
    if voxels is not None and voxels not in possible:
        raise ValueError(f"{method} scaling {reason}; voxels must be {' or '.join(possible)}; got {voxels}.")
    if images is not None and method != LocalTemperature.method:
        raise ValueError(f"images are looked at by the method {LocalTemperature.method} only; got {method}.")
    return voxels or possible[0]


def _samples(
    cases: Sequence[CaseFiles], draw: Callable[[CaseFiles], Sample]
) -> tuple[dict[str, Sample], list[Skipped]]:
    samples: dict[str, Sample] = {}
    skipped: list[Skipped] = []
    for case in tqdm(cases, desc="reading", unit="case"):
        found = case.missing() or _attempt(case, draw)
        if isinstance(found, str):
            skipped.append(Skipped(case.name, found))
        else:
            samples[case.name] = found
    return samples, skipped


def _attempt(case: CaseFiles, draw: Callable[[CaseFiles], Sample]) -> Sample | str:
    """The sample, or the reason why there is none: a bad case must not take the others with it."""
    try:
        return draw(case)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001
        return f"{case.probabilities}: {type(error).__name__}: {error}"
