from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from nnunet_nacl.calibrate import (
    AS_TRAINED,
    Calibration,
    Fit,
    Head,
    Sample,
    Score,
    Temperature,
    _head,
    compare,
)
from nnunet_nacl.calibrate._methods import penalized_nll
from nnunet_nacl.calibrate._sample import centered
from nnunet_nacl.calibrate._score import judge, nll_of_cases
from nnunet_nacl.calibrate._trials import Trials, calibrated_logits, try_methods
from nnunet_nacl.metrics import Activation, LabelMeaning
from nnunet_nacl.nnunet import Provenance
from nnunet_nacl.patients import split_cases

SOFTMAX, SIGMOID = Activation.SOFTMAX, Activation.SIGMOID


def meaning_of(activation: Activation, channels: int) -> LabelMeaning:
    if activation is SOFTMAX:
        return LabelMeaning(tuple(range(channels)))
    labels = tuple(range(1, channels + 1))
    return LabelMeaning((0, *labels), tuple((label,) for label in labels), labels)


def sample_of(
    activation: Activation, logits: np.ndarray, truth: np.ndarray, *, cases: int = 10, **more: object
) -> Sample:
    size = logits.shape[1]
    logits = centered(logits.astype(np.float32), activation)
    fields = {
        "weights": np.ones(size, np.float32),
        "near": np.ones((1 if activation is SOFTMAX else len(logits), size), bool),
        "case": (np.arange(size) * cases // size).astype(np.int32),
        **more,
    }
    names = tuple(f"case_{number}" for number in range(cases))
    meaning = meaning_of(activation, len(logits))
    return Sample(meaning=meaning, logits=logits, truth=truth, names=names, **fields)


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


@pytest.mark.parametrize("activation", Activation)
def test_loss_is_torchs(activation: Activation) -> None:
    generator = np.random.default_rng(0)
    logits, trained = generator.normal(size=(2, 4, 50)) * 3
    weights = generator.random(50).astype(np.float32)
    truth = generator.integers(0, 4, 50) if activation is SOFTMAX else generator.random((4, 50)) < 0.4
    sample = sample_of(activation, trained, truth, weights=weights)
    kept = torch.tensor(sample.as_trained)
    tensor = torch.tensor(logits, requires_grad=True)
    if activation is SOFTMAX:
        each = torch.nn.functional.cross_entropy(tensor.T, torch.tensor(truth), reduction="none")
        # Each voxel's own multi-margin loss, of a margin of 0, but for the highest rival alone
        rival = tensor.masked_fill(torch.nn.functional.one_hot(kept, 4).T.bool(), -torch.inf).amax(0)
        each = each + 30 * (rival - tensor[kept, torch.arange(50)]).relu()
    else:
        target = torch.tensor(truth).double()
        each = torch.nn.functional.binary_cross_entropy_with_logits(tensor, target, reduction="none").sum(0)
        each = each + 30 * torch.where(kept, -tensor, tensor).relu().sum(0)
    expected = (each * torch.tensor(weights)).sum() / weights.sum()
    expected.backward()
    again = torch.tensor(logits, requires_grad=True)
    value = penalized_nll(sample)(again, 30)
    value.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert again.grad.numpy() == pytest.approx(tensor.grad.numpy(), abs=1e-6)


def test_the_range_of_temperatures() -> None:
    logits, truth = np.array([[0.3, -0.3] * 10, [-0.3, 0.3] * 10]), np.array([0, 1] * 10)
    for right, bound in ((truth, 0.05), (1 - truth, 100)):
        fit = Temperature.fit_sample(sample_of(SOFTMAX, logits, right))
        assert fit.temperature == pytest.approx(bound, rel=1e-3)
        assert fit.remark == f"T is at the bound of the search, {bound:g}"
    assert not Temperature(2.0).remark


def test_an_inverted_model_gets_no_head(features: np.ndarray) -> None:
    right = LAYER[0] @ features[:, :4000] + LAYER[1][:, None]
    sample = sample_of(SOFTMAX, -right, drawn(SOFTMAX, right), features=features[:, :4000])
    trials = try_methods(sample, (-LAYER[0], -LAYER[1]))
    assert trials.scores["head"].changed > 0.1
    assert trials.scores["head"].NLL < trials.scores["temperature"].NLL
    assert trials.scores["head"].remark == "changes too many labels"
    fit = Fit.choose(trials, None, Provenance({"background": 0, "one": 1, "two": 2}, None), {}, [])
    assert fit.calibration.method == "temperature"
    assert "changes too many labels" in fit.table()
    assert "T is at the bound of the search, 100" in fit.table()


def test_a_search_that_does_not_converge_is_said(features: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, layer = trained_badly(SOFTMAX, features[:, :2000])
    assert not Head.fit_sample(sample, layer).remark
    monkeypatch.setitem(_head.OPTIONS, "maxiter", 2)
    trials = try_methods(sample, layer)
    assert [score.remark for score in trials.scores.values()] == ["", "", "the search did not converge"]


@pytest.mark.parametrize("activation", Activation)
def test_a_class_without_a_voxel_keeps_its_row(activation: Activation, features: np.ndarray) -> None:
    """Cross-entropy alone would drive its shift toward −∞."""
    sample, layer = trained_badly(activation, features[:, :4000])
    absent = 2
    if activation is SOFTMAX:
        sample = sample.take(sample.truth != absent)
    else:
        sample = replace(sample, truth=sample.truth & (np.arange(3) != absent)[:, None])
    temperature = Temperature.fit_sample(sample)
    for hinge_weight in (0, 30):
        head = Head.fit_sample(sample, layer, hinge_weight=hinge_weight)
        weight, bias = temperature.layer(*layer)
        assert head.weight[absent] == pytest.approx(weight[absent])
        assert head.bias[absent] == pytest.approx(bias[absent])
        assert np.abs(np.array(head.bias[0]) - bias[0]) > 1e-3


@dataclass(frozen=True)
class Scaled:
    """A calibration of one's own, which tries two factors."""

    factor: float
    method: str = "scaled"
    remark: str = "of two factors"
    needs_features: ClassVar[bool] = False

    @classmethod
    def fit_sample(cls, sample: Sample, _: Any = None) -> "Scaled":
        def nll(factor: float) -> float:
            log_p = sample.logits * factor
            log_p -= logsumexp(log_p, axis=0)
            of_truth = np.take_along_axis(log_p, sample.truth[None], axis=0)[0]
            return -float(of_truth @ sample.weights)

        return cls(min((1.0, 2.0), key=nll))

    def logits(self, inputs: np.ndarray) -> np.ndarray:
        inputs *= self.factor  # in place, as researchers write it: this does not spoil the next
        return inputs

    def layer(self, weight: np.ndarray, bias: np.ndarray) -> Any:
        return self.factor * weight, self.factor * bias


def test_a_calibration_of_ones_own(features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    own: Calibration = Scaled(1)
    cases = np.arange(40_000) // 8000
    table = compare(right.T / 2, drawn(SOFTMAX, right), cases=cases, methods=(Scaled, Temperature))
    assert list(table.index) == ["as trained", own.method, "temperature"]
    assert table.loc["scaled", "NLL"] == pytest.approx(table.loc["temperature", "NLL"], rel=1e-3)
    assert table.loc["scaled", "remark"] == "of two factors"
    alone = compare(right.T / 2, drawn(SOFTMAX, right), cases=cases)
    assert table.loc["temperature"].equals(alone.loc["temperature"])


@pytest.mark.parametrize("activation", Activation)
def test_head_recovers_and_is_logistic_regression(activation: Activation, features: np.ndarray) -> None:
    right = LAYER[0] @ features + LAYER[1][:, None]
    spoiled = (
        LAYER[0] * 2.5 + 0.3 * np.random.default_rng(5).normal(size=LAYER[0].shape) * [1, 1, 1, 1, 0.02, 1],
        LAYER[1] + [1, 0, -1],
    )
    truth = drawn(activation, right)
    sample = sample_of(activation, spoiled[0] @ features + spoiled[1][:, None], truth, features=features)
    head = Head.fit_sample(sample, spoiled, strength=1e-6, hinge_weight=0)
    p = activation.probabilities(head.logits(features).astype(np.float64))
    assert np.abs(p - activation.probabilities(right)).mean() < 0.008
    scaled = (features / features.std(1, keepdims=True)).T
    regression = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    if activation is SIGMOID:
        expected = np.stack([regression.fit(scaled, of_region).predict_proba(scaled)[:, 1] for of_region in truth])
    else:
        expected = regression.fit(scaled, truth).predict_proba(scaled).T
    assert np.abs(p - expected).max() < 2e-3


def trained_badly(activation: Activation, features: np.ndarray) -> tuple[Sample, tuple[np.ndarray, np.ndarray]]:
    """A model that is too sure, and whose labels are not the most probable ones."""
    right = LAYER[0] @ features + LAYER[1][:, None]
    layer = 2.5 * LAYER[0], 2.5 * (LAYER[1] + [-0.7, 0.9, 0.3])
    trained = layer[0] @ features + layer[1][:, None]
    return sample_of(activation, trained, drawn(activation, right), features=features), layer


@pytest.mark.parametrize("activation", Activation)
def test_labels_are_kept_and_no_head_is_behind_a_temperature(activation: Activation, features: np.ndarray) -> None:
    sample, layer = trained_badly(activation, features[:, :4000])
    of_temperature = judge(sample, Temperature.fit_sample(sample).logits(sample.logits)).NLL
    heads = (Head.fit_sample(sample, layer, hinge_weight=cost) for cost in (0, 3, 30, 1000, 1e6))
    scores = [judge(sample, calibrated_logits(head, sample)) for head in heads]
    changed = [score.changed for score in scores]
    assert changed == sorted(changed, reverse=True)
    assert changed[0] > 0.05
    assert changed[-1] == 0
    assert max(score.NLL for score in scores) <= of_temperature + 1e-6


def score(nll: float, highest_change: float, dice: float) -> Score:
    return Score(NLL=nll, NLL_change=(-1.0, highest_change), ECE=0.1, over_confidence=0.1, Dice=dice, changed=0.0)


def choose(scores: dict[str, Score], wanted: str | None = None) -> str:
    methods = {
        "as trained": AS_TRAINED,
        "temperature": Temperature(2.0),
        "head": Head([[1.0], [1.0]], [0.0, 0.0]),
    }
    return Trials(methods, {"a": methods}, scores).best(wanted).method


def test_which_method_is_written() -> None:
    trained = score(2.0, 0.0, 0.8)
    better = {"as trained": trained, "temperature": score(1.8, -0.1, 0.8)}
    assert choose({**better, "head": score(1.6, -0.1, 0.7981)}) == "head"
    assert choose({**better, "head": score(1.6, -0.1, 0.7979)}) == "temperature"  # it costs more Dice than .002
    assert choose({**better, "head": score(1.6, 0.01, 0.8)}) == "temperature"  # by chance, perhaps
    assert choose({**better, "head": score(1.6, 0.01, 0.8)}, wanted="head") == "head"
    hardly = {name: score(1.991, -0.001, 0.8) for name in ("temperature", "head")}
    assert choose({"as trained": trained, **hardly}) == "as trained"
    assert choose({**better, "head": replace(score(1.6, -0.1, 0.8), changed=0.54)}) == "temperature"
    worse = {name: score(1.9, 0.01, 0.8) for name in ("temperature", "head")}
    assert choose({"as trained": trained, **worse}) == "as trained"


def test_scores_by_hand() -> None:
    p = np.array([[0.7, 0.2, 0.9, 0.4], [0.3, 0.8, 0.1, 0.6]])
    trained = np.array([[0.4, 0.2, 0.9, 0.4], [0.6, 0.8, 0.1, 0.6]])
    weights, near = np.array([1, 2, 1, 1], np.float32), np.array([[True, True, False, True]])
    sample = sample_of(SOFTMAX, np.log(trained), np.array([0, 1, 1, 1]), cases=1, weights=weights, near=near)
    score = judge(sample, np.log(p))
    assert pytest.approx(-(np.log(0.7) + 2 * np.log(0.8) + np.log(0.1) + np.log(0.6)) / 4, rel=1e-6) == score.NLL
    assert score.over_confidence == pytest.approx((0.7 + 2 * 0.8 + 0.6) / 4 - 1, rel=1e-6)
    assert pytest.approx(1 - (0.7 + 2 * 0.8 + 0.6) / 4, rel=1e-6) == score.ECE
    assert score.Dice == pytest.approx(2 * 3 / (3 + 4))
    assert score.changed == pytest.approx(1 / 4)


def test_dice_of_regions_is_that_of_the_labels_that_are_written() -> None:
    p = np.array([[0.9, 0.2, 0.4], [0.3, 0.1, 0.8]])  # whole, core
    truth = np.array([[True, False, True], [False, False, True]])
    sample = sample_of(SIGMOID, np.log(p / (1 - p)), truth, cases=1)
    sample = replace(sample, meaning=LabelMeaning((0, 1, 2), ((1, 2), (2,)), (1, 2)))
    assert judge(sample, sample.logits).Dice == pytest.approx(1)  # the last voxel's label is 2, which is in both


def test_patients_are_held_out_and_resampled_as_a_whole(features: np.ndarray) -> None:
    sample, _ = trained_badly(SOFTMAX, features[:, :4000])
    sample = replace(sample, names=tuple(f"patient{number // 2}_{number}" for number in range(10)))
    alike = judge(sample, sample.logits / 2.5)
    sample = replace(sample, by_patient=True)
    parts = split_cases(sample.names, by_patient=True)
    assert [{name[:8] for name in part} for part in parts] == [{part[0][:8]} for part in parts]
    trials = try_methods(sample, methods=[Temperature])
    pairs = [(trials.fitted_without[one], trials.fitted_without[other]) for one, other in parts]
    assert all(one is other for one, other in pairs)
    is_held_out = np.isin(sample.names, parts[1])[sample.case]
    assert pairs[1][0]["temperature"] == Temperature.fit_sample(sample.take(~is_held_out))
    doubled = replace(sample, case=sample.case // 2 * 2)  # each patient's voxels in one of its two cases
    expected = judge(doubled, doubled.logits / 2.5)
    assert judge(sample, sample.logits / 2.5).NLL_change == pytest.approx(expected.NLL_change)
    assert alike.NLL_change != pytest.approx(expected.NLL_change)


def test_a_case_changes_the_nll_by_a_paired_bootstrap(features: np.ndarray) -> None:
    sample, _ = trained_badly(SOFTMAX, features)
    low, high = judge(sample, sample.logits / 2.5).NLL_change
    assert low < high < 0
    assert judge(sample, sample.logits).NLL_change == (0, 0)
    of_cases = nll_of_cases(sample, sample.logits / 2.5) - nll_of_cases(sample, sample.logits)
    foreground = np.array([(sample.truth[sample.case == case] > 0).sum() for case in range(10)])
    draws = np.random.default_rng(7).integers(0, 10, (4000, 10))
    expected = np.percentile(of_cases[draws].sum(1) / foreground[draws].sum(1), [2.5, 97.5])
    assert (low, high) == pytest.approx(tuple(expected), rel=0.05)


def draw(name: str, channels: int, labels: np.ndarray, foreground: np.ndarray, most: int) -> Sample:
    """Of a row of voxels 10 mm apart; its one feature is the voxel's index."""
    return Sample.draw(
        name, meaning_of(SOFTMAX, channels), labels, foreground=foreground, spacing_mm=(10.0,), most=most,
        values=lambda index: (np.zeros((channels, index.size)), index[None]),
    )  # fmt: skip


def test_drawn_voxels_stand_for_all() -> None:
    generator = np.random.default_rng(0)
    near, counted = generator.random(10_000) < 0.02, generator.random(10_000) < 0.9

    def drawn_from(near: np.ndarray, most: int, name: str = "case") -> tuple[np.ndarray, np.ndarray]:
        of_case = draw(name, 2, np.where(counted, 1, 2), near[None] * 1.0, most)
        index = of_case.features[0]
        assert np.array_equal(of_case.near[0], near[index])
        assert (of_case.truth == 1).all()
        return index, of_case.weights

    index, weights = drawn_from(near, 600)
    assert index.size == 600
    assert (np.diff(index) > 0).all()
    assert counted[index].all()
    assert (near & counted).sum() == near[index].sum()  # fewer than half of what is drawn: all of them
    assert weights[near[index]] == pytest.approx(1)
    assert weights.sum() == pytest.approx(counted.sum())
    assert (index != drawn_from(near, 600, "other")[0]).any()
    near_half = generator.random(10_000) < 0.5
    assert near_half[drawn_from(near_half, 600)[0]].sum() == 300
    everything, ones = drawn_from(near, 20_000)
    assert (everything == np.flatnonzero(counted)).all()
    assert (ones == 1).all()


def test_each_label_of_a_case_is_drawn_without_a_bias() -> None:
    """Three voxels of one label, 40 of another; estimates of sums are right on average over draws."""
    labels = np.zeros(20_000, int)
    labels[:3], labels[100:140], labels[1000:6000] = 3, 2, 1
    near = np.zeros((1, labels.size))
    near[0, :8000] = 1
    near[0, 2] = 0
    values = np.random.default_rng(0).normal(size=labels.size) + labels**2
    estimates = []
    for number in range(300):
        drawn = draw(f"case {number}", 4, labels, near, 400)
        counts = np.bincount(drawn.truth)
        assert counts[3] == 3
        assert counts[2] == 10
        assert drawn.weights[drawn.truth == 3] == pytest.approx(1)
        assert drawn.weights[drawn.truth == 2] == pytest.approx(4)
        assert drawn.weights.sum() == pytest.approx(labels.size)
        estimates.append(drawn.weights @ values[drawn.features[0]])
    assert abs(np.mean(estimates) - values.sum()) < 3 * np.std(estimates) / np.sqrt(300)
