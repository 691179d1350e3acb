"""Calibration of arrays and tensors, without nnU-Net."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from nnunet_nacl.calibrate import Head, Temperature, Vector, compare, split_cases
from nnunet_nacl.metrics import Settings, evaluate_case, near_core

SHAPE = (8, 20, 20)


def drawn(seed: int = 0, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits (b, 3, 20, 20) that are too sure by this factor, and labels drawn from what is right."""
    generator = np.random.default_rng(seed)
    right = generator.normal(size=(8, 3, 20, 20)) + np.array([1.0, 0.0, -1.0])[:, None, None]
    labels = (generator.random((8, 1, 20, 20)) > softmax(right, axis=1).cumsum(1)).sum(1).clip(0, 2)
    return (sharpness * right).astype(np.float32), labels


def test_arrays_tensors_and_axes_agree() -> None:
    logits, labels = drawn()
    first = np.moveaxis(logits, 1, 0)
    fits = [
        Temperature.fit(logits, labels, channel_axis=1),
        Temperature.fit(torch.from_numpy(logits), torch.from_numpy(labels), channel_axis=1),
        Temperature.fit(first, labels),
        Temperature.fit(first.reshape(3, -1), labels.reshape(-1)),
    ]
    assert len(set(fits)) == 1
    assert fits[0].temperature == pytest.approx(2, rel=0.1)
    expected = softmax(logits / fits[0].temperature, axis=1)
    assert fits[0].probabilities(logits, channel_axis=1) == pytest.approx(expected, abs=1e-6)
    of_tensor = fits[0].probabilities(torch.from_numpy(logits), channel_axis=1)
    assert isinstance(of_tensor, torch.Tensor)
    assert of_tensor.numpy() == pytest.approx(expected, abs=1e-6)
    vector = Vector.fit(first, labels)
    assert vector.probabilities(first).sum(0) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_fit_where_torch_records_no_gradients(context: type[torch.no_grad]) -> None:
    logits, labels = drawn()
    layer = (np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    expected = Vector.fit(logits, labels, channel_axis=1), Head.fit(logits, labels, layer, channel_axis=1)
    with context():
        given = torch.from_numpy(logits)
        assert Vector.fit(given, labels, channel_axis=1) == expected[0]
        assert Head.fit(given, labels, layer, channel_axis=1) == expected[1]


def test_comparison_has_the_scores_of_an_evaluation() -> None:
    logits, labels = drawn()
    frame = compare(logits, labels, channel_axis=1)
    assert list(frame.index) == ["as trained", "temperature", "vector"]
    trained = frame.loc["as trained"]
    whole = evaluate_case(softmax(logits.astype(np.float64), axis=1), labels, channel_axis=1)
    assert trained["NLL"] == pytest.approx(whole["image"].NLL_per_foreground, rel=1e-5)
    assert trained["ECE"] == pytest.approx(whole["image"].ECE, abs=1e-5)
    assert trained["Dice"] == pytest.approx(whole.Dice, rel=1e-5)
    assert frame.loc["temperature", "NLL"] < trained["NLL"] - 0.1
    assert frame.loc["temperature", "changed"] == 0


def test_ignored_voxels_and_weights() -> None:
    logits, labels = drawn()
    ignored = np.random.default_rng(1).random(SHAPE) < 0.3
    marked = np.where(ignored, 3, labels)
    ignoring = compare(logits, marked, cases=range(8), ignore_label=3, channel_axis=1)
    rows = np.moveaxis(logits, 1, 0)
    kept = compare(rows[:, ~ignored], labels[~ignored], cases=np.nonzero(~ignored)[0])
    weighted = compare(logits, labels, weights=(~ignored).astype(float), channel_axis=1)
    temperature = Temperature.fit(logits, marked, ignore_label=3, channel_axis=1).temperature
    assert temperature == pytest.approx(Temperature.fit(rows[:, ~ignored], labels[~ignored]).temperature)
    scores = ["NLL", "ECE", "Dice"]
    smooth = ["as trained", "temperature"]  # rounding can give a voxel of another fit another label
    for frame in (kept, weighted):
        assert frame["NLL"].to_numpy() == pytest.approx(ignoring["NLL"].to_numpy(), 1e-4)
        expected = ignoring.loc[smooth, scores].to_numpy()
        assert frame.loc[smooth, scores].to_numpy() == pytest.approx(expected, 1e-4)


def test_regions() -> None:
    generator = np.random.default_rng(2)
    right = 1.2 * generator.normal(size=(2, 8000))
    masks = generator.random(right.shape) < expit(right)
    assert Temperature.fit(3 * right, masks).temperature == pytest.approx(3, rel=0.1)
    for fit in (Temperature.fit(3 * right, masks), Vector.fit(3 * right, masks)):  # by a sigmoid each
        assert fit.probabilities(3 * right) == pytest.approx(expit(fit.logits(3 * right)), abs=1e-6)
    logits = 3 * np.moveaxis(right.reshape(2, 8, 1000), 0, 1)
    truth = np.moveaxis(masks.reshape(2, 8, 1000), 0, 1)
    near = near_core(torch.from_numpy(expit(logits) > 0.05), [1], 0)  # 5 mm around them, it would be all voxels
    trained = compare(logits, truth, near=near, channel_axis=1).loc["as trained"]
    whole = evaluate_case(logits, truth, logits=True, channel_axis=1, settings=Settings(margin_mm=0))
    assert trained["ECE"] == pytest.approx(whole["near"].ECE, abs=1e-5)
    assert trained["Dice"] == pytest.approx(whole.Dice, rel=1e-4)
    assert trained["NLL"] == pytest.approx(whole["image"].NLL_per_foreground, rel=1e-4)


def test_the_last_layer_of_a_torch_network_is_taken_out_and_put_back() -> None:
    torch.manual_seed(0)
    last = torch.nn.Conv2d(5, 3, 1)
    features = torch.randn(8, 5, 20, 20)
    with torch.no_grad():
        right = last(features).softmax(1)
        labels = torch.multinomial(right.movedim(1, -1).reshape(-1, 3), 1).reshape(SHAPE)
        last.weight *= 3
        last.bias *= 3
        before = last(features)
    head = Head.fit(features, labels, (last.weight, last.bias), channel_axis=1)
    frame = compare(before, labels, features=features, layer=(last.weight, last.bias), channel_axis=1)
    assert frame.loc["head", "NLL"] < frame.loc["as trained", "NLL"]
    for method in (Temperature.fit(before, labels, channel_axis=1), Vector.fit(before, labels, channel_axis=1)):
        weight, bias = method.layer(last.weight, last.bias)  # tensors (3, 5, 1, 1) and (3,)
        of_layer = np.tensordot(weight, features.numpy(), ((1,), (1,))) + bias[:, None, None, None]
        expected = method.probabilities(before, channel_axis=1).numpy()
        assert softmax(of_layer, axis=0).swapaxes(0, 1) == pytest.approx(expected, abs=1e-5)
    weight, bias = head.layer()
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(weight).reshape(last.weight.shape))
        last.bias.copy_(torch.from_numpy(bias))
        after = last(features)
    rows = features.movedim(1, 0).reshape(5, -1).numpy()
    assert after.movedim(1, 0).reshape(3, -1).numpy() == pytest.approx(head.logits(rows), abs=1e-4)
    assert float((after.softmax(1) - right).abs().mean()) < 0.03
    assert float((after.argmax(1) != before.argmax(1)).float().mean()) < 0.01


