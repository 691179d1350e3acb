from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression

from nnunet_nacl.metrics import RECALL_THRESHOLDS, Counts, evaluate_case
from nnunet_nacl.use import TooFewCasesError, fit_dice, fit_volume, recall_threshold
from nnunet_nacl.use._structure_fit import StructureFit


def threshold_of(rates: np.ndarray, alpha: float) -> float:
    return recall_threshold(np.mean(rates, axis=0), len(rates), alpha)


def test_recall_threshold_by_hand() -> None:
    # n = 19: (19 R + 1) / 20 ≤ 0.1 needs R ≤ 1/19.
    rates = np.zeros((19, RECALL_THRESHOLDS.size))
    rates[0, 2:] = 1
    rates[1, 3:] = 0.5
    assert threshold_of(rates, 0.1) == RECALL_THRESHOLDS[2]
    rates[1, 2] = 0.01
    assert threshold_of(rates, 0.1) == RECALL_THRESHOLDS[1]
    assert threshold_of(0 * rates, 0.05) == RECALL_THRESHOLDS[-1]
    assert recall_threshold(RECALL_THRESHOLDS > 0, 1, 0.5) == 0


@pytest.mark.parametrize(
    ("needed", "said", "fit"),
    [
        (19, 19, lambda n: recall_threshold(0 * RECALL_THRESHOLDS, n, 0.05)),
        (19, 19, lambda n: fit_volume(np.ones(n), np.ones(n), epsilon_ml=1)),
        (39, 39, lambda n: fit_volume(np.ones(n), np.ones(n), epsilon_ml=1, coverage=0.95)),
        (17, 9, lambda n: fit_dice(np.ones(n), np.ones(n))),  # in the half that checks the fit
        (2, 1, lambda n: fit_dice(np.ones(n), np.ones(n), coverage=0.5)),
    ],
)
def test_too_few_cases_are_refused(needed: int, said: int, fit: Callable[[int], object]) -> None:
    fit(needed)
    for few in (needed - 1, 0):
        with pytest.raises(TooFewCasesError, match=rf"calibration cases are too few: .* needs at least {said}\.$"):
            fit(few)


def test_nothing_but_too_few_cases_leaves_a_structure_without_a_fit() -> None:
    p = np.array([[0.8, 0.3, 0.1], [0.2, 0.7, 0.9]])[:, None, None]
    case = evaluate_case(p, np.array([[[0, 1, 1]]], np.uint8))
    counts = Counts.joined([case] * 20).of_structure(0)
    fit = StructureFit.fitted(counts, 0.9)
    assert fit.volume is not None
    assert fit.dice is not None
    unseen = evaluate_case(np.array([0.9, 0.1])[:, None, None, None].repeat(3, 3), np.array([[[0, 1, 1]]], np.uint8))
    one_segmented = StructureFit.fitted(Counts.joined([case, unseen, unseen]).of_structure(0), 0.5)
    assert one_segmented.volume is not None
    assert one_segmented.dice is None
    few = counts.take(slice(5))
    too_few = StructureFit.fitted(few, 0.9)
    assert (too_few.volume, too_few.dice) == (None, None)
    with pytest.raises(ValueError, match="expected finite numbers"):
        StructureFit.fitted(replace(counts, voxel_ml=np.full(20, np.nan)), 0.9)
    with pytest.raises(ValueError, match="alpha must be above 0 and below 1; got 10"):
        recall_threshold(fit.missed, fit.num_present, 10)


def test_same_as_mapie() -> None:
    risk_control = pytest.importorskip("mapie.risk_control")
    generator = np.random.default_rng(0)
    for target in (0.7, 0.8, 0.9):
        p = generator.random((40, 1, 8, 8))
        y = generator.random(p.shape) < p**0.5
        theirs = risk_control.SemanticSegmentationController(
            lambda x: x, risk="recall", target_level=target, predict_params=RECALL_THRESHOLDS
        )
        theirs.calibrate(p, y.astype(int))
        rates = [(image[truth][:, None] < RECALL_THRESHOLDS).mean(0) for image, truth in zip(p, y, strict=True)]
        assert threshold_of(rates, 1 - target) == theirs.best_predict_param[0]


