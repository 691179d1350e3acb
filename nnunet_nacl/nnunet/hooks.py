"""Hooks into nnU-Net's own classes: parts that trainers and ``calibrate`` use although nnU-Net may change them.

If a new version of nnU-Net breaks a training, look here first, and at the methods of ``nnUNetTrainer`` that
``trainers.CalibratedLossMixin`` overrides; everything was tested with nnunetv2 2.8.1.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import torch
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def inner_loss(loss: nn.Module) -> Any:
    """Return the loss of one scale: that in nnU-Net's ``DeepSupervisionWrapper``, or the loss itself without one."""
    return loss.loss if isinstance(loss, DeepSupervisionWrapper) else loss


def with_inner_loss(loss: nn.Module, replacement: nn.Module) -> nn.Module:
    """Return the same deep supervision over another loss; without deep supervision that loss.

    nnU-Net gives the last scale no weight. If it is the only one, nnU-Net divides 0 by 0, and it gets the weight 1.
    """
    if not isinstance(loss, DeepSupervisionWrapper):
        return replacement
    loss.loss = replacement
    if len(loss.weight_factors) == 1:
        loss.weight_factors = (1.0,)
    wrapper: nn.Module = loss
    return wrapper


def watch_loss(loss: nn.Module, watch: Callable[[Any, Any], None]) -> RemovableHandle:
    """Call ``watch(output, target)`` with all that a trainer's loss gets, at full resolution, until this is removed.

    Nowhere else does nnU-Net's ``validation_step`` hand out both. With deep supervision they are lists.
    """

    def full_resolution(_: nn.Module, given: tuple[Any, Any]) -> None:
        watch(*(one[0] if isinstance(one, (list, tuple)) else one for one in given))

    return loss.register_forward_pre_hook(full_resolution)


def values_by_epoch(trainer: Any) -> dict[str, list[Any]]:
    """Return the values logged each epoch, a list per name, which nnU-Net's checkpoints keep."""
    logged: dict[str, list[Any]] = trainer.logger.local_logger.my_fantastic_logging
    return logged


def log(trainer: Any, values: Mapping[str, object]) -> None:
    """Log values of the current epoch. Weights & Biases, to which nnU-Net's logger also sends, takes numbers alone."""
    for name, value in values.items():
        logger = trainer.logger if isinstance(value, float) else trainer.logger.local_logger
        logger.log(name, value, trainer.current_epoch)


@contextmanager
def returns_features(predictor: Any, convolution: Any, *, mirrored_at_once: bool) -> Iterator[None]:
    """Let nnU-Net's predictor average what enters the last convolution, in place of logits.

    Its label manager then says how many channels there are. Windows may be predicted with all their mirrorings in one
    batch, which is faster for small ones.
    """
    label_manager = predictor.label_manager
    half = torch.half
    predictor.label_manager = SimpleNamespace(num_segmentation_heads=convolution.in_channels)
    convolution.forward = lambda features: features
    if mirrored_at_once:
        predictor._internal_maybe_mirror_and_predict = partial(predict_mirrored_at_once, predictor)
    # On a GPU, nnU-Net's network computes in half precision
    hook = predictor.network.register_forward_hook(lambda _, __, output: output.float())
    # nnU-Net adds up windows in torch.half, in which large features overflow, and has no setting for that
    torch.half = torch.float32
    try:
        yield
    finally:
        torch.half = half
        hook.remove()
        vars(predictor).pop("_internal_maybe_mirror_and_predict", None)
        del convolution.forward
        predictor.label_manager = label_manager


def predict_mirrored_at_once(predictor: Any, window: Tensor) -> Tensor:
    """Return the mean over mirrorings of the network's output, as nnU-Net's, but with all mirrorings in one batch."""
    axes = (predictor.use_mirroring and predictor.allowed_mirroring_axes) or ()
    spatial = [axis + 2 for axis in axes]
    mirrorings = [
        some for number in range(len(spatial) + 1) for some in combinations(spatial, number)
    ]
    outputs = predictor.network(torch.cat([window.flip(some) for some in mirrorings]))
    unmirrored = [
        output.flip(some) for output, some in zip(outputs.split(1), mirrorings, strict=True)
    ]
    return torch.stack(unmirrored).mean(0)
