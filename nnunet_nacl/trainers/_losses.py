"""The loss of a recipe, and its image-level term."""

import inspect
from typing import TypeVar, get_args

from torch import nn
from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.trainers._recipes import LOSSES, TERMS, Recipe
from nnunet_nacl.typing import ByName

_Module = TypeVar("_Module", bound=nn.Module)


def build_loss(
    recipe: Recipe,
    loss_class: type[losses.SegmentationLoss] | None = None,
    **shared: Unpack[losses.Shared],
) -> losses.SegmentationLoss:
    """Build the loss of a recipe; a ValueError for settings that the loss does not allow.

    Args:
        recipe: the loss and its settings.
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
    return _made(loss_class, {**recipe.settings, **shared})


def build_term(
    recipe: Recipe,
    term_class: type[losses.ImageTerm] | None = None,
    *,
    dice: nn.Module | None = None,
    **shared: Unpack[losses.SharedByTerms],
) -> nn.Module | None:
    """Build the image-level term of a recipe, or None; a ValueError for settings that it does not allow.

    Args:
        recipe: the term and its settings.
        term_class: the term, for a recipe that names none.
        dice: nnU-Net's Dice loss, the term ``"Dice"`` and a part of terms that take it.
        shared: settings of ``ImageTerm``.
    """
    if recipe.term is not None:
        if term_class is not None:
            raise ValueError(
                f"The recipe names {recipe.term}, and term_class is {term_class.__name__}: keep one."
            )
        if recipe.term == "Dice":
            return dice
        term_class = getattr(losses, TERMS[recipe.term].class_name)
    if term_class is None:
        return None
    settings: ByName = {**recipe.term_settings, **shared}
    if "dice" in inspect.signature(term_class).parameters:
        settings["dice"] = dice
    return _made(term_class, settings)


def _made(kind: type[_Module], settings: ByName) -> _Module:
    try:
        _check_taken(kind, settings)
    except TypeError as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ValueError(f"{kind.__name__} does not take {shown}: {error}") from error
    return kind(**settings)


def _check_taken(kind: type[nn.Module], settings: ByName) -> None:
    """Raise a TypeError unless the class's ``__init__`` takes these keywords; what it does with them is its own."""
    signature = inspect.signature(kind)
    taken = signature.bind(**settings).arguments
    for name, parameter in signature.parameters.items():
        keywords = get_args(parameter.annotation)
        if keywords not in ((losses.Shared,), (losses.SharedByTerms,)):  # **shared: Unpack[Shared]
            continue
        for setting in taken.get(name, {}):
            if setting not in keywords[0].__annotations__:
                raise TypeError(f"got an unexpected keyword argument {setting!r}")


def default_of(loss: str, setting: str) -> object:
    """Return the default of a setting of a loss or term, as its class has it."""
    class_name = {**LOSSES, **TERMS}[loss].class_name
    parameters = inspect.signature(getattr(losses, class_name)).parameters
    return parameters[setting].default
