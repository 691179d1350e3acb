"""The probabilities of a file block by block, with the checks that the evaluation makes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SumCheck, check_block
from nnunet_nacl.nnunet import BLOCK, LabelMeaning, NpzChannels


def open_channels(file: Path, meaning: LabelMeaning) -> NpzChannels:
    """Open a case's probabilities.

    Raises:
        ValueError: the file is damaged, or has not one channel for each class or region.
    """
    channels = NpzChannels(file)
    if channels.shape[0] != meaning.num_channels:
        kind = "labels" if meaning.regions is None else "regions"
        raise ValueError(
            f"{file}: shape {channels.shape} has {channels.shape[0]} channels (the first axis), but the data set has "
            f"{meaning.num_channels} {kind}."
        )
    return channels


def checked_blocks(channels: NpzChannels, *, regions: bool) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
    """Yield channel, voxels and values of each block.

    Raises:
        ValueError: the file is damaged, or values are no probabilities.
    """
    voxels = int(np.prod(channels.shape[1:]))
    sums = None if regions else SumCheck(channels)
    blocks = channels.blocks()
    try:
        for channel in range(channels.shape[0]):
            for number, start in enumerate(range(0, voxels, BLOCK)):
                block = next(blocks)
                check_block(block, channel, channels.name)
                if sums is not None:
                    sums.add(number, block)
                yield channel, slice(start, start + block.size), block
        next(blocks, None)  # reading to the end checks the file
        if sums is not None:
            sums.check()
    except ValueError:
        for _ in channels.blocks():
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise
