import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from nnunet_nacl.metrics import Settings, evaluate_case, measure, surface_metrics
from tests.generated import noisy_case


def test_paper_protocol() -> None:
    """p = 0 is in no bin but counts in N; K is the highest label of the case + 1."""
    p = np.array([[0.0, 0.4, 1.0], [1.0, 0.0, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.0]])[:, None]
    y = np.array([[1, 2, 0]])
    standard, paper = (
        measure(evaluate_case(p, y, settings=Settings(protocol=name))["foreground"]) for name in ("standard", "authors")
    )
    assert standard.keys() - paper.keys() == {"ECE_expected", "CECE_expected"}
    # Foreground are the first two voxels. By class: 0: p 0 and 0.4; 1: p 1 (hit) and 0; 2: 0 and 0.6 (hit); 3: 0 and 0.
    assert standard["CECE"] == pytest.approx((0.4 / 2 + 0 + 0.4 / 2 + 0) / 4)
    assert paper["CECE"] == pytest.approx((0.4 / 2 + 0 + 0.4 / 2) / 3)
    assert paper["ECE"] == standard["ECE"]


BATCH = r"with channel_axis=0\.$"
NOT_WHOLE = "expected labels, which are whole numbers; got"
OF_REGIONS = {"regions": [(1, 2), (2,)], "logits": True}


@pytest.mark.parametrize(("change", "message"), [
    (lambda p, y: {"probabilities": p[:, :-1]}, rf"got \(3, 5, 20, 20\) and \(6, 20, 20\) {BATCH}"),
    (lambda p, y: {"probabilities": np.moveaxis(p, 0, 3)}, rf"got \(6, 20, 20, 3\) and \(6, 20, 20\) {BATCH}"),
    (lambda p, y: {"probabilities": np.log(p)}, r"probabilities in \[0, 1\], no logits and no NaN; channel 0 "),
    (lambda p, y: {"probabilities": np.where(p == p.max(), np.float32(1.0000001), p)}, r"values from .* to 1\.0000001"),
    (lambda p, y: {"probabilities": np.where(p > 0.9, np.nan, p)}, "^the probabilities: .* channel 0 .* nan to nan"),
    (lambda p, y: {"probabilities": 0.99 * p}, r"sum to 1 over the 3 classes; the sum is off by up to 0\.01"),
    (lambda p, y: {"probabilities": p.astype(complex)}, "of dtype float16, float32 or float64; got complex"),
    # In which all above 0.998 would be 1; of regions, no sum would tell
    (lambda p, y: {"probabilities": torch.from_numpy(p).bfloat16()}, "bfloat16 is too coarse; give the logits"),
    (lambda p, y: {"ground_truth": y - 1}, r"^the ground truth holds labels .* data set: -1; known are"),
    *((lambda p, y, bad=bad: {"ground_truth": np.where(y, y, bad)}, f"^the ground truth: {NOT_WHOLE} {bad}")
      for bad in (0.5, np.nan, np.inf)),
    (lambda p, y: {"ground_truth": np.ma.masked_array(y, y == 1)}, "give masked voxels an ignore label"),
    (lambda p, y: {"prediction": y + 0.5}, f"^the prediction: {NOT_WHOLE}"),
    (lambda p, y: {"prediction": y[1:]}, r"the shape \(3, 5, 20, 20\), the 3 classes .* of the prediction; got"),
    (lambda p, y: {"probabilities": p[:2], "ignore_label": 2, **OF_REGIONS}, "none to hold the ignore label 2"),
    *((lambda p, y, bad=bad: {"spacing_mm": bad}, "^spacing_mm: expected 3 distances above 0")
      for bad in ((-1, 1, 1), (np.nan, 1, 1), (np.inf, 1, 1), (0, 1, 1), (1, 1, 1, 1), (1, 1))),
])  # fmt: skip
def test_bad_input(change: Callable[..., dict[str, object]], message: str) -> None:
    p, y = noisy_case(6)
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate_case(**({"probabilities": p, "ground_truth": y} | change(p, y)))


