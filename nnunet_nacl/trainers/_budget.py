"""Trainers that are not ours with another length: ``NAME_<N>epochs``, ``NAME_<N>iterations`` or both."""

import re
from typing import Any

_NAME = re.compile(r"([A-Za-z]\w*?)(?:_([1-9]\d*)epochs)?(?:_([1-9]\d*)iterations)?")


def with_budget(name: str) -> type | None:
    """The trainer that nnU-Net finds as ``NAME``, with so many epochs, and training steps an epoch; None without one.

    nnU-Net's own variants, such as ``nnUNetTrainer_5epochs``, it finds before it asks us.
    """
    match = _NAME.fullmatch(name)
    if match is None or not any(match.groups()[1:]):
        return None
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    try:
        base = recursive_find_trainer_class_by_name(match[1])
    except (AssertionError, RuntimeError):
        return None
    budget = {"num_epochs": match[2], "num_iterations_per_epoch": match[3]}

    def initialize(self: Any) -> None:
        vars(self).update({what: int(number) for what, number in budget.items() if number is not None})
        base.initialize(self)

    return type(name, (base,), {"initialize": initialize, "__module__": "nnunet_nacl.trainers"})
