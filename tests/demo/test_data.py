import numpy as np
import pytest

from nnunet_nacl.demo import LABELS, draw_case
from nnunet_nacl.metrics import Counts, evaluate_case, measure


def test_the_posterior_is_a_distribution_with_a_sharp_outline() -> None:
    case, same = (draw_case(np.random.default_rng(0)) for _ in range(2))
    assert case.posterior.shape == (len(LABELS), *case.image.shape)
    assert case.posterior.min() >= 0
    np.testing.assert_allclose(case.posterior.sum(0), 1, atol=1e-6)
    assert set(np.unique(case.posterior[0])) == {0, 1}
    assert np.array_equal(case.image, same.image)
    assert np.array_equal(case.labels, same.labels)


def test_labels_follow_the_posterior() -> None:
    """ECE of the true posterior, pooled: 0 over near and image; over sets chosen by label what is expected of it."""
    generator = np.random.default_rng(2)
    right, blunt = [], []
    for _ in range(60):
        case = draw_case(generator)
        labels = case.labels.astype(int)
        right.append(evaluate_case(case.posterior, labels))
        blunt.append(evaluate_case(0.8 * case.posterior + 0.05, labels))
    for voxels in ("near", "image", "foreground", "union"):
        true, blunted = (Counts.joined(found)[voxels] for found in (right, blunt))
        figures = measure(true)
        for metric in ("ECE", "CECE"):
            assert figures[metric] == pytest.approx(figures.get(f"{metric}_expected", 0), abs=0.005)
        assert abs(figures["over_confidence"]) < 0.005
        assert measure(blunted)["ECE"] > 0.05
        assert measure(blunted)["NLL"] > figures["NLL"] + 0.01


def test_labels_are_drawn_pixel_by_pixel() -> None:
    """Given the posterior, neighbors agree by chance alone: 1 / √n in n pairs of ambiguous pixels."""
    generator = np.random.default_rng(3)
    for boundary in (2, 3):
        products = []
        for _ in range(20):
            case = draw_case(generator)
            p = case.posterior[boundary:].sum(0)
            doubtful = (p > 0.1) & (p < 0.9)
            residual = ((case.labels >= boundary) - p) / np.sqrt(p * (1 - p), where=doubtful, out=np.ones_like(p))
            both = doubtful[:, 1:] & doubtful[:, :-1]
            products.append((residual[:, 1:] * residual[:, :-1])[both])
        agreement = np.concatenate(products)
        assert abs(agreement.mean()) < 4 / np.sqrt(agreement.size) < 0.1
