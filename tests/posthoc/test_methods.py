import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import sklearn.calibration
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from nnunet_nacl.posthoc import (
    METHODS,
    Calibrator,
    ClasswiseTemperature,
    IsotonicRegression,
    Link,
    Sample,
    Temperature,
    VectorScaling,
)
from nnunet_nacl.posthoc._link import SMALLEST
from nnunet_nacl.posthoc._methods import method_of
from nnunet_nacl.posthoc._temperature import best_temperature, scale
from tests.posthoc.generated import SHARES, known_case, region_case, softmax

SOFTMAX, SIGMOID = Link.SOFTMAX, Link.SIGMOID
ALIKE = [name for name, method in METHODS.items() if not method.sees_surroundings]
"""Those that treat all places alike; see test_local.py."""
KEEPS_LABELS = [method for method in ALIKE if METHODS[method].keeps_labels]


def flat(case: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return case[0].reshape(len(case[0]), -1), case[1].reshape(-1)


def flat_regions(case: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    p, y = flat(case)
    return p, np.stack([y > 0, y > 1])


def fit_classes(method: str, p: np.ndarray, y: np.ndarray) -> Calibrator:
    return METHODS[method].fit(Sample(p, y, SOFTMAX))


def fit_regions(method: str, p: np.ndarray, inside: np.ndarray) -> Calibrator:
    return METHODS[method].fit(Sample(p, inside, SIGMOID))


def drawn(temperature: float, seed: int = 0, size: int = 20000, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Logits (C, n) float64 and labels drawn from softmax(logits / temperature)."""
    generator = np.random.default_rng(seed)
    logits = temperature * generator.normal(0, 2, (classes, size))
    gumbel = generator.gumbel(size=(classes, size))
    return logits, (logits / temperature + gumbel).argmax(0)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7, 6.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    p, y = flat(known_case(temperature))
    fitted = fit_classes("temperature", p, y)
    assert fitted.temperature == pytest.approx(temperature, abs=1e-5)
    counts = np.stack([fitted.apply(p)[:, y == k].sum(1) for k in range(3)]).sum(0)
    assert counts / y.size == pytest.approx(SHARES.mean(0), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_known_temperature_of_regions_is_recovered(temperature: float) -> None:
    shares = np.array([2, 5, 8, 11, 15]) / 16
    inside = np.concatenate([np.arange(16) < 16 * share for share in shares])
    odds = np.repeat(np.log(shares / (1 - shares)), 16)
    p = (1 / (1 + np.exp(-temperature * np.stack([odds, -odds])))).astype(np.float32)
    fitted = fit_regions("temperature", p, np.stack([inside, ~inside]))
    assert fitted.temperature == pytest.approx(temperature, abs=1e-5)
    assert fitted.apply(p)[0, ::16] == pytest.approx(shares, abs=1e-6)


def test_against_scikit_learn() -> None:
    peer = getattr(sklearn.calibration, "_TemperatureScaling", None)
    if peer is None:
        pytest.skip("scikit-learn before 1.8 has no temperature scaling")
    logits, y = drawn(2.5)
    p = softmax(logits)
    theirs = 1 / peer().fit(logits.T, y).beta_
    assert fit_classes("temperature", p, y).temperature == pytest.approx(theirs, abs=1e-3)


def test_against_netcal() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from netcal.scaling import TemperatureScaling

        logits, y = drawn(1.6, size=4000)
        p = softmax(logits)
        peer = TemperatureScaling()
        peer.fit(p.T, y)
        theirs = peer.transform(p.T).T
    assert fit_classes("temperature", p, y).apply(p) == pytest.approx(theirs, abs=1e-3)


def test_from_probabilities_as_from_logits() -> None:
    logits, _ = drawn(3.0, size=500)
    logits = logits.astype(np.float32)
    p = torch.tensor(logits).softmax(0).numpy()
    expected = torch.tensor(logits / 1.7).softmax(0).numpy()
    assert Temperature(1.7, link=SOFTMAX).apply(p) == pytest.approx(expected, abs=5e-7)
    odds = logits.clip(-12, 12)
    p, expected = torch.tensor(odds).sigmoid().numpy(), torch.tensor(odds / 1.7).sigmoid().numpy()
    assert Temperature(1.7, link=SIGMOID).apply(p) == pytest.approx(expected, abs=2e-3)
    confident = odds < 5  # 1 - p loses its digits in float32 as p nears 1
    assert Temperature(1.7, link=SIGMOID).apply(p)[confident] == pytest.approx(expected[confident], abs=3e-6)


def test_zeros_do_not_bias_the_temperature() -> None:
    """Logits so far apart that half of float32 probabilities are 0, as nnU-Net's can be, and labels of known T."""
    for temperature in (2.0, 10.0):
        logits, y = drawn(temperature, size=20000)
        logits *= 4  # T is four times as large
        p = torch.tensor(logits, dtype=torch.float32).softmax(0).numpy()
        exact = fit_classes("temperature", np.exp(log_softmax(logits, 0)), y).temperature
        ours = fit_classes("temperature", p, y).temperature
        if temperature == 10:
            assert (p == 0).mean() > 0.3
        assert ours == pytest.approx(exact, rel=1e-3 if temperature == 2 else 0.02)


def test_zeros_and_ones_by_hand() -> None:
    p = np.array([[1, 0.5], [0, 0.5]], np.float32)
    after = Temperature(2.0, link=SOFTMAX).apply(p)
    assert after == pytest.approx(np.array([[1, 0.5], [SMALLEST**0.5, 0.5]]), rel=1e-5)
    after = Temperature(2.0, link=SIGMOID).apply(np.array([[1, 0, 0.5]], np.float32))
    assert after[0] == pytest.approx([1 / (1 + 2**-12.5), SMALLEST**0.5, 0.5], rel=1e-5)


def test_vector_by_hand() -> None:
    classes, regions = (VectorScaling([1.0, 2.0], [np.log(4), 0.0], [], link=link) for link in Link)
    assert classes.apply(np.array([[0.25], [0.75]])).ravel() == pytest.approx([16 / 25, 9 / 25])
    assert regions.apply(np.array([[0.2], [0.75]])).ravel() == pytest.approx([0.5, 0.9])


def test_classwise_by_hand() -> None:
    classes, regions = (ClasswiseTemperature([2.0, 0.5], 1.0, [], link=link) for link in Link)
    after = classes.apply(np.array([[0.9, 0.25], [0.1, 0.75]]))
    assert after == pytest.approx(np.array([[0.75, 0.1], [0.25, 0.9]]))
    assert regions.apply(np.array([[0.1, 0.9], [0.25, 0.75]])) == pytest.approx(np.array([[0.25, 0.75], [0.1, 0.9]]))


def test_isotonic_by_hand() -> None:
    classes, regions = (IsotonicRegression(1.0, [[0.1, 0.5, 0.9]], [[0.0, 0.5, 0.7]], link=link) for link in Link)
    after = classes.apply(np.array([[0.9, 0.7], [0.1, 0.3]]))
    assert after == pytest.approx(np.array([[1.0, 0.6 / 0.85], [0, 0.25 / 0.85]]), abs=3e-6)
    assert regions.apply(np.array([[0.9, 0.7]])) == pytest.approx(np.array([[1.0, 0.6 / 0.85]]), abs=3e-6)


def test_isotonic_keeps_probabilities_where_its_function_is_flat() -> None:
    scaling = IsotonicRegression(1.0, [[0.5, 0.9]], [[0.0, 1.0]], link=SOFTMAX)
    assert scaling.apply(np.array([[0.4], [0.35], [0.25]])).ravel() == pytest.approx([0.4, 0.35, 0.25])


def test_isotonic_is_the_least_squares_fit() -> None:
    p, y = flat(known_case(2.0))
    p = np.array(p + np.random.default_rng(0).uniform(0, 1e-3, p.shape))
    fitted = fit_classes("irm", p / p.sum(0), y)
    q = scale(p / p.sum(0), fitted.temperature, SOFTMAX).ravel()
    order = np.argsort(q)
    expected = isotonic_regression((y == np.arange(3)[:, None]).ravel()[order].astype(float)).x
    assert np.interp(q[order], fitted.thresholds[0], fitted.values[0]) == pytest.approx(expected, abs=1e-9)


def test_vector_against_torch() -> None:
    """The optimum found by other means: gradients by autograd, torch's L-BFGS."""
    logits, y = drawn(1.5, size=3000)
    p = softmax(logits + np.array([1.0, 0.0, -1.0, 0.5])[:, None])
    ours = fit_classes("vector", p, y)
    logs, truth = torch.tensor(np.log(p).T), torch.tensor(y)
    weights = torch.ones(4, dtype=torch.float64, requires_grad=True)
    biases = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, biases], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(weights * logs + biases, truth)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert ours.weights == pytest.approx(weights.tolist(), abs=1e-3)
    assert ours.biases == pytest.approx((biases - biases.mean()).tolist(), abs=1e-3)


def test_platt_against_scikit_learn() -> None:
    p, inside = flat_regions(region_case(2.0))
    ours = fit_regions("vector", p, inside)
    for region in range(2):
        peer = LogisticRegression(C=1e9, tol=1e-8).fit(SIGMOID.logits(p[region])[:, None], inside[region])
        assert ours.weights[region] == pytest.approx(peer.coef_[0, 0], abs=1e-3)
        assert ours.biases[region] == pytest.approx(peer.intercept_[0], abs=1e-3)
    assert ours.shared_by == []


def test_classwise_finds_the_temperature_of_each_predicted_class() -> None:
    p, y = flat(known_case(1.0))
    top = p.argmax(0)
    scale = np.array([1.5, 3.0, 0.6])
    fitted = fit_classes("classwise", softmax(scale[top] * np.log(p.astype(float))), y)
    assert fitted.temperatures == pytest.approx(scale, abs=1e-4)
    assert fitted.shared_by == []


def test_classwise_shares_where_a_class_says_nothing() -> None:
    p, y = flat(known_case(2.0))
    wrong = (p.argmax(0) != 2) | (y == 2)  # those predicted as 2 are all right
    fitted = fit_classes("classwise", p[:, wrong], y[wrong])
    assert fitted.shared_by == [2]
    assert fitted.temperatures[2] == fitted.shared_temperature

    p, inside = flat_regions(region_case(2.0))
    inside[1] = p[1] > 0.5
    assert fit_regions("classwise", p, inside).shared_by == [1]
    vector = fit_regions("vector", p, inside)
    assert vector.shared_by == [1]
    shared = best_temperature(p, inside, SIGMOID)
    assert (vector.weights[1], vector.biases[1]) == (pytest.approx(1 / shared), 0)


@pytest.mark.parametrize("method", KEEPS_LABELS)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 40))
@settings(max_examples=25, deadline=None)
def test_the_most_probable_class_stays(method: str, seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, scale, (4, 300)).astype(np.float32)
    logits[1, :100] = np.nextafter(logits[0, :100], np.float32(100))  # a step of float32 ahead of another
    p = torch.tensor(logits).softmax(0).numpy()
    p[:, 200:220] = 0.25
    known = {
        "temperature": Temperature(7.0, link=SOFTMAX),
        "classwise": ClasswiseTemperature([9.0, 0.5, 3.0, 1.0], 1.0, [], link=SOFTMAX),
        "irm": IsotonicRegression(3.0, [[0.0, 0.2, 0.8, 1.0]], [[0.0, 0.4, 0.4, 0.9]], link=SOFTMAX),
    }[method]
    after = known.apply(p)
    assert np.array_equal(after.argmax(0), p.argmax(0))
    assert after.sum(0) == pytest.approx(1, abs=1e-5)
    assert after.dtype == np.float32
    q = np.concatenate([torch.tensor(logits).sigmoid().numpy(), np.full((4, 1), 0.5 + 2**-24, np.float32)], axis=1)
    q[:, :3] = (0.5, 0, 1)
    if method == "irm":
        known = replace(known, thresholds=known.thresholds * 4, values=known.values * 4)
    after = replace(known, link=SIGMOID).apply(q)
    assert np.array_equal(after > 0.5, q > 0.5)
    assert ((after >= 0) & (after <= 1)).all()


