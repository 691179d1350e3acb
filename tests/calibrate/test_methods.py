import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from nnunet_nacl.calibrate._activation import Activation
from nnunet_nacl.calibrate._fit import try_methods
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._methods import Head, Temperature, Vector
from nnunet_nacl.calibrate._sample import Sample, draw_voxels
from nnunet_nacl.nnunet import LabelMeaning
from nnunet_nacl.use import dice_optimal_mask

SOFTMAX, SIGMOID = Activation.SOFTMAX, Activation.SIGMOID


def sample_of(
    activation: Activation, logits: np.ndarray, truth: np.ndarray, *, cases: int = 10, **more: object
) -> Sample:
    size = logits.shape[1]
    case = (np.arange(size) * cases // size).astype(np.int32)
    fields = {"weights": np.ones(size, np.float32), "near": np.ones(size, bool), **more}
    names = tuple(f"case_{number}" for number in range(cases))
    return Sample(activation, activation.centered(logits.astype(np.float32)), truth, case=case, names=names, **fields)


def drawn(activation: Activation, right: np.ndarray, seed: int = 0) -> np.ndarray:
    """Labels drawn from the posterior whose logits are right."""
    generator = np.random.default_rng(seed)
    if activation is SIGMOID:
        return generator.random(right.shape) < expit(right)
    return (generator.random(right.shape[1]) > softmax(right, axis=0).cumsum(0)).sum(0).clip(0, len(right) - 1)


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    generator = np.random.default_rng(1)
    values = generator.normal(size=(6, 40_000)).astype(np.float32)
    values[3] += 3 * values[2]  # neither independent
    values[4] = 50 * values[4] + 100  # nor of one scale
    return values


LAYER = (np.random.default_rng(2).normal(size=(3, 6)) * [1, 1, 1, 1, 0.02, 1], np.array([1.0, -2.0, -1.5]))


def test_loss_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.2], [0.25, 0.2], [0.25, 0.6]]))
    value, gradient = SOFTMAX.loss(logits, np.array([0, 2]), np.array([1.0, 3.0]))
    assert value == pytest.approx((np.log(2) - 3 * np.log(0.6)) / 4)
    assert gradient == pytest.approx(np.array([[-0.5, 0.6], [0.25, 0.6], [0.25, -1.2]]) / 4)


@pytest.mark.parametrize("activation", Activation)
def test_loss_is_torchs(activation: Activation) -> None:
    generator = np.random.default_rng(0)
    logits, weights = generator.normal(size=(4, 50)) * 3, generator.random(50)
    truth = generator.integers(0, 4, 50) if activation is SOFTMAX else generator.random((4, 50)) < 0.4
    tensor = torch.tensor(logits, requires_grad=True)
    if activation is SOFTMAX:
        each = torch.nn.functional.cross_entropy(tensor.T, torch.tensor(truth), reduction="none")
    else:
        target = torch.tensor(truth).double()
        each = torch.nn.functional.binary_cross_entropy_with_logits(tensor, target, reduction="none").sum(0)
    expected = (each * torch.tensor(weights)).sum() / weights.sum()
    expected.backward()
    value, gradient = activation.loss(logits, truth, weights)
    assert value == pytest.approx(expected.item(), rel=1e-12)
    assert gradient == pytest.approx(tensor.grad.numpy(), abs=1e-12)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("temperature", [0.5, 2.5])
