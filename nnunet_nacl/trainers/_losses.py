"""The loss of a recipe."""

import inspect
from typing import get_args

from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.trainers._recipes import LOSSES, Recipe
from nnunet_nacl.typing import ByName


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
    settings: ByName = {**recipe.settings, **shared}
    try:
        _check_taken(loss_class, settings)
    except TypeError as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ValueError(f"{loss_class.__name__} does not take {shown}: {error}") from error
    return loss_class(**settings)


def _check_taken(loss_class: type[losses.SegmentationLoss], settings: ByName) -> None:
    """Raise a TypeError unless the class's ``__init__`` takes these keywords; what it does with them is its own."""
    signature = inspect.signature(loss_class)
    taken = signature.bind(**settings).arguments
    for name, parameter in signature.parameters.items():
        if get_args(parameter.annotation) != (losses.Shared,):  # of **shared: Unpack[Shared]
            continue
        for setting in taken.get(name, {}):
            if setting not in losses.Shared.__annotations__:
                raise TypeError(f"got an unexpected keyword argument {setting!r}")


def default_of(loss: str, setting: str) -> object:
    """The default of one of our losses' settings, as its class has it."""
    parameters = inspect.signature(getattr(losses, LOSSES[loss].class_name)).parameters
    return parameters[setting].default