@pytest.mark.parametrize("method", ALIKE)
@pytest.mark.parametrize("regions", [False, True])
def test_the_fit_improves_what_it_was_fitted_to(method: str, regions: bool) -> None:
    p, truth = flat_regions(region_case(3.0)) if regions else flat(known_case(3.0))

    def nll(q: np.ndarray) -> float:
        chosen = np.where(truth, q, 1 - q) if regions else q[truth, np.arange(truth.size)]
        return float(-np.log(np.maximum(chosen, 1e-12)).mean())

    after = (fit_regions if regions else fit_classes)(method, p, truth).apply(p)
    assert nll(after.astype(float)) < nll(p.astype(float)) - 0.1


@pytest.mark.parametrize("method", ALIKE)
def test_what_cannot_be_fitted(method: str) -> None:
    p, y = flat(known_case(2.0))
    message = "all 1200 sampled voxels are of class 2, so nothing can be learned from them; take other voxels"
    with pytest.raises(ValueError, match=message):
        fit_classes(method, p, np.full_like(y, 2))
    with pytest.raises(ValueError, match="all 1200 sampled voxels are predicted correctly"):
        fit_classes(method, p, p.argmax(0))
    q, inside = flat_regions(region_case(2.0))
    with pytest.raises(ValueError, match="all 2000 sampled voxels are outside every region"):
        fit_regions(method, q, np.zeros_like(inside))
    with pytest.raises(ValueError, match="all 2000 sampled voxels are predicted correctly"):
        fit_regions(method, q, q > 0.5)
    with pytest.raises(ValueError, match=r"no best temperature between 0.01 and 100.0: .* as T rises"):
        fit_classes(method, p, p.argmin(0))
    with pytest.raises(
        ValueError, match="method must be one of temperature, classwise, vector, irm, local; got 'none'"
    ):
        method_of("none")


