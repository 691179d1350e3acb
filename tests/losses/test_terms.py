"""Image-level terms: values by hand, and other implementations. Laws that hold for all of them: test_laws.py."""

import itertools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from monai.losses import DiceLoss
from torch import Tensor
from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.losses import DiceACE, DicePlusPlus, ImageTerm, SoftDice
from tests.losses.test_laws import CLASSES, ace, draw, nnunets_dice, value_and_gradient

each_kind = pytest.mark.parametrize("regions", [False, True], ids=["classes", "regions"])


@pytest.mark.parametrize("batch", [False, True], ids=["images", "batch"])
@pytest.mark.parametrize("ignore", [False, True], ids=["all", "ignore"])
@pytest.mark.parametrize(
    "term", [lambda **shared: DicePlusPlus(gamma=1, **shared), SoftDice], ids=["DSC++", "SoftDice"]
)
def test_of_hard_labels_it_is_nnunets_dice(term: Callable[..., ImageTerm], batch: bool, ignore: bool) -> None:
    logits, labels = draw()
    mask = labels != 1 if ignore else None
    dice = nnunets_dice()
    dice.batch_dice = batch
    (found, gradient), (expected, slope) = (
        value_and_gradient(partial(one, loss_mask=mask), logits.float(), labels) for one in (term(batch=batch), dice)
    )
    torch.testing.assert_close(found, 1 + expected)
    torch.testing.assert_close(gradient, slope)


@pytest.mark.parametrize("name", ["LS", "SVLS"])
@pytest.mark.parametrize("batch", [False, True], ids=["images", "batch"])
@each_kind
def test_soft_dice_is_monais(name: str, batch: bool, regions: bool) -> None:
    logits, target = draw(regions=regions)
    kind = {"LS": losses.LabelSmoothingLoss, "SVLS": losses.SVLSLoss}[name]
    alone, both = (kind(regions=regions, term=term) for term in (None, SoftDice(regions=regions, batch=batch)))
    if name == "LS":
        hot = target.double() if regions else torch.nn.functional.one_hot(target[:, 0], CLASSES).movedim(-1, 1).double()
        soft = hot * 0.9 + 0.1 / (2 if regions else CLASSES)
    else:
        soft = losses.neighbor_shares(
            target, CLASSES, prior="gaussian", sigma=2.0, border="background", regions=regions
        ).double()
    monais = DiceLoss(
        soft_label=True, batch=batch, sigmoid=regions, softmax=not regions, include_background=regions,
        smooth_nr=1e-5, smooth_dr=1e-5,
    )  # fmt: skip
    torch.testing.assert_close(both(logits, target) - alone(logits, target), monais(logits, soft), rtol=1e-6, atol=1e-9)


def test_the_minimum_of_soft_dice_is_the_soft_target() -> None:
    _, labels = draw()
    soft = torch.nn.functional.one_hot(labels[:, 0], CLASSES).movedim(-1, 1) * 0.9 + 0.1 / CLASSES
    assert SoftDice()(soft.log(), soft).item() == pytest.approx(0, abs=1e-6)
    assert min(SoftDice()(step * soft.log(), soft).item() for step in (0.8, 1.25)) > 0.01


def dice_plus_plus(p: Tensor, hot: Tensor) -> float:
    values = []
    for b, k in itertools.product(range(len(p)), range(1, p.shape[1])):
        hits = missed = false = 0.0
        for q, y in zip(p[b, k].flatten().tolist(), hot[b, k].flatten().tolist(), strict=True):
            hits += 2 * q * y
            missed += (y * (1 - q)) ** 2
            false += ((1 - y) * q) ** 2
        values.append(1 - (hits + 1e-5) / (hits + missed + false + 1e-5))
    return sum(values) / len(values)


def mean_ace(p: Tensor, hot: Tensor, *, soft: bool) -> float:
    """mL1-ACE as it is written down: each voxel, class and bin."""
    values = []
    for b, k in itertools.product(range(len(p)), range(p.shape[1])):
        bins: dict[int, list[float]] = {m: [0.0, 0.0, 0.0] for m in range(20)}
        for q, y in zip(p[b, k].flatten().tolist(), hot[b, k].flatten().tolist(), strict=True):
            for m in range(20):
                center = (2 * m + 1) / 40
                weight = float(m / 20 < q <= (m + 1) / 20 or (q == 0 and m == 0))
                if soft:
                    weight = max(0.0, 1 - 20 * abs(q - center))
                    weight = 1.0 if (m == 0 and q < center) or (m == 19 and q > center) else weight
                bins[m] = [a + b for a, b in zip(bins[m], (weight, weight * q, weight * y), strict=True)]
        filled = [(n, of_q, of_y) for n, of_q, of_y in bins.values() if n >= (0.01 if soft else 1)]
        gaps = [abs(of_q - of_y) / n for n, of_q, of_y in filled]
        values.append(sum(gaps) / len(gaps) if hot[b, k].any() else 0.0)
    return sum(values) / len(values)


