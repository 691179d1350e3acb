"""Evaluation of arrays and tensors, without a file."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logit
from sklearn.metrics import f1_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from nnunet_nacl.metrics import Counts, Settings, evaluate_case, measure, split_scores
from tests.generated import SPACING, structure_case


def numbers(result: Counts) -> list[float]:
    found = [result.Dice]
    for tables in map(result.__getitem__, result.calibration):
        found += measure(tables, scores=True).values()
    return found


@pytest.mark.parametrize("regions", [False, True])
def test_tensors_logits_and_batches(regions: bool) -> None:
    cases = [structure_case(1.5, seed, regions=regions) for seed in range(3)]
    options = {"spacing_mm": SPACING, "regions": [(1, 2), (2,)] if regions else None}
    each = []
    for p, y in cases:
        chosen = (p > 0.5).sum(0) if regions else None
        each.append(evaluate_case(p, y, chosen, **options))
        of_tensor = evaluate_case(torch.from_numpy(p), torch.from_numpy(y), chosen, **options)
        assert numbers(of_tensor) == numbers(each[-1])
        values = logit(p.astype(float)) if regions else np.log(p.astype(float)) + 3
        of_logits = evaluate_case(values, y, chosen, logits=True, **options)
        assert numbers(of_logits) == pytest.approx(numbers(each[-1]), rel=1e-3)
    together = Counts.joined(each)
    predicted = np.stack([(p > 0.5).sum(0) for p, _ in cases]) if regions else None
    batch = evaluate_case(
        np.stack([p for p, _ in cases]), np.stack([y for _, y in cases]), predicted, channel_axis=1, **options
    )
    assert numbers(batch) == numbers(together)
    assert together.Dice == pytest.approx(np.mean([one.Dice for one in each]))
    assert f"near: ECE {together['near'].ECE:.3f}, CECE " in repr(together)


def test_against_other_libraries() -> None:
    p, y = structure_case(1.5)
    image = evaluate_case(p, y)["image"]
    rows = np.moveaxis(p.astype(float), 0, -1).reshape(-1, 3)
    rows /= rows.sum(1, keepdims=True)
    flat = y.reshape(-1)
    assert image.NLL_per_foreground == pytest.approx(log_loss(flat, rows) * flat.size / (flat > 0).sum(), rel=1e-5)
    error = multiclass_calibration_error(torch.from_numpy(rows), torch.from_numpy(flat), 3, n_bins=15)
    assert pytest.approx(float(error), abs=5e-5) == image.ECE  # which takes other sides of the edges
    both = f1_score(flat, rows.argmax(1), labels=[1, 2], average=None)
    assert evaluate_case(p, y).Dice == pytest.approx(both.mean())


@pytest.mark.parametrize("protocol", ["standard", "authors"])
def test_scores_of_voxels_that_the_authors_leave_out_of_bins(protocol: Any) -> None:
    """Voxels with p = 0 are in none, so that neither the foreground's size nor the parts of scores are known."""
    y = np.array([[[1, 1, 0, 0]]])
    p = np.array([[1, 0.5, 0.5, 0.5], [0, 0.5, 0.5, 0.5]]).reshape(2, 1, 1, 4)
    image = evaluate_case(p, y, settings=Settings(protocol=protocol))["image"]
    parts = split_scores(image)
    scores = [image.NLL_per_foreground, *parts["NLL"], *parts["Brier"]]
    assert np.isnan(scores).tolist() == [protocol == "authors"] * 5


def test_regions_are_segmented_as_nnunet_does() -> None:
    """Each where p > 1/2, over those before it."""
    p, y = structure_case(1.5, regions=True)
    regions = [(1, 2), (2,)]
    found = evaluate_case(p, y, regions=regions)
    assert numbers(found) == numbers(evaluate_case(p, y, (p > 0.5).sum(0), regions=regions))
    flat = [f1_score(np.isin(y, region).ravel(), q.ravel() > 0.5) for q, region in zip(p, regions, strict=True)]
    assert [found.by_structure[region]["Dice"] for region in regions] == pytest.approx(flat)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits(dtype: torch.dtype) -> None:
    p, y = structure_case(1.5)
    logits = torch.from_numpy(np.log(p)).to(dtype)
    expected = evaluate_case(logits.double().softmax(0), y)
    assert numbers(evaluate_case(logits, y, logits=True)) == pytest.approx(numbers(expected), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("ignore_label", [-1, -100, 255, np.uint8(255)])
def test_ignored_labels(ignore_label: int | np.uint8) -> None:
    p, y = structure_case(1.5)
    ignored = np.arange(y.size).reshape(y.shape) % 3 == 0
    found = evaluate_case(p, np.where(ignored, ignore_label, y), ignore_label=ignore_label)["image"]
    assert measure(found) == pytest.approx(measure(evaluate_case(p[:, ~ignored], y[~ignored])["image"]))


def test_any_dtype_and_form_of_labels_and_regions() -> None:
    """Float labels, as MONAI's, in a batch of one; regions as lists, arrays and single labels."""
    p, y = structure_case(1.5, regions=True)
    y[:2] = 3
    chosen = (p > 0.5).sum(0)
    usual = numbers(evaluate_case(p, y, chosen, regions=[(1, 2), (2,)], ignore_label=3))
    marked = np.where(y == 3, 65535, y).astype(">i4")
    for regions in ([[1, 2], 2], np.array([[1, 2], [2, 2]]), [np.array([1, 2]), np.int64(2)]):
        assert numbers(evaluate_case(p, marked, chosen, regions=regions, ignore_label=65535)) == usual
    for dtype in (torch.float16, torch.float64):
        given = [torch.from_numpy(labels).to(dtype)[None] for labels in (np.where(y == 3, -1, y), chosen)]
        batch = evaluate_case(p[None], *given, regions=[(1, 2), (2,)], ignore_label=-1, channel_axis=1)
        assert numbers(batch) == usual
    inside = np.stack([1 - p[0], p[0]])
    assert numbers(evaluate_case(inside, y > 0)) == numbers(evaluate_case(inside, np.minimum(y, 1)))


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [0, 2, 1]])
def test_regions_of_a_perfect_model_have_a_dice_of_1_or_are_refused(order: list[int]) -> None:
    """MONAI gives the regions of BraTS as TC, WT, ET; a smaller one before a larger one would be written over."""
    regions = [(1, 2, 4), (1, 4), (4,)]
    y = np.array([[0, 2, 2, 1, 1, 4, 4, 0]])
    p = np.stack([np.isin(y, regions[number]) for number in order]) * 0.98 + 0.01
    given = [regions[number] for number in order]
    assert evaluate_case(p, y, y, regions=given).Dice == 1
    if order == [0, 1, 2]:
        assert evaluate_case(p, y, regions=given).Dice == 1
    else:
        with pytest.raises(ValueError, match=r"cannot hold the regions .* in this order"):
            evaluate_case(p, y, regions=given)
