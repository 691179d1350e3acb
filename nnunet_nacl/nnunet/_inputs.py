"""What a network sees: images and their ground truth, from nnU-Net's preprocessed data or preprocessed here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet._image_files import check_image_file
from nnunet_nacl.nnunet._splits import SPLITS_NAME, validation_cases

LoadCase = Callable[[str], tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]]
"""From a case's name to its preprocessed image (c, *spatial) and ground truth (*spatial), and nnU-Net's properties."""


def preprocessed_cases(predictor: Any, fold: int | str) -> tuple[list[str], LoadCase]:
    """The cases that a fold is validated on, from nnU-Net's preprocessed data.

    Args:
        predictor: the model's.
        fold: its number in ``splits_final.json``, or ``all`` for all cases.

    Raises:
        FileNotFoundError: the preprocessed data, the splits or a case is missing.
        RuntimeError: ``nnUNet_preprocessed`` is not set.
        ValueError: the splits have no such fold, or it has no case.
    """
    from nnunetv2.paths import nnUNet_preprocessed
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    data_set = Path(nnUNet_preprocessed.require()) / predictor.plans_manager.dataset_name
    folder = data_set / predictor.configuration_manager.data_identifier
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder: no preprocessed data of the model. Run nnUNetv2_preprocess, or give images "
            "and labels."
        )
    dataset_class = infer_dataset_class(str(folder))
    present = sorted(dataset_class.get_identifiers(str(folder)))
    names = present if str(fold) == "all" else validation_cases(data_set / SPLITS_NAME, int(fold))
    missing = sorted(set(names) - set(present))
    if missing:
        raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")

    def load(name: str) -> tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]:
        image, labels, _, properties = dataset_class(str(folder), [name]).load_case(name)
        return np.array(image[:], np.float32), np.asarray(labels[:])[0], properties

    return names, load


def labelled_cases(predictor: Any, images: str | Path, labels: str | Path) -> tuple[list[str], LoadCase]:
    """Images and their ground truth, preprocessed together as nnU-Net does before a training.

    Args:
        predictor: the model's.
        images: folder of ``CASE_0000<file_ending>``, and so on for each channel.
        labels: folder of ``CASE<file_ending>``.

    Raises:
        FileNotFoundError: a folder, an image or its ground truth is missing.
        ValueError: there is no case at all, or, when loaded, one that nnU-Net cannot preprocess.
    """
    description = predictor.dataset_json
    ending = description["file_ending"]
    channels = len(description.get("channel_names", description.get("modality")))
    for folder in (Path(images), Path(labels)):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    present = {file.name.removesuffix(ending) for file in Path(labels).glob(f"*{ending}")}
    present |= {file.name.removesuffix(f"_0000{ending}") for file in Path(images).glob(f"*_0000{ending}")}
    names = sorted(name for name in present if not name.startswith("."))
    if not names:
        raise ValueError(f"No case found: no *_0000{ending} in {images}, no *{ending} in {labels}.")
    files = {
        name: [*(Path(images) / f"{name}_{channel:04}{ending}" for channel in range(channels)),
               Path(labels) / f"{name}{ending}"]
        for name in names
    }  # fmt: skip
    for file in (file for of_case in files.values() for file in of_case):
        check_input(file, f": a case has {channels} image file(s) and a label file.")

    def load(name: str) -> tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]:
        preprocessor = predictor.configuration_manager.preprocessor_class(verbose=False)
        for file in files[name]:
            check_image_file(file, finite=file == files[name][-1])
        *channel_files, label_file = map(str, files[name])
        try:
            image, label_map, properties = preprocessor.run_case(
                channel_files, label_file, predictor.plans_manager, predictor.configuration_manager, description
            )
        except Exception as error:
            raise ValueError(f"{label_file} and its image cannot be preprocessed: {error}") from error
        return image.astype(np.float32, copy=False), label_map[0], properties

    return names, load
