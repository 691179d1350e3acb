"""Two gloo processes with half a batch each train as one process with the whole batch."""

import os
import socket
from typing import Any

import pytest
import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import Tensor, distributed, multiprocessing, nn

from nnunet_nacl.losses import NACLLoss

STEPS = 3


def train(rank: int, world_size: int, port: int, with_dice: bool, results: Any) -> None:
    """Leaves the trained parameters of rank 0 in ``results``."""
    if world_size > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
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
    if rank == 0:
        results.put(torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).tolist())


def train_and_exit(rank: int, world_size: int, port: int, with_dice: bool, results: Any, finished: Any) -> None:
    """As ``train``, for a process of its own.

    It ends without tearing gloo down: that now and then aborts a process whose work is done ("terminate called
    without an active exception"). The barrier lets no process leave while the other still needs it.
    """
    train(rank, world_size, port, with_dice, results)
    finished.wait(timeout=120)
    os._exit(0)


@pytest.mark.parametrize("with_dice", [False, True])
def test_two_processes_equal_one(with_dice: bool) -> None:
    found: dict[int, Tensor] = {}
    for world_size in (1, 2):
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if world_size == 1:
            train(0, 1, port, with_dice, results)
        else:
            arguments = (world_size, port, with_dice, results, context.Barrier(world_size))
            multiprocessing.spawn(train_and_exit, arguments, nprocs=world_size)
        found[world_size] = torch.tensor(results.get())
    torch.testing.assert_close(found[2], found[1])