def test_volume_interval_by_hand() -> None:
    # 19 cases, coverage 0.9: ranks ⌊20 · 0.05⌋ = 1 and 19, the smallest and the largest.
    ratios = np.exp(np.linspace(-0.9, 0.9, 19))
    fit = fit_volume(np.full(19, 10.0), 10 * ratios, epsilon_ml=1e-9)
    assert (fit.low, fit.high) == (pytest.approx(-0.9), pytest.approx(0.9))
    assert fit.interval_ml(20.0) == pytest.approx((20 * np.exp(-0.9), 20 * np.exp(0.9)), abs=1e-6)
    assert fit_volume(np.full(39, 10.0), 10 * np.exp(np.arange(39)), epsilon_ml=1e-9).high == pytest.approx(37)
    assert fit_volume(np.zeros(20), np.zeros(20), epsilon_ml=0.1).interval_ml(0) == (0, 0)


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (50, 0.9), (33, 0.8)])
def test_volume_intervals_hold_the_truth(n: int, coverage: float) -> None:
    generator, repeats = np.random.default_rng(n), 4000
    true = generator.lognormal(2, 1, (repeats, n + 1))
    expected = true * generator.lognormal(0.3, 0.2 + 0.02 * true**0.5) + generator.exponential(0.1, true.shape)
    fits = [fit_volume(e[:-1], t[:-1], epsilon_ml=0.05, coverage=coverage) for e, t in zip(expected, true, strict=True)]
    ends = np.array([fit.interval_ml(e[-1]) for fit, e in zip(fits, expected, strict=True)])
    found = np.mean((ends[:, 0] <= true[:, -1]) & (true[:, -1] <= ends[:, 1]))
    nominal = 1 - 2 * np.floor((n + 1) * (1 - coverage) / 2 + 1e-9) / (n + 1)
    assert nominal >= coverage - 1e-12
    assert found == pytest.approx(nominal, abs=3 * np.sqrt(nominal * (1 - nominal) / repeats))


@pytest.mark.parametrize("n", [101, 99])
def test_dice_fit_equals_scikit_learn(n: int) -> None:
    generator = np.random.default_rng(0)
    x = generator.random(n)
    y = np.clip(1.3 * x - 0.2 + generator.normal(0, 0.1, n), 0, 1)
    order = np.random.default_rng(0).permutation(n)
    fitted, check = order[: n // 2], order[n // 2 :]
    model = IsotonicRegression(out_of_bounds="clip") if n >= 100 else LinearRegression()
    model.fit(x[fitted, None], y[fitted])
    points, fit = np.linspace(0, 1, 201), fit_dice(x, y, coverage=0.8)
    expected, held_out = (model.predict(values[:, None]).clip(0, 1) for values in (points, x[check]))
    np.testing.assert_allclose(fit.expected(points), expected, atol=1e-12)
    assert fit.margin == pytest.approx(np.sort(y[check] - held_out)[int((check.size + 1) * 0.2 + 1e-9) - 1])
    np.testing.assert_allclose(fit.lower_bound(points), np.clip(expected + fit.margin, 0, 1), atol=1e-12)


@pytest.mark.parametrize("n", [40, 100])
def test_the_fitted_dice_never_falls(n: int) -> None:
    falling = fit_dice(np.linspace(0.5, 0.9, n), np.linspace(0.9, 0.5, n))
    assert falling.expected(0.5) == falling.expected(0.9) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("n", [39, 101])
def test_dice_bounds_hold(n: int) -> None:
    generator, repeats, coverage = np.random.default_rng(3), 1500, 0.9
    dice = generator.beta(6, 2, (repeats, n + 1))
    predicted = np.clip(dice + generator.normal(0.08, 0.02 + 0.1 * (1 - dice)), 0, 1)
    below = [
        y[-1] >= fit_dice(x[:-1], y[:-1], coverage=coverage).lower_bound(x[-1])
        for x, y in zip(predicted, dice, strict=True)
    ]
    held_out = (n + 1) // 2
    nominal = 1 - np.floor((held_out + 1) * 0.1) / (held_out + 1)
    assert np.mean(below) == pytest.approx(nominal, abs=3 * np.sqrt(nominal * (1 - nominal) / repeats))