def test_a_constant_feature_keeps_its_weight() -> None:
    logits, labels = drawn()
    features = np.concatenate([logits, np.full((8, 1, 20, 20), 0.3, np.float32)], axis=1)
    trained = np.column_stack([np.eye(3), [0.5, -0.2, 0.1]])
    weight, _ = Head.fit(features, labels, (trained, None), channel_axis=1).layer()
    temperature = Temperature.fit(logits, labels, channel_axis=1).temperature
    assert weight[:, 3] == pytest.approx(trained[:, 3] / temperature, rel=0.05)  # of the logits without it


def test_integer_logits() -> None:
    logits, labels = drawn()
    fit = Temperature.fit(logits, labels, channel_axis=1)
    whole = logits.round().astype(np.int8)
    expected = fit.probabilities(whole.astype(np.float32), channel_axis=1)
    assert fit.probabilities(whole, channel_axis=1) == pytest.approx(expected)
    assert fit.probabilities(torch.from_numpy(whole), channel_axis=1).numpy() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": np.zeros((8, 20, 19), int)}, r"labels: expected the shape \(8, 20, 20\); got \(8, 20, 19\)"),
        ({"labels": np.zeros((20, 8, 20), int)}, r"labels: expected the shape \(8, 20, 20\); got \(20, 8, 20\)"),
        ({"labels": np.ones((8, 3, 20, 20), int)}, r"labels: expected the shape \(8, 20, 20\); got \(8, 3,"),
        ({"labels": np.ones(SHAPE, bool)}, r"masks of regions: expected the shape \(8, 3, 20, 20\)"),
        ({"labels": np.ones((8, 3, 20, 20), bool), "ignore_label": 3}, "ignore_label: masks have no labels"),
        ({"labels": np.full(SHAPE, 3)}, "labels: expected the whole numbers 0 to 2"),
        ({"labels": np.full(SHAPE, -1)}, "labels: expected the whole numbers 0 to 2"),
        ({"labels": np.full(SHAPE, 0.6)}, "labels: expected the whole numbers 0 to 2"),
        ({"ignore_label": -100, "labels": np.full(SHAPE, -100)}, "expected a voxel that counts"),
        ({"weights": np.zeros(SHAPE)}, "expected a voxel that counts"),
        ({"weights": np.full(SHAPE, np.nan)}, "expected a voxel that counts"),
        ({"weights": np.ones((20, 8, 20))}, r"weights: expected the shape \(8, 20, 20\)"),
        ({"near": np.ones(SHAPE, np.uint8)}, "near: expected bool; got uint8"),
        ({"near": np.ones((20, 20), bool)}, r"near: expected the shape \(8, 20, 20\) or \(8, 3, 20, 20\)"),
        ({"cases": np.arange(20)}, r"cases: expected the shape \(8, 20, 20\) or \(8,\); got \(20,\)"),
        ({"cases": np.zeros(SHAPE)}, "cases: expected two or more"),
        ({"weights": np.arange(8)[:, None, None] * np.ones(SHAPE) > 6}, "cases: expected two or more"),
        ({"weights": np.full(SHAPE, np.inf)}, "too large for single precision"),
        ({"weights": np.full(SHAPE, 1e-46)}, "expected a voxel that counts"),
        ({"methods": ["temperature"]}, r"methods: expected classes, such as Temperature; got \['temperature'\]"),
        ({"features": np.zeros((8, 2, 20, 19)), "layer": (1, 1)}, r"features: expected the shape \(8, 2, 20, 20\)"),
        ({"features": np.zeros((8, 2, 20, 20))}, "features and layer go together"),
        (
            {"features": np.full((8, 2, 20, 20), np.nan), "layer": (np.ones((3, 2)), np.ones(3))},
            "features: expected finite",
        ),
        *(
            ({"features": np.zeros((8, 4, 20, 20)), "layer": layer}, message)
            for layer, message in (
                ((np.ones((3, 5)), np.ones(3)), r"layer: expected the weight .* of 4 features, \(3, 4\); got \(3, 5\)"),
                ((np.ones((2, 4)), np.ones(2)), r"layer: expected the weight .* of 4 features, \(3, 4\); got \(2, 4\)"),
                ((np.ones((3, 4)), np.ones(1)), r"layer: expected a bias of the shape \(3,\); got \(1,\)"),
                ((np.full((3, 4), np.nan), np.ones(3)), "layer: expected finite numbers"),
            )
        ),
    ],
)
def test_arrays_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    logits, labels = drawn()
    with pytest.raises(ValueError, match=message):
        compare(logits, **{"labels": labels, "channel_axis": 1, **given})