@pytest.mark.parametrize("lacking", [False, True])
def test_against_loops(lacking: bool) -> None:
    logits, labels = draw()
    if lacking:
        labels[0] = labels[0].clamp_max(1)
    p = logits.softmax(1)
    hot = torch.nn.functional.one_hot(labels[:, 0], CLASSES).movedim(-1, 1)
    assert DicePlusPlus()(logits, labels).item() == pytest.approx(dice_plus_plus(p, hot), rel=1e-9)
    assert ace()(logits, labels).item() == pytest.approx(mean_ace(p, hot, soft=True), rel=1e-9)
    assert ace(bins="hard")(logits, labels).item() == pytest.approx(mean_ace(p, hot, soft=False), rel=1e-9)


@pytest.mark.parametrize("bins", ["soft", "hard"])
def test_ace_of_many_voxels_keeps_its_digits(bins: str) -> None:
    """In single precision, a p of 0.999 that is added to a sum of 30,000 is added as 1."""
    p = 0.9985 + 0.001 * torch.rand(64, 64, 128)
    logits = torch.stack([torch.zeros_like(p), p.logit()])[None]
    labels = (torch.rand(1, 1, *p.shape) < 0.9996).long()
    (value, gradient), (expected, slope) = (
        value_and_gradient(ace(bins=bins), given, labels) for given in (logits, logits.double())
    )
    torch.testing.assert_close(value, expected, rtol=1e-3, atol=0, check_dtype=False)
    torch.testing.assert_close(
        gradient.sum((0, 2, 3, 4)), slope.sum((0, 2, 3, 4)), rtol=1e-3, atol=0, check_dtype=False
    )


@pytest.mark.parametrize(
    ("bins", "p", "y", "expected"),
    [
        # 0.5 belongs to (0.45, 0.5] with 0.46, not to (0.5, 0.55] with 0.53
        ("hard", [0.5, 0.46, 0.53], [1.0, 0.0, 1.0], (abs(0.96 - 1) / 2 + abs(0.53 - 1)) / 2),
        # Centers 0.475 and 0.525 share 0.5 alike. 0.01 lies below the first center, 0.025, and all goes there
        ("soft", [0.5, 0.01], [1.0, 0.0], (0.5 + 0.5 + 0.01) / 3),
    ],
)
def test_bins_by_hand(bins: str, p: list[float], y: list[float], expected: float) -> None:
    voxels = torch.tensor([[[p]]], dtype=torch.float64)
    value = ace(bins=bins, regions=True).image_loss(voxels, torch.tensor([[[y]]]), torch.ones_like(voxels))
    assert value.item() == pytest.approx(expected)


def test_hard_bins_have_gradients_through_the_mean_probability_alone() -> None:
    logits = torch.zeros(1, 1, 1, 2, dtype=torch.float64, requires_grad=True)
    ace(bins="hard", regions=True)(logits, torch.ones(1, 1, 1, 2)).backward()
    # One bin, mean p 1/2 below 1: d|mean p - 1| / dl = -p (1 - p) / 2 for each voxel
    torch.testing.assert_close(logits.grad, torch.full_like(logits, -0.125))


def test_dice_and_ace_are_added() -> None:
    logits, labels = draw()
    logits = logits.float()
    both = DiceACE(nnunets_dice(), ace_weight=0.7, batch=True)(logits, labels)  # mL1-ACE is of each image all the same
    torch.testing.assert_close(both, nnunets_dice()(logits, labels) + 0.7 * ace()(logits, labels))


class Tversky(ImageTerm):
    """Of one's own: 1 - hits / (hits + β missed + (1 - β) false)."""

    def __init__(self, *, beta: float = 0.3, **shared: Unpack[losses.SharedByTerms]) -> None:
        super().__init__(**shared)
        self.beta = beta

    def image_loss(self, p: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        hits, missed, false = (self.total(x * valid) for x in (p * target, (1 - p) * target, p * (1 - target)))
        return 1 - self.structures(hits / (hits + self.beta * missed + (1 - self.beta) * false + 1e-5)).mean()


def test_a_term_of_ones_own() -> None:
    logits, labels = draw()
    alone, both = losses.CrossEntropyLoss(), losses.CrossEntropyLoss(term=Tversky())
    torch.testing.assert_close(both(logits, labels) - alone(logits, labels), Tversky()(logits, labels))
