"""CRaC: the formula voxel by voxel, and how its weights adapt from epoch to epoch."""

import itertools

import pytest
import torch
from torch import Tensor

from nnunet_nacl.losses import CRaCLoss, CrossEntropyLoss, neighbor_shares
from tests.losses.test_laws import CLASSES, IGNORE, draw, value_and_gradient

MARGIN, RHO = 5.0, 0.1


def entries(logits: Tensor, labels: Tensor, *, ignore: bool = False) -> list[tuple[int, int, float]]:
    """(inside 0 or boundary 1, class, h) of all voxels that count."""
    shares = neighbor_shares(labels, CLASSES, ignore_label=IGNORE if ignore else None).double()
    found = []
    for b, *place in itertools.product(*map(range, (logits.shape[0], *logits.shape[2:]))):
        if ignore and labels[(b, 0, *place)] == IGNORE:
            continue
        at_boundary = sum(float(shares[(b, k, *place)]) > 0 for k in range(CLASSES)) > 1
        for k in range(CLASSES):
            aim = float(shares[(b, k, *place)]) * (1 if at_boundary else MARGIN)
            found.append((int(at_boundary), k, abs(aim - float(logits[(b, k, *place)]))))
    return found


def phr(h: float, multiplier: float, rho: float) -> float:
    return (max(0.0, multiplier + rho * h) ** 2 - multiplier**2) / (2 * rho)


def blocks(spatial: tuple[int, ...]) -> Tensor:
    """Labels with voxels inside and at boundaries."""
    labels = torch.zeros(2, 1, *spatial, dtype=torch.long)
    labels[:, :, : spatial[0] // 2] = 1
    labels[1, :, 0, 0] = 2
    return labels


@pytest.mark.parametrize("spatial", [(6, 5), (5, 4, 4)], ids=["2d", "3d"])
def test_against_loops(spatial: tuple[int, ...]) -> None:
    logits, labels = draw(spatial)[0], blocks(spatial)
    loss = CRaCLoss()
    loss.multipliers = torch.rand(2, CLASSES, dtype=torch.float64)
    loss.rho = torch.rand(2, CLASSES, dtype=torch.float64) + 0.1
    all_entries = entries(logits, labels)
    assert {at_boundary for at_boundary, *_ in all_entries} == {0, 1}
    # The entry of the other kind has h = 0 and a penalty of 0: the mean is over 2 K entries a voxel
    total = sum(phr(h, float(loss.multipliers[r, k]), float(loss.rho[r, k])) for r, k, h in all_entries)
    expected = float(CrossEntropyLoss()(logits, labels)) + total / len(all_entries) / 2
    assert float(loss(logits, labels)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ignore", [False, True])
def test_the_weights_adapt(ignore: bool) -> None:
    loss = CRaCLoss(ignore_label=IGNORE if ignore else None)
    batches = [draw((5, 4), ignore=ignore) for _ in range(3)]
    for logits, labels in batches:
        loss.observe(logits, labels)
    loss.end_epoch(0)
    all_entries = [entry for batch in batches for entry in entries(*batch, ignore=ignore)]
    voxels = len(all_entries) / CLASSES
    for r, k in itertools.product(range(2), range(CLASSES)):
        # h is 0 at voxels of the other kind: there max(0, λ + ρ h) is λ
        own = [h for at_boundary, channel, h in all_entries if (at_boundary, channel) == (r, k)]
        mean = (sum(1e-6 + RHO * h for h in own) + 1e-6 * (voxels - len(own))) / voxels
        assert float(loss.multipliers[r, k]) == pytest.approx(max(mean, 1e-6), rel=1e-5)
    assert torch.equal(loss.rho, torch.full((2, CLASSES), RHO))


def of_constraint(value: float) -> tuple[Tensor, Tensor]:
    """A batch inside class 0 of which h is this value for all classes."""
    logits = torch.tensor([MARGIN + value, value, value]).reshape(1, 3, 1, 1).expand(1, 3, 4, 4)
    return logits, torch.zeros(1, 1, 4, 4, dtype=torch.long)


@pytest.mark.parametrize(("last", "grows"), [(0.95, True), (0.85, False)])
def test_rho_grows_every_tenth_epoch_where_the_constraint_fell_by_less_than_a_tenth(last: float, grows: bool) -> None:
    loss = CRaCLoss()
    for epoch in range(10):
        loss.observe(*of_constraint(1.0 if epoch < 9 else last))
        loss.end_epoch(epoch)
        if epoch < 9:
            assert torch.equal(loss.rho, torch.full((2, 3), RHO))
    torch.testing.assert_close(loss.rho[0], torch.full((3,), RHO * (1.2 if grows else 1)))
    # Nothing lies at a boundary: 0 is not above 0.9 · 0
    assert torch.equal(loss.rho[1], torch.full((3,), RHO))


def test_bounds_and_an_epoch_without_validation() -> None:
    loss = CRaCLoss(rho=9.5)
    loss.end_epoch(9)
    assert torch.equal(loss.rho, torch.full((2, 1), 9.5))
    for epoch in range(10):
        loss.observe(*of_constraint(1e6))
        loss.end_epoch(epoch)
    assert torch.equal(loss.rho[0], torch.full((3,), 10.0))
    assert torch.equal(loss.multipliers, torch.tensor([[1e6] * 3, [1e-6] * 3]))


def test_regions_have_boundaries_of_their_own() -> None:
    masks = torch.zeros(1, 2, 5, 5)
    masks[:, 1, :, :2] = 1
    logits = torch.zeros(1, 2, 5, 5, dtype=torch.float64)
    loss = CRaCLoss(regions=True)
    _, gradient = value_and_gradient(loss, logits, masks)
    binary = 0.5 / 50
    # Region 0 is nowhere: h = |0 - l| = 0. Region 1, inside: h = 5, and the penalty pulls with λ + 0.1 · 5
    torch.testing.assert_close(gradient[0, 0], torch.full((5, 5), binary, dtype=torch.float64))
    expected = -binary - (1e-6 + 0.5) / (2 * 2 * 25)
    torch.testing.assert_close(gradient[0, 1, 2, 0].item(), expected)
