"""The trainer class of a name."""

from dataclasses import replace
from typing import Any

from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

from nnunet_nacl.trainers._calibrated import CalibratedLossMixin
from nnunet_nacl.trainers._losses import build_loss, build_term
from nnunet_nacl.trainers._recipes import recipe_of, without_budget


def trainer_class(name: str) -> type | None:
    """Make the class for one of our names, or for another's with a budget; None if there is no such trainer."""
    recipe = recipe_of(name)
    if recipe is None:
        return _with_budget(name)
    # A value that the loss does not allow should fail here, before any data is loaded
    build_loss(recipe)
    if recipe.term_settings:
        build_term(recipe)
    attributes = {"recipe": recipe, "__module__": "nnunet_nacl.trainers"}
    return type(name, (CalibratedLossMixin,), attributes)


def _with_budget(name: str) -> type | None:
    """Make ``NAME_<N>epochs`` and the like of the trainer that nnU-Net finds as ``NAME``; None if it finds none."""
    base_name, budget = without_budget(name)
    if not budget:
        return None
    try:
        base = recursive_find_trainer_class_by_name(base_name)
    except (AssertionError, RuntimeError):
        return None

    def initialize(self: Any) -> None:
        vars(self).update(budget)
        base.initialize(self)
        for setting, value in budget.items():
            if vars(self)[setting] != value:
                raise ValueError(
                    f"{name}: {base_name} sets {setting} itself, to {vars(self)[setting]}; train it by its own name."
                )

    # A trainer with a recipe takes its budget from that.
    ours = issubclass(base, CalibratedLossMixin)
    attributes = {"recipe": replace(base.recipe, **budget)} if ours else {"initialize": initialize}
    return type(name, (base,), {**attributes, "__module__": "nnunet_nacl.trainers"})
