"""The demo's data set in nnU-Net's raw format, and the true posterior in the format of nnU-Net's predictions."""

import json
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from nnunet_nacl.demo._model import LABELS, draw_case
from nnunet_nacl.files import whole_folder

DATASET = "Dataset996_NestedStructures"
NUM_TRAINING = 40
NUM_TEST = 30
ENDING = ".nii.gz"


def write_data_set(folder: Path, *, seed: int = 0) -> None:
    """Write ``<DATASET>/`` (imagesTr, labelsTr, imagesTs, labelsTs, dataset.json, posteriorTs) into ``folder``.

    ``posteriorTs`` looks like a folder of predictions made with ``--save_probabilities`` by a model that knows the
    truth. The data set appears whole or not at all.
    """
    with whole_folder(folder / DATASET) as partial:
        for name in ("imagesTr", "labelsTr", "imagesTs", "labelsTs", "posteriorTs"):
            (partial / name).mkdir()
        description = json.dumps(
            {
                "channel_names": {"0": "synthetic"},
                "labels": LABELS,
                "numTraining": NUM_TRAINING,
                "file_ending": ENDING,
            },
            indent=2,
        )
        (partial / "dataset.json").write_text(description)
        (partial / "posteriorTs" / "dataset.json").write_text(description)
        generator = np.random.default_rng(seed)
        for number in range(NUM_TRAINING + NUM_TEST):
            part = "Tr" if number < NUM_TRAINING else "Ts"
            name = f"nested_{number:03d}"
            case = draw_case(generator)
            _write_image(case.image, partial / f"images{part}" / f"{name}_0000{ENDING}")
            _write_image(case.labels, partial / f"labels{part}" / f"{name}{ENDING}")
            if part == "Ts":
                argmax = case.posterior.argmax(0).astype(np.uint8)
                _write_image(argmax, partial / "posteriorTs" / f"{name}{ENDING}")
                np.savez_compressed(partial / "posteriorTs" / f"{name}.npz", probabilities=case.posterior[:, None])


def _write_image(pixels: NDArray[np.generic], file: Path) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(pixels), str(file))