def test_images_without_a_voxel_that_counts_are_no_cases() -> None:
    logits, labels = drawn()
    labels[5:] = -1
    found = compare(logits, labels, channel_axis=1, ignore_label=-1)
    assert found.equals(compare(logits[:5], labels[:5], channel_axis=1))
    weights = np.ones(SHAPE)
    weights[5:] = 0
    assert found.equals(compare(logits, np.maximum(labels, 0), channel_axis=1, weights=weights))


class _Compared(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        _Compared.count += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_each_row_may_be_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case is searched for among the others: of 100,000 rows, that would take hours."""

    def split(names: Sequence[str]) -> list[list[str]]:
        return [[_Compared(name) for name in part] for part in split_cases(names)]

    monkeypatch.setattr("nnunet_nacl.calibrate._trials.split_cases", split)
    logits, labels = drawn()
    rows = np.moveaxis(logits, 1, -1).reshape(-1, 3)[:500]
    compare(rows, labels.reshape(-1)[:500], channel_axis=1, methods=[Temperature])
    assert _Compared.count <= 5 * 500


def test_a_list_of_logits() -> None:
    logits, labels = drawn()
    fit = Temperature.fit(logits, labels, channel_axis=1)
    found = fit.probabilities(logits.tolist(), channel_axis=1)
    np.testing.assert_array_equal(found, fit.probabilities(logits, channel_axis=1))


def test_logits_and_layers_that_do_not_fit() -> None:
    logits, labels = drawn()
    with pytest.raises(ValueError, match=r"got \(8, 20, 20\)\. Of a batch \(b, K, \*spatial\), give channel_axis=1"):
        Temperature.fit(logits, labels)
    with pytest.raises(ValueError, match=r"expected 3 channels along axis 0, as in the fit; got 8\. Of a batch"):
        Temperature.fit(logits, labels, channel_axis=1).probabilities(logits)
    with pytest.raises(ValueError, match=r"1×1 convolution of 3 features, \(3, 3\); got \(3, 3, 3, 3\)"):
        Head.fit(logits, labels, (np.ones((3, 3, 3, 3)), np.ones(3)), channel_axis=1)
    with pytest.raises(ValueError, match=r"layer: expected a bias of the shape \(3,\); got \(1,\)"):
        Head.fit(logits, labels, (np.ones((3, 3)), np.ones(1)), channel_axis=1)
    logits[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="features: expected finite numbers; got NaN"):
        Head.fit(logits, labels, (np.eye(3), np.ones(3)), channel_axis=1)
    for method in (Temperature, Vector):
        with pytest.raises(ValueError, match="logits: expected finite numbers; got NaN"):
            method.fit(logits, labels, channel_axis=1)
