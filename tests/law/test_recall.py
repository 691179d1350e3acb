"""The law of the recall guarantee: over exchangeable cases, at most a share alpha of a structure is missed.

Regions, with their probabilities as the posterior says. nnU-Net writes the masks p ≥ λ into a label map. It keeps the
promise for nested regions, and for regions that overlap without nesting only the masks themselves do, which is why
``decode`` refuses these. Thresholds of partly labelled images may miss more of
whole ones, which is why ``fit_review`` warns.
"""

from typing import NamedTuple

import numpy as np
import pytest
from nnunetv2.utilities.label_handling.label_handling import LabelManager
from scipy.ndimage import gaussian_filter

from nnunet_nacl.metrics import RECALL_THRESHOLDS
from nnunet_nacl.use import recall_threshold
from tests.generated import OVERLAPPING, REGIONS

ALPHA, NUM_CASES, REPEATS = 0.1, 29, 400


class Image(NamedTuple):
    """p (2, Y, X) of two regions, their masks in the ground truth, and what of each masks p ≥ threshold miss (2, T)."""

    p: np.ndarray
    inside: np.ndarray
    missed: np.ndarray


def missed_share(p: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Of a structure, by masks of p ≥ each of ``RECALL_THRESHOLDS``."""
    return (p[inside][:, np.newaxis] < RECALL_THRESHOLDS).mean(0)


def draw(generator: np.random.Generator, nested: bool) -> Image:
    """Its outlines lie further in or out as a whole, and its model is too sure by a factor of its own."""
    shape = (24, 32)
    y, x = np.indices(shape)
    depths = []
    for place in (0.5, 0.5) if nested else (0.38, 0.62):
        wave = gaussian_filter(generator.normal(size=shape), 4)
        depths.append(8 - np.hypot(y - 12, x - 32 * place) + 8 * wave)
    if nested:
        depths[1] = depths[0] - 3
    inside = np.array(depths) > generator.normal(0, 1.5)
    p = 1 / (1 + np.exp(-generator.uniform(0.5, 2) * np.array(depths)))
    missed = [missed_share(one, mask) for one, mask in zip(p, inside, strict=True)]
    return Image(p, inside, np.array(missed))


def written(p: np.ndarray, thresholds: list[float], labels: dict[str, object]) -> np.ndarray:
    """The regions (2, Y, X) of the label map that nnU-Net writes of the masks."""
    masks = np.array([one >= threshold for one, threshold in zip(p, thresholds, strict=True)])
    manager = LabelManager(labels, [1, 2])
    label_map = manager.convert_probabilities_to_segmentation(masks.astype(np.float32))
    return np.array([np.isin(label_map, region) for region in manager.foreground_regions])


@pytest.mark.parametrize("nested", [True, False])
def test_at_most_alpha_is_missed_of_whole_images(nested: bool) -> None:
    generator = np.random.default_rng(nested)
    images = [draw(generator, nested) for _ in range(300)]
    labels = REGIONS if nested else OVERLAPPING
    of_masks, of_label_maps = [], []
    for _ in range(REPEATS):
        *known, new = (images[number] for number in generator.permutation(len(images))[: NUM_CASES + 1])
        rates = np.mean([image.missed for image in known], axis=0)
        thresholds = [recall_threshold(of_region, NUM_CASES, ALPHA) for of_region in rates]
        masks = [one >= threshold for one, threshold in zip(new.p, thresholds, strict=True)]
        maps = written(new.p, thresholds, labels)
        of_masks.append([1 - found[mask].mean() for found, mask in zip(masks, new.inside, strict=True)])
        of_label_maps.append([1 - found[mask].mean() for found, mask in zip(maps, new.inside, strict=True)])
    mean, error = np.mean(of_masks, axis=0), np.std(of_masks, axis=0) / np.sqrt(REPEATS)
    assert (mean <= ALPHA + 3 * error).all()
    assert (mean >= ALPHA - 2 / (NUM_CASES + 1) - 3 * error).all()  # it is not wastefully careful
    of_first, of_second = np.mean(of_label_maps, axis=0)
    assert of_second == mean[1]
    if nested:
        assert of_first <= mean[0]
    else:
        assert of_first > 3 * ALPHA


def test_thresholds_of_sparse_annotation_miss_more_of_whole_images() -> None:
    """Of each image, three rows through the structure are labelled: there, less of it is outline."""
    generator = np.random.default_rng(0)
    images = [draw(generator, True) for _ in range(300)]
    labelled = slice(11, 14)
    of_rows = []
    for image in images:
        p, inside = image.p[0, labelled], image.inside[0, labelled]
        of_rows.append(missed_share(p, inside))
    of_images = np.array([image.missed[0] for image in images])
    missed = []
    for _ in range(REPEATS):
        order = generator.permutation(len(images))
        known, new = order[:NUM_CASES], order[NUM_CASES:]
        threshold = recall_threshold(np.mean(np.array(of_rows)[known], axis=0), NUM_CASES, ALPHA)
        missed.append(of_images[new, np.searchsorted(RECALL_THRESHOLDS, threshold)].mean())
    assert np.mean(missed) > ALPHA + 3 * np.std(missed) / np.sqrt(REPEATS)
    assert np.mean(missed) == pytest.approx(0.125, abs=0.003)  # docs/use.md
