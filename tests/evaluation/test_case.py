import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from torch.nn.functional import one_hot

from nnunet_nacl.evaluation import CaseResult, evaluate_case


def random_case(seed: int, classes: int = 3, shape: tuple[int, ...] = (6, 20, 20)) -> tuple[np.ndarray, np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, shape, generator=generator)
    logits = 2 * one_hot(labels, classes).movedim(-1, 0) + torch.randn(classes, *shape, generator=generator)
    return logits.softmax(0).numpy(), labels.numpy()


def loop_ece(confidences: np.ndarray, hits: np.ndarray, num_bins: int = 15) -> float:
    """The definition in METHOD's words, in float64."""
    total = 0.0
    for m in range(num_bins):
        low, high = np.array([m, m + 1]) / num_bins
        chosen = (confidences > low) & (confidences <= high) | ((confidences == 0) & (m == 0))
        if chosen.any():
            total += chosen.sum() / len(hits) * abs(hits[chosen].mean() - confidences[chosen].mean())
    return total


def test_by_hand() -> None:
    # Four voxels in a row, y = 0 1 1 0. Foreground: the middle two. Union: those and the last (argmax 1).
    p1 = np.array([0.1, 0.9, 0.3, 0.6])
    probabilities = np.stack([1 - p1, p1])[:, None]
    result = evaluate_case(probabilities, np.array([[0, 1, 1, 0]]))
    foreground = result.calibration["foreground"].metrics()
    # top label: 0.9 right, 0.7 wrong; class 1: 0.9 and 0.3, both y = 1; class 0: 0.1 and 0.7, both y = 0 wrong
    assert foreground["ECE"] == pytest.approx((0.1 + 0.7) / 2)
    assert foreground["CECE"] == pytest.approx(((0.1 + 0.7) / 2 + (0.1 + 0.7) / 2) / 2)
    assert result.calibration["union"].metrics()["ECE"] == pytest.approx((0.1 + 0.7 + 0.6) / 3)
    assert result.dice == {1: 0.5}


@pytest.mark.parametrize("ignore", [False, True])
def test_equals_the_definition(ignore: bool) -> None:
    p, y = random_case(0)
    argmax = p.argmax(0)
    counts = np.ones(y.shape, bool)
    if ignore:
        counts[::2] = False
        y = np.where(counts, y, 7)
    result = evaluate_case(p, y, ignore_label=7 if ignore else None)
    for voxels, chosen in (("foreground", counts & (y > 0)), ("union", counts & ((y > 0) | (argmax > 0)))):
        metrics = result.calibration[voxels].metrics()
        values, labels = p[:, chosen].astype(np.float64), y[chosen]
        assert metrics["ECE"] == pytest.approx(loop_ece(values.max(0), argmax[chosen] == labels), abs=1e-12)
        by_class = [loop_ece(values[k], labels == k) for k in range(3)]
        assert metrics["CECE"] == pytest.approx(np.mean(by_class), abs=1e-12)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_classwise_equals_scikit_learn(k: int) -> None:
    p, y = random_case(1)
    chosen = (y > 0) | (p.argmax(0) > 0)
    accuracy, confidence = calibration_curve(y[chosen] == k, p[k][chosen], n_bins=15)
    bins = evaluate_case(p, y).calibration["union"].classwise[k]
    filled = bins.count > 0
    assert len(accuracy) > 10
    np.testing.assert_allclose(bins.hits[filled] / bins.count[filled], accuracy)
    np.testing.assert_allclose(bins.confidence[filled] / bins.count[filled], confidence, rtol=1e-6)


def test_regions() -> None:
    # whole = {1, 2}, core = {2}; three voxels y = 0 1 2.
    y = np.array([[0, 1, 2]])
    p = np.array([[[0.2, 0.8, 0.9]], [[0.1, 0.7, 0.6]]])
    prediction = np.array([[0, 1, 2]])
    result = evaluate_case(p, y, prediction, regions=[(1, 2), (2,)])
    whole, core = result.calibration["foreground"].classwise
    assert (whole.total, core.total) == (2, 1)
    assert result.calibration["foreground"].metrics()["CECE"] == pytest.approx(((0.2 + 0.1) / 2 + 0.4) / 2)
    # union of core: the voxel predicted core at 0.7 joins, and is wrong
    assert result.calibration["union"].metrics()["ECE"] == pytest.approx(((0.2 + 0.1) / 2 + (0.7 + 0.4) / 2) / 2)
    assert result.dice == {(1, 2): 1.0, (2,): 1.0}


def test_no_foreground_is_nan_and_absent_classes_too() -> None:
    p, y = random_case(2)
    p = np.stack([np.full(y.shape, 0.8), np.full(y.shape, 0.1), np.full(y.shape, 0.1)])
    result = evaluate_case(p, np.zeros_like(y))
    assert all(np.isnan(value) for tables in result.calibration.values() for value in tables.metrics().values())
    assert all(np.isnan(value) for value in result.dice.values())


def test_everything_ignored() -> None:
    p, y = random_case(3)
    result: CaseResult = evaluate_case(p, np.full_like(y, 9), ignore_label=9)
    assert result.calibration["union"].top[0].total == 0


def test_tables_of_cases_add_up() -> None:
    first, second = (evaluate_case(*random_case(seed)).calibration["union"] for seed in (4, 5))
    pooled = first + second
    assert pooled.top[0].total == first.top[0].total + second.top[0].total


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, y: (p[:, :-1], y), r"probabilities' shape \(3, 5, 20, 20\) does not match the reference's"),
        (lambda p, y: (p * 8 - 4, y), r"must sum to 1 over the 3 classes; the sum is off by .* Are these logits\?"),
        (lambda p, y: (p * np.nan, y), r"must sum to 1 over the 3 classes"),
        (lambda p, y: (p + np.array([0.5, -0.5, 0])[:, None, None, None], y), r"confidences must be in \[0, 1\]"),
        (lambda p, y: (p, y + 1), r"holds labels from 1 to 3; the 3 probability channels stand for 0 to 2"),
    ],
)
def test_bad_input(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_case(*change(*random_case(6)))  # type: ignore[operator]


def test_bad_regions() -> None:
    p, y = random_case(7)
    with pytest.raises(ValueError, match=r"^3 probability channels do not match the data set's 2 regions\.$"):
        evaluate_case(p, y, y, regions=[(1,), (2,)])
    with pytest.raises(ValueError, match=r"^prediction is needed with regions"):
        evaluate_case(p, y, regions=[(1,), (2,), (1, 2)])
    with pytest.raises(ValueError, match=r"^the prediction's shape \(5, 20, 20\) does not match the reference's"):
        evaluate_case(p, y, y[1:])