@pytest.mark.parametrize(("name", "value"), [
    ("margin_mm", -1), ("margin_mm", np.nan), ("tolerance_mm", np.inf),
    ("num_bins", 0), ("num_bins", 1001), ("protocol", "mine"),
])  # fmt: skip
def test_bad_settings(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*; got {re.escape(repr(value))}\.$"):
        Settings(**{name: value})  # type: ignore[arg-type]


SPACING = (2.0, 1.0, 0.5)
SHAPE = (5, 9, 11)


def segmented(ground_truth: np.ndarray, prediction: np.ndarray, **options: object) -> dict[object, dict[str, float]]:
    p = np.moveaxis(np.eye(3)[np.zeros_like(ground_truth)], -1, 0)
    settings = Settings(surface=True, tolerance_mm=1)
    return evaluate_case(p, ground_truth, prediction, spacing_mm=SPACING, settings=settings, **options).by_structure


def test_distances() -> None:
    """Label 1 is shifted by one voxel (1 mm) in the prediction; there is no label 2."""
    ground_truth = np.zeros(SHAPE, int)
    ground_truth[1:4, 2:6, 3:8] = 1
    prediction = np.roll(ground_truth, 1, axis=1)
    found, absent = segmented(ground_truth, prediction).values()
    masks = ground_truth == 1, prediction == 1
    in_mm, in_voxels = (surface_metrics(*masks, step, 1) for step in (SPACING, (1, 1, 1)))
    expected = {"HD95": in_mm[0], "HD95_voxels": in_voxels[0], "ASSD": in_mm[1], "ASSD_voxels": in_voxels[1]}
    expected |= {"NSD": 1, "Missed": 0, "Dice": 0.75}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["HD95"] == 1
    assert absent.pop("Spurious") == 0
    assert all(np.isnan(value) for value in absent.values())
    ignored = np.where(ground_truth != prediction, 3, ground_truth)  # voxels that are in no mask
    found = segmented(ignored, prediction, ignore_label=3)[1]
    assert (found["Dice"], found["HD95"], found["NSD"]) == (1, 0, 1)
    hidden = segmented(np.full_like(ground_truth, 3), prediction, ignore_label=3)
    assert np.isnan([value for values in hidden.values() for value in values.values()]).all()
    # Missed and spurious ones count as the diagonal
    missed = segmented(ground_truth, np.zeros_like(ground_truth))[1]
    spurious = segmented(ground_truth, 2 * prediction)[2]
    assert (missed["Missed"], spurious["Spurious"]) == (1, 1)
    assert np.isnan([missed["Spurious"], spurious["Missed"]]).all()
    for found in (missed, spurious):
        assert (found["Dice"], found["NSD"]) == (0, 0)
        assert found["HD95"] == found["ASSD"] == pytest.approx(np.sqrt(8**2 + 8**2 + 5**2))
        assert found["HD95_voxels"] == pytest.approx(np.sqrt(4**2 + 8**2 + 10**2))


def test_a_border_to_ignored_voxels_is_no_surface() -> None:
    """Balls 3 voxels apart, of which every fifth slice is labelled; labelled whole, NSD is 0 and ASSD 2.9."""
    distance = np.sqrt(sum((axis - 31.5) ** 2 for axis in np.indices((64, 64, 64))))
    truth, predicted = (distance <= 20).astype(int), (distance <= 23).astype(int)
    p = np.stack([1 - predicted, predicted]).astype(np.float32)
    measured = Settings(surface=True)
    whole = evaluate_case(p, truth, settings=measured).by_structure[1]
    sparse = np.where(np.arange(64)[:, None, None] % 5 > 0, 2, truth)
    found = evaluate_case(p, sparse, ignore_label=2, settings=measured).by_structure[1]
    assert whole["NSD"] == found["NSD"] == 0
    assert whole["ASSD"] == pytest.approx(2.87, abs=0.01)
    assert 3 <= found["ASSD"] < 4  # within the slices, where outlines are as far apart, or farther
    # Known is nothing but the inside of one ball
    hidden = np.where(distance <= 10, 1, 2)
    found = evaluate_case(p, hidden, ignore_label=2, settings=measured).by_structure[1]
    assert found["Dice"] == 1
    assert np.isnan([found[name] for name in ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")]).all()