def test_temperature_recovers(activation: Activation, temperature: float, features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    sample = sample_of(activation, temperature * right, drawn(activation, right))
    assert Temperature.fit(sample).temperature == pytest.approx(temperature, rel=0.02)


def test_the_range_of_temperatures() -> None:
    logits, truth = np.array([[0.3, -0.3] * 10, [-0.3, 0.3] * 10]), np.array([0, 1] * 10)
    assert Temperature.fit(sample_of(SOFTMAX, logits, truth)).temperature == pytest.approx(0.05, rel=1e-3)
    assert Temperature.fit(sample_of(SOFTMAX, logits, 1 - truth)).temperature == pytest.approx(100, rel=1e-3)


@pytest.mark.parametrize("activation", Activation)
def test_vector_recovers(activation: Activation, features: np.ndarray) -> None:
    trained = activation.centered(LAYER[0] @ features + LAYER[1][:, None])
    right = trained * np.array([[0.4], [0.6], [0.5]]) + np.array([[0.3], [-0.5], [0.1]])
    fitted = Vector.fit(sample_of(activation, trained, drawn(activation, right)))
    p, expected = (activation.probabilities(logits) for logits in (fitted.logits(trained), right))
    assert np.abs(p - expected).mean() < 0.006


@pytest.mark.parametrize("activation", Activation)
def test_head_recovers_and_is_logistic_regression(activation: Activation, features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    spoiled = (
        LAYER[0] * 2.5 + 0.3 * np.random.default_rng(5).normal(size=LAYER[0].shape) * [1, 1, 1, 1, 0.02, 1],
        LAYER[1] + [1, 0, -1],
    )
    truth = drawn(activation, right)
    sample = sample_of(activation, spoiled[0] @ features + spoiled[1][:, None], truth, features=features)
    *_, head = Head.fit(sample, Vector.fit(sample), spoiled)
    assert head.strength == 1e-6
    p = activation.probabilities(head.logits(sample.logits, features).astype(np.float64))
    assert np.abs(p - activation.probabilities(right)).mean() < 0.008
    scaled = (features / features.std(1, keepdims=True)).T
    regression = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    if activation is SIGMOID:
        expected = np.stack([regression.fit(scaled, of_region).predict_proba(scaled)[:, 1] for of_region in truth])
    else:
        expected = regression.fit(scaled, truth).predict_proba(scaled).T
    assert np.abs(p - expected).max() < 2e-3


@pytest.mark.parametrize("activation", Activation)
def test_a_last_layer_gives_calibrated_logits(activation: Activation, features: np.ndarray) -> None:
    few = features[:, :100].astype(np.float64)
    trained = LAYER[0] @ few + LAYER[1][:, None]
    for method in (Temperature(1.7), Vector([0.5, 1.5, 0.8], [0.1, 0.2, -0.4], activation)):
        weight, bias = method.layer(*LAYER)
        assert weight @ few + bias[:, None] == pytest.approx(method.logits(trained), abs=1e-10)


def test_vector_of_probabilities_is_that_of_logits(features: np.ndarray) -> None:
    trained = LAYER[0] @ features[:, :100] + LAYER[1][:, None]
    vector = Vector([0.5, 1.5, 0.8], [0.1, 0.2, -0.4], SOFTMAX)
    of_p = vector.logits(SOFTMAX.logits(softmax(trained, axis=0)))
    assert softmax(of_p, axis=0) == pytest.approx(softmax(vector.logits(trained), axis=0), abs=1e-10)


def test_strong_pull_is_vector_scaling(features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    sample = sample_of(SOFTMAX, 2 * right, drawn(SOFTMAX, right), features=features)
    vector = Vector.fit(sample)
    (head,) = Head.fit(sample, vector, (2 * LAYER[0], 2 * LAYER[1]), strengths=[1e3])
    of_head, of_vector = (softmax(m.logits(sample.logits, features), axis=0) for m in (head, vector))
    assert np.abs(of_head - of_vector).max() < 0.01


def test_held_out_cases_decide(features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    sample = sample_of(SOFTMAX, 2 * right, drawn(SOFTMAX, right), features=features)
    trials = try_methods(sample, layer=(2 * LAYER[0], 2 * LAYER[1]))
    assert list(trials.scores) == ["as trained", "temperature", "vector", "head"]
    assert trials.scores["temperature"].NLL < trials.scores["as trained"].NLL - 0.01
    assert trials.scores["temperature"].Dice == trials.scores["as trained"].Dice
    assert abs(trials.scores["temperature"].over_confidence) < 0.005 < trials.scores["as trained"].over_confidence
    assert sorted(case for part in trials.parts for case in part) == sorted(sample.names)
    part = trials.parts[1]
    outside = np.isin(sample.case, [sample.names.index(name) for name in part])
    alone = Temperature.fit(sample.take(~outside))
    assert trials.for_case("temperature", part[0]) == alone


def test_scores_by_hand() -> None:
    p = np.array([[0.7, 0.2, 0.9, 0.4], [0.3, 0.8, 0.1, 0.6]])
    sample = sample_of(SOFTMAX, np.log(p), np.array([0, 1, 1, 1]), cases=1, weights=np.array([1, 2, 1, 1], np.float32),
                       near=np.array([True, True, False, True]))  # fmt: skip
    score = judge(sample, sample.logits)
    assert pytest.approx(-(np.log(0.7) + 2 * np.log(0.8) + np.log(0.1) + np.log(0.6)) / 4, rel=1e-6) == score.NLL
    assert score.Brier == pytest.approx(2 * (0.3**2 + 2 * 0.2**2 + 0.9**2 + 0.4**2) / 4, rel=1e-6)
    assert score.over_confidence == pytest.approx((0.7 + 2 * 0.8 + 0.6) / 4 - 1, rel=1e-6)
    assert pytest.approx(1 - (0.7 + 2 * 0.8 + 0.6) / 4, rel=1e-6) == score.ECE
    assert score.Dice == pytest.approx(2 * 3 / (3 + 4))


def test_decoded_is_the_mask_of_the_highest_expected_dice() -> None:
    generator = np.random.default_rng(3)
    p = expit(generator.normal(-2, 2, (1, 500)))
    truth = generator.random(p.shape) < p
    score = judge(sample_of(SIGMOID, np.log(p / (1 - p)), truth, cases=1), np.log(p / (1 - p)))
    mask = dice_optimal_mask(p[0]).mask
    assert score.Dice_decoded == pytest.approx(2 * (mask & truth[0]).sum() / (mask.sum() + truth.sum()))


def test_drawn_voxels_stand_for_all() -> None:
    generator = np.random.default_rng(0)
    near, counted = generator.random(10_000) < 0.02, generator.random(10_000) < 0.9
    index, weights = draw_voxels(near, counted, 600, "case")
    assert index.size == 600
    assert (np.diff(index) > 0).all()
    assert counted[index].all()
    assert (near & counted).sum() == near[index].sum()  # fewer than half of what is drawn: all of them
    assert weights[near[index]] == pytest.approx(1)
    assert weights.sum() == pytest.approx(counted.sum())
    assert (index != draw_voxels(near, counted, 600, "other")[0]).any()
    near_half = generator.random(10_000) < 0.5
    assert near_half[draw_voxels(near_half, counted, 600, "case")[0]].sum() == 300
    everything, ones = draw_voxels(near, counted, 20_000, "case")
    assert (everything == np.flatnonzero(counted)).all()
    assert (ones == 1).all()


def test_too_little_to_fit_to() -> None:
    logits, meaning = np.zeros((3, 20)), LabelMeaning.of_names({"background": 0, "shell": 1, "core": 2}, None)
    with pytest.raises(ValueError, match="at least 5 cases with a structure in the ground truth; 2 of 10 have one"):
        sample_of(SOFTMAX, logits, np.arange(20) < 4).check(meaning)
    with pytest.raises(ValueError, match=r"core has no voxel in the 10 cases"):
        sample_of(SOFTMAX, logits, np.tile([0, 1], 10)).check(meaning)
