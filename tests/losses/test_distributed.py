"""Two gloo processes with half a batch each train as one process with the whole batch."""

import os
from pathlib import Path
from typing import Any

import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import distributed, multiprocessing, nn

from nnunet_nacl.losses import NACLLoss
from tests.commands import forkserver

STEPS = 3


def train(rank: int, world_size: int, *, with_dice: bool) -> list[float]:
    """The parameters of a small network after some steps on this rank's share of the batch."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, 1, 8, 8, generator=generator)
    labels = torch.randint(3, (4, 1, 8, 8), generator=generator)
    share = slice(rank * 4 // world_size, (rank + 1) * 4 // world_size)
    torch.manual_seed(0)
    network: nn.Module = nn.Conv2d(1, 3, 3, padding=1)
    if world_size > 1:
        network = nn.parallel.DistributedDataParallel(network)
    dice = MemoryEfficientSoftDiceLoss(
        apply_nonlin=softmax_helper_dim1, batch_dice=True, do_bg=False, smooth=1e-5, ddp=world_size > 1
    )
    loss = NACLLoss(dice=dice if with_dice else None)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(network(images[share]), labels[share]).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).tolist()


def train_and_exit(rank: int, world_size: int, file: Path, results: Any, finished: Any) -> None:
    """Train without and with Dice; rank 0 leaves the parameters in ``results``.

    It ends without tearing gloo down: that now and then aborts a process whose work is done ("terminate called
    without an active exception"). The barrier lets no process leave while the other still needs it.
    """
    distributed.init_process_group("gloo", init_method=file.as_uri(), rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    trained = [train(rank, world_size, with_dice=with_dice) for with_dice in (False, True)]
    if rank == 0:
        results.put(trained)
    finished.wait(timeout=120)
    os._exit(0)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    context = forkserver()
    results = context.SimpleQueue()
    arguments = (2, tmp_path / "store", results, context.Barrier(2))
    multiprocessing.start_processes(train_and_exit, arguments, nprocs=2, start_method="forkserver")
    for with_dice, found in zip((False, True), results.get(), strict=True):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(train(0, 1, with_dice=with_dice)))
