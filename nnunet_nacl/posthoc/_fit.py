"""Fits a method to a folder of predictions, or to the validation cases of a model."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nnunet_nacl._whole import check_file
from nnunet_nacl.evaluation._cases import CaseFiles, DataSet, find_cases, read_dataset_json
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


def fit_folder(
    gt_folder: str | Path,
    pred_folder: str | Path,
    *,
    method: str = "temperature",
    voxels: VoxelSet | None = None,
    margin_mm: float = 5.0,
    images: str | Path | None = None,
    output: str | Path | None = None,
    dataset_json: str | Path | None = None,
    plans: str | Path | None = None,
    num_voxels: int | None = None,
    seed: int = 0,
) -> Fit:
    """Fit a method to a folder of nnU-Net predictions made with ``--save_probabilities``.

    Writes the fit as JSON. A case that cannot be used is in ``skipped`` with the reason. Figures on held-out cases come
    from a seeded split of the cases into five parts.

    Args:
        gt_folder: reference segmentations, ``CASE<file_ending>``.
        pred_folder: predicted segmentations of the same names and the probabilities, ``CASE.npz``.
        method: one of ``METHODS``.
        voxels: near = within ``margin_mm`` of where the prediction gives the foreground more than 0.05, the default;
            image = all, the default of vector, which takes no other. union = {y > 0 or predicted > 0} and foreground =
            {y > 0} choose voxels by their label, which favours under-confident models: the fit's ``bias`` says how
            much. local takes near and image.
        margin_mm: of near.
        images: folder with the images, ``CASE_0000<file_ending>``: the method local then looks at them, too.
        output: the file; by default ``posthoc_METHOD.json`` in ``pred_folder``.
        dataset_json: the data set's ``dataset.json``; by default the one in ``pred_folder``.
        plans: the ``plans.json`` whose reader is used; by default the one in ``pred_folder``, and without any the
            reader that fits the file ending.
        num_voxels: how many voxels are drawn at most, the same number from each case; by default 2,000,000 divided by
            the number of channels (local: 200,000, divided by channels and images).
        seed: of the draw and the split.

    Returns:
        The fit.

    Raises:
        FileNotFoundError: a folder, ``dataset.json`` or ``plans`` is missing.
        OSError: the output cannot be written.
        ValueError: no case can be used, an argument has a value that it cannot have, or the voxels do not determine
            the method's parameters.
    """
    references, predictions = Path(gt_folder), Path(pred_folder)
    _check_folders(references, predictions)
    dataset_file, plans_file = data_set_files(predictions, dataset_json, plans)
    cases = find_cases(references, predictions, read_dataset_json(dataset_file)["file_ending"])
    return _fit(
        {"": [case for case in cases if case.is_predicted]},
        predictions,
        dataset_file,
        plans_file,
        {"gt_folder": str(references), "pred_folder": str(predictions)},
        method=method,
        voxels=voxels,
        margin_mm=margin_mm,
        images=images,
        output=Path(output) if output else predictions / f"posthoc_{method}.json",
        num_voxels=num_voxels,
        seed=seed,
    )


def fit_model(
    dataset: str | int,
    configuration: str,
    *,
    trainer: str = "nnUNetTrainer",
    plans: str = "nnUNetPlans",
    folds: Sequence[int | str] = (0, 1, 2, 3, 4),
    method: str = "temperature",
    voxels: VoxelSet | None = None,
    margin_mm: float = 5.0,
    images: str | Path | None = None,
    output: str | Path | None = None,
    num_voxels: int | None = None,
    seed: int = 0,
) -> Fit:
    """As :func:`fit_folder`, to the validation cases of a model trained with ``nnUNetv2_train ... --npz``.

    References are those that nnU-Net keeps with the preprocessed data. Needs nnU-Net's environment variables.

    Args:
        dataset: name or number.
        configuration: ``2d``, ``3d_fullres``, ...
        trainer: name of the trainer.
        plans: name of the plans.
        folds: whose validation folders to take, not ``all``. Of several, each is held out in turn.
        method: see :func:`fit_folder`, as for what follows.
        voxels: which voxels.
        margin_mm: of near.
        images: folder with the images.
        output: the file; by default ``posthoc_METHOD.json`` in the model's folder.
        num_voxels: how many voxels are drawn at most.
        seed: of the draw.

    Raises:
        FileNotFoundError: a folder is missing.
        OSError: the output cannot be written.
        RuntimeError: nnU-Net's environment variables are not set, or it knows no such data set.
        ValueError: as :func:`fit_folder`.
    """
    from nnunetv2.paths import nnUNet_preprocessed
    from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name
    from nnunetv2.utilities.file_path_utilities import get_output_folder

    return fit_validation(
        get_output_folder(dataset, trainer, plans, configuration),
        Path(str(nnUNet_preprocessed)) / maybe_convert_to_dataset_name(dataset),
        folds,
        method=method,
        voxels=voxels,
        margin_mm=margin_mm,
        images=images,
        output=output,
        num_voxels=num_voxels,
        seed=seed,
    )


def fit_validation(
    model_folder: str | Path,
    preprocessed_folder: str | Path,
    folds: Sequence[int | str],
    *,
    method: str = "temperature",
    voxels: VoxelSet | None = None,
    margin_mm: float = 5.0,
    images: str | Path | None = None,
    output: str | Path | None = None,
    num_voxels: int | None = None,
    seed: int = 0,
) -> Fit:
    """As :func:`fit_model`, of folders.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        preprocessed_folder: the data set's, with ``gt_segmentations``.
        folds: see :func:`fit_model`, as for what follows.
        method: one of ``METHODS``.
        voxels: which voxels.
        margin_mm: of near.
        images: folder with the images.
        output: the file.
        num_voxels: how many voxels are drawn at most.
        seed: of the draw.

    Raises:
        FileNotFoundError: a folder is missing.
        OSError: the output cannot be written.
        ValueError: as :func:`fit_folder`.
    """
    model, references = Path(model_folder), Path(preprocessed_folder) / "gt_segmentations"
    validation = {f"fold {fold}": model / f"fold_{fold}" / "validation" for fold in folds}
    if not validation:
        raise ValueError("folds must name at least one fold; got none.")
    if "fold_all" in {f"fold_{fold}" for fold in folds}:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: a fit to them would be too mild."
        )
    _check_folders(model, references, *validation.values())
    dataset_file = model / "dataset.json"
    ending = read_dataset_json(dataset_file)["file_ending"]
    groups = {
        fold: [case for case in find_cases(references, folder, ending) if case.is_predicted]
        for fold, folder in validation.items()
    }
    cases = sorted((case for group in groups.values() for case in group), key=lambda case: case.name)
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(
                f"the case {case.name} is in {case.probabilities.parent} and in {following.probabilities.parent}: "
                "folds must not share cases."
            )
    return _fit(
        groups,
        model,
        dataset_file,
        model / "plans.json",
        {"gt_folder": str(references), "pred_folder": list(map(str, validation.values()))},
        method=method,
        voxels=voxels,
        margin_mm=margin_mm,
        images=images,
        output=Path(output) if output else model / f"posthoc_{method}.json",
        num_voxels=num_voxels,
        seed=seed,
    )


def data_set_files(
    pred_folder: Path, dataset_json: str | Path | None, plans: str | Path | None
) -> tuple[Path, Path | None]:
    """``dataset.json`` and, if there is one, ``plans.json`` of a folder, or of the model for a validation folder."""
    beside = pred_folder
    if pred_folder.name == "validation" and not (pred_folder / "dataset.json").is_file():
        beside = pred_folder.resolve().parent.parent
    dataset_file = Path(dataset_json) if dataset_json else beside / "dataset.json"
    if not dataset_file.is_file():
        raise FileNotFoundError(f"{dataset_file} does not exist; name the data set's dataset.json with -djfile.")
    plans_file = Path(plans) if plans else beside / "plans.json"
    return dataset_file, plans_file if plans or plans_file.is_file() else None


def _check_folders(*folders: Path) -> None:
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
        if (folder / APPLIED_NAME).exists():
            raise ValueError(f"{folder} is calibrated already ({APPLIED_NAME}); fit to what the model predicted.")


def _fit(
    groups: Mapping[str, Sequence[CaseFiles]],
    folder: Path,
    dataset_file: Path,
    plans_file: Path | None,
    places: dict[str, Any],
    *,
    method: str,
    voxels: VoxelSet | None,
    margin_mm: float,
    images: str | Path | None,
    output: Path,
    num_voxels: int | None,
    seed: int,
) -> Fit:
    voxels = _checked_voxels(method, voxels, margin_mm, images)
    local = method == LocalTemperature.method
    check_file(output)
    cases = [case for group in groups.values() for case in group]
    if not cases:
        raise ValueError(f"No prediction found in {places['pred_folder']}; train or validate with --npz.")
    references = [case.reference for case in cases if case.reference.is_file()]
    data_set = DataSet.read(dataset_file, plans_file, sorted(references, key=lambda file: file.stat().st_size))
    if data_set.meaning.regions is None and data_set.meaning.num_channels < 2:
        raise ValueError(f"{dataset_file}: expected 2 labels or more, the background being one; got 1.")
    found = None if images is None else Images.find(Path(images), data_set, dataset_file)
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
    if len(groups) > 1:
        parts = {name: [case.name for case in group if case.name in samples] for name, group in groups.items()}
    else:
        parts = split_cases(list(samples), seed)
    fit = Fit(
        calibrator,
        Model.of_folder(folder, dataset_file, plans_file, data_set),
        sorted(samples),
        {
            **places,
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
    fit.write(output)
    return replace(fit, file=output)


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
