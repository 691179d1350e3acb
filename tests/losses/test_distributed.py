"""Two gloo processes with half a batch each train as one process with the whole batch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import nn

from nnunet_nacl.losses import CRaCLoss, DicePlusPlus, SoftDice
from tests.commands import in_two_processes

STEPS = 3


TERMS: dict[str, Callable[[bool], nn.Module | None]] = {
    "none": lambda _: None,
    "Dice": lambda ddp: MemoryEfficientSoftDiceLoss(
        apply_nonlin=softmax_helper_dim1, batch_dice=True, do_bg=False, smooth=1e-5, ddp=ddp
    ),
    "DicePP": lambda ddp: DicePlusPlus(batch=True, ddp=ddp),
    "SoftDice": lambda ddp: SoftDice(batch=True, ddp=ddp),
}


def train(rank: int, world_size: int, term: str) -> list[float]:
    """The parameters of a small network after some steps on this rank's share of the batch."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, 1, 8, 8, generator=generator)
    labels = torch.randint(3, (4, 1, 8, 8), generator=generator)
    share = slice(rank * 4 // world_size, (rank + 1) * 4 // world_size)
    torch.manual_seed(0)
    network: nn.Module = nn.Conv2d(1, 3, 3, padding=1)
    if world_size > 1:
        network = nn.parallel.DistributedDataParallel(network)
    loss = CRaCLoss(term=TERMS[term](world_size > 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = network(images[share])
        loss(outputs, labels[share]).backward()
        optimizer.step()
        loss.observe(outputs.detach(), labels[share])
        loss.end_epoch(step)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).tolist()


def train_with_each(rank: int) -> dict[str, list[float]]:
    return {term: train(rank, 2, term) for term in TERMS}


def test_two_processes_equal_one(tmp_path: Path) -> None:
    for term, found in in_two_processes(train_with_each, tmp_path).items():
        assert found == pytest.approx(train(0, 1, term), abs=1e-5, rel=1.3e-6), term
