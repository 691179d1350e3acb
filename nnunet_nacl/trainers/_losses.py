"""The loss of a recipe."""

import inspect

from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.trainers._recipes import LOSSES, Recipe


def build_loss(
    recipe: Recipe,
    loss_class: type[losses.SegmentationLoss] | None = None,
    **shared: Unpack[losses.Shared],
) -> losses.SegmentationLoss:
    """The loss of a recipe; raises a ValueError for settings that the loss does not allow.

    Args:
        recipe: what names the loss and its settings.
        loss_class: the loss, for a recipe that names none.
        shared: settings of ``SegmentationLoss``.
    """
    if recipe.loss is not None:
        if loss_class is not None:
            raise ValueError(
                f"The recipe names {recipe.loss}, and loss_class is {loss_class.__name__}: keep one."
            )
        loss_class = getattr(losses, LOSSES[recipe.loss].class_name)
    if loss_class is None:
        raise ValueError(
            'There is no loss: set the trainer\'s loss_class, or name one, as in Recipe("NACL").'
        )
    try:
        return loss_class(**recipe.settings, **shared)
    except TypeError as error:
        given = {**recipe.settings, **shared}
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"{loss_class.__name__} does not take {settings}: {error}") from error


def default_of(loss: str, setting: str) -> object:
    """The default of one of our losses' settings, as its class has it."""
    parameters = inspect.signature(getattr(losses, LOSSES[loss].class_name)).parameters
    return parameters[setting].default