def test_vector_needs_every_class() -> None:
    p, y = flat(known_case(2.0))
    with pytest.raises(ValueError, match="no sampled voxel is of class 1, so its best bias would be minus infinity"):
        fit_classes("vector", p[:, y != 1], y[y != 1])


@pytest.mark.parametrize("method", ALIKE)
@pytest.mark.parametrize("regions", [False, True])
def test_parameters_can_be_read_again(method: str, regions: bool) -> None:
    p, truth = flat_regions(region_case(3.0)) if regions else flat(known_case(3.0))
    fitted = (fit_regions if regions else fit_classes)(method, p, truth)
    content = {"method": method, **fitted.parameters(), "more": 1}
    link = SIGMOID if regions else SOFTMAX
    assert METHODS[method].of_parameters(content, channels=len(p), link=link) == fitted


@pytest.mark.parametrize(
    ("method", "content", "message"),
    [
        ("temperature", {}, "it has no 'temperature'"),
        ("temperature", {"temperature": "2"}, 'temperature: expected a number; got "2"'),
        ("temperature", {"temperature": float("nan")}, "expected temperature to be from 0.01 to 100.0; got nan"),
        ("vector", {"weights": [1], "biases": [1], "shared_by": []}, "expected weights to be a list of 3; got 1"),
        (
            "vector",
            {"weights": ["1"] * 3, "biases": [1] * 3, "shared_by": []},
            'weights[0]: expected a number; got "1"',
        ),
        (
            "vector",
            {"weights": [float("nan")] * 3, "biases": [1] * 3, "shared_by": []},
            "expected weights to be finite; got nan",
        ),
        ("irm", {"temperature": 1.0, "thresholds": [[0, 1]] * 3, "values": [[0, 1]]}, "to be a list of 1"),
        (
            "classwise",
            {"temperatures": [1, -1, 1], "shared_temperature": 1.0, "shared_by": []},
            "expected temperatures to be from 0.01 to 100.0; got -1",
        ),
    ],
)
def test_parameters_that_are_wrong(method: str, content: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        METHODS[method].of_parameters(content, channels=3, link=SOFTMAX)


def test_logits() -> None:
    p = np.array([0, 1e-45, 0.5, 1], np.float32)
    assert SOFTMAX.logits(p) == pytest.approx([np.log(SMALLEST), np.log(SMALLEST), np.log(0.5), 0])
    assert SIGMOID.logits(p) == pytest.approx([np.log(SMALLEST), np.log(SMALLEST), 0, 25 * np.log(2)])
