"""Random images of nested structures whose true class posterior is known at every pixel, as a data set of nnU-Net.

A star-shaped organ lies on background. Its outline is sharp. Inside it three structures are nested: cortex (1), medulla
(2) and core (3). The two boundaries between them are ambiguous, hardly so on one side of the organ and broadly on the
other:

    depth      d = 1 - r / R(θ)               0 at the outline, 1 at the center
    softness   s(θ) between 0.02 and 0.15
    P(y >= 2)  = sigmoid((d - 0.35) / s)      inside the outline
    P(y >= 3)  = sigmoid((d - 0.65) / s)

Labels are drawn from this posterior, independently at each pixel. The image shows the expected intensity under the
posterior, as partial volume does, plus noise. No model can know the labels better than the posterior, and its
confidences are right by construction. Since the outline is sharp, this holds within the foreground of the labels, too.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray
from scipy.special import expit

from nnunet_nacl.files import write_json
from nnunet_nacl.typing import Singles

DATASET = "Dataset996_NestedStructures"
LABELS = {"background": 0, "cortex": 1, "medulla": 2, "core": 3}
NUM_TRAINING = 40
NUM_TEST = 30
SIZE = 64
_ENDING = ".nii.gz"
_INTENSITIES = (0.0, 1.0, 0.4, 0.8)
_NOISE = 0.1
_BOUNDARIES = (0.35, 0.65)
_SOFTNESS = (0.02, 0.15)


class DemoCase(NamedTuple):
    """One image.

    Attributes:
        image: float32 (H, W).
        posterior: float32 (4, H, W), the distribution that each pixel's label was drawn from.
        labels: uint8 (H, W).
    """

    image: Singles
    posterior: Singles
    labels: NDArray[np.uint8]


def draw_case(generator: np.random.Generator) -> DemoCase:
    """Draw an organ, its image and its labels."""
    center = SIZE * generator.uniform(0.42, 0.58, size=2)
    y, x = np.mgrid[:SIZE, :SIZE] - center[:, None, None]
    radius = np.hypot(y, x)
    angle = np.arctan2(y, x)

    outline = np.full_like(radius, SIZE * generator.uniform(0.32, 0.40))
    for wave in (2, 3, 4):
        outline *= 1 + generator.normal(0, 0.05) * np.cos(
            wave * angle + generator.uniform(0, 2 * np.pi)
        )
    depth = 1 - radius / outline

    low, high = np.log(_SOFTNESS)
    side = (1 + np.cos(angle + generator.uniform(0, 2 * np.pi))) / 2
    softness = np.exp(low + (high - low) * side)
    inside = depth > 0
    beyond = [inside * expit((depth - boundary) / softness) for boundary in _BOUNDARIES]
    tail = np.stack([np.ones_like(depth), inside.astype(float), *beyond, np.zeros_like(depth)])
    posterior = tail[:-1] - tail[1:]  # P(y = k) = P(y >= k) - P(y >= k + 1)

    mean_intensity = np.tensordot(_INTENSITIES, posterior, axes=1)
    image = mean_intensity + generator.normal(0, _NOISE, size=mean_intensity.shape)
    labels = (generator.random(depth.shape) < tail[1:-1]).sum(0)
    return DemoCase(image.astype(np.float32), posterior.astype(np.float32), labels.astype(np.uint8))


def write_data_set(folder: Path) -> None:
    """Write ``<DATASET>/`` (imagesTr, labelsTr, imagesTs, labelsTs, posteriorTs) into ``folder``.

    ``dataset.json`` is written last: with it, the data set is complete. ``posteriorTs`` looks like a folder of
    predictions made with ``--save_probabilities`` by a model that knows the truth.
    """
    folder = folder / DATASET
    for name in ("imagesTr", "labelsTr", "imagesTs", "labelsTs", "posteriorTs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for number in range(NUM_TRAINING + NUM_TEST):
        part = "Tr" if number < NUM_TRAINING else "Ts"
        name = f"nested_{number:03d}"
        case = draw_case(generator)
        _write_image(case.image, folder / f"images{part}" / f"{name}_0000{_ENDING}")
        _write_image(case.labels, folder / f"labels{part}" / f"{name}{_ENDING}")
        if part == "Ts":
            _write_image(
                case.posterior.argmax(0).astype(np.uint8),
                folder / "posteriorTs" / f"{name}{_ENDING}",
            )
            np.savez_compressed(
                folder / "posteriorTs" / f"{name}.npz", probabilities=case.posterior[:, None]
            )
    description = {
        "channel_names": {"0": "synthetic"},
        "labels": LABELS,
        "numTraining": NUM_TRAINING,
        "file_ending": _ENDING,
    }
    for target in (folder / "posteriorTs", folder):
        write_json(target / "dataset.json", description)


def _write_image(pixels: NDArray[np.generic], file: Path) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(pixels), str(file))
