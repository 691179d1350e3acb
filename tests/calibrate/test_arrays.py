"""Calibration of arrays and tensors, without nnU-Net."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from nnunet_nacl.calibrate import Head, Temperature, compare
from nnunet_nacl.metrics import evaluate_case

SHAPE = (8, 20, 20)


def drawn(seed: int = 0, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits (b, 3, 20, 20) that are too sure by this factor, and labels drawn from what is right."""
    generator = np.random.default_rng(seed)
    right = generator.normal(size=(8, 3, 20, 20)) + np.array([1.0, 0.0, -1.0])[:, None, None]
    labels = (generator.random((8, 1, 20, 20)) > softmax(right, axis=1).cumsum(1)).sum(1).clip(0, 2)
    return (sharpness * right).astype(np.float32), labels


def test_arrays_tensors_and_rows_agree() -> None:
    logits, labels = drawn()
    fits = [
        Temperature.fit(logits, labels),
        Temperature.fit(torch.from_numpy(logits), torch.from_numpy(labels)),
        Temperature.fit(np.moveaxis(logits, 1, -1).reshape(-1, 3), labels.reshape(-1)),
    ]
    assert len(set(fits)) == 1
    assert fits[0].temperature == pytest.approx(2, rel=0.1)
    expected = softmax(logits / fits[0].temperature, axis=1)
    assert fits[0].probabilities(logits) == pytest.approx(expected, abs=1e-6)
    of_tensor = fits[0].probabilities(torch.from_numpy(logits))
    assert isinstance(of_tensor, torch.Tensor)
    assert of_tensor.numpy() == pytest.approx(expected, abs=1e-6)


def test_comparison_has_the_scores_of_an_evaluation() -> None:
    logits, labels = drawn()
    frame = compare(logits, labels)
    assert list(frame.index) == ["as trained", "temperature"]
    trained = frame.loc["as trained"]
    whole = evaluate_case(softmax(logits.astype(np.float64), axis=1), labels, channel_axis=1)
    assert trained["NLL"] == pytest.approx(whole["image"].NLL_per_foreground, rel=1e-5)
    assert trained["ECE"] == pytest.approx(whole["image"].ECE, abs=1e-5)
    assert trained["Dice"] == pytest.approx(whole.Dice, rel=1e-5)
    assert frame.loc["temperature", "NLL"] < trained["NLL"] - 0.1
    assert frame.loc["temperature", "changed"] == 0


def test_images_of_a_case_are_held_out_together() -> None:
    logits, labels = drawn()
    apart, together = compare(logits, labels), compare(logits, labels, cases=np.arange(8) // 2)
    assert apart.loc["as trained", "NLL"] == pytest.approx(together.loc["as trained", "NLL"])
    assert apart.loc["temperature", "NLL"] != together.loc["temperature", "NLL"]


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
    temperature = Temperature.fit(before, labels)
    weight, bias = temperature.layer(last.weight, last.bias)  # tensors (3, 5, 1, 1) and (3,)
    of_layer = np.tensordot(weight, features.numpy(), ((1,), (1,))) + bias[:, None, None, None]
    expected = temperature.probabilities(before).numpy()
    assert softmax(of_layer, axis=0).swapaxes(0, 1) == pytest.approx(expected, abs=1e-5)
    head = Head.fit(features, labels, (last.weight, last.bias))
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
    weight, _ = Head.fit(features, labels, (trained, None)).layer()
    temperature = Temperature.fit(logits, labels).temperature
    assert weight[:, 3] == pytest.approx(trained[:, 3] / temperature, rel=0.05)  # of the logits without it


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": np.zeros((8, 20, 19), int)}, r"labels \(8, 20, 20\) .* got labels \(8, 20, 19\)"),
        ({"labels": np.full(SHAPE, 0.6)}, "whole numbers from 0 to 2"),
        ({"logits": np.full((8, 3, 20, 20), np.nan)}, "expected finite logits"),
        ({"cases": np.zeros(8)}, "cases: expected two or more"),
    ],
)
def test_arrays_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    logits, labels = drawn()
    with pytest.raises(ValueError, match=message):
        compare(**{"logits": logits, "labels": labels, **given})
