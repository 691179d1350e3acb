import numpy as np

from nnunet_nacl.demo._model import LABELS, draw_case
from nnunet_nacl.evaluation import evaluate_case


def test_the_posterior_is_a_distribution() -> None:
    case = draw_case(np.random.default_rng(0))
    assert case.posterior.shape == (len(LABELS), *case.image.shape)
    assert case.posterior.min() >= 0
    np.testing.assert_allclose(case.posterior.sum(0), 1, atol=1e-6)


def test_the_outline_is_sharp() -> None:
    background = draw_case(np.random.default_rng(1)).posterior[0]
    assert set(np.unique(background)) == {0, 1}


def test_labels_follow_the_posterior() -> None:
    # The posterior's own calibration error over many images is sampling noise only; a blunted one is off.
    generator = np.random.default_rng(2)
    tables, blunt = [], []
    for _ in range(60):
        case = draw_case(generator)
        labels = case.labels.astype(int)
        tables.append(evaluate_case(case.posterior, labels).calibration["foreground"])
        mixed = 0.8 * case.posterior + 0.05
        blunt.append(evaluate_case(mixed, labels).calibration["foreground"])
    assert sum(tables[1:], tables[0]).metrics()["ECE"] < 0.005
    assert sum(tables[1:], tables[0]).metrics()["CECE"] < 0.005
    assert sum(blunt[1:], blunt[0]).metrics()["ECE"] > 0.05


def test_the_same_seed_gives_the_same_case() -> None:
    first, second = (draw_case(np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first.image, second.image)
    assert np.array_equal(first.labels, second.labels)
