"""Two gloo processes with half a batch each train as one process with the whole batch."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import distributed, multiprocessing, nn

from nnunet_nacl.losses import CRaCLoss, DicePlusPlus, SoftDice
from tests.commands import forkserver

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


def train_and_exit(rank: int, world_size: int, file: Path, results: Any, finished: Any) -> None:
    """Train with each term; rank 0 leaves the parameters in ``results``.

    It ends without tearing gloo down: that now and then aborts a process whose work is done ("terminate called
    without an active exception"). The barrier lets no process leave while the other still needs it.
    """
    distributed.init_process_group("gloo", init_method=file.as_uri(), rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    trained = {term: train(rank, world_size, term) for term in TERMS}
    if rank == 0:
        results.put(trained)
    finished.wait(timeout=120)
    os._exit(0)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    context = forkserver()
    results = context.SimpleQueue()
    arguments = (2, tmp_path / "store", results, context.Barrier(2))
    multiprocessing.start_processes(train_and_exit, arguments, nprocs=2, start_method="forkserver")
    for term, found in results.get().items():
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(train(0, 1, term)), msg=lambda m, t=term: f"{t}: {m}"
        )
