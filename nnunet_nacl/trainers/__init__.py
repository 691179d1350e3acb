"""nnU-Net trainers with our losses, made on demand from their names.

``from nnunet_nacl.trainers import nnUNetTrainerNACL_weight0p2_100epochs`` works, as does every name that
:func:`parse_name` understands. nnU-Net's commands find them through ``ext/nnunet_nacl_trainers.py``.

Importing this package is cheap; torch and nnU-Net are loaded with the first name that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nnunet_nacl.trainers._budget import with_budget as with_budget
from nnunet_nacl.trainers._names import LOSSES as LOSSES
from nnunet_nacl.trainers._names import PREFIX as PREFIX
from nnunet_nacl.trainers._names import SCHEDULE_SUFFIXES as SCHEDULE_SUFFIXES
from nnunet_nacl.trainers._names import THREADS as THREADS
from nnunet_nacl.trainers._names import Recipe, parse_name, trainer_names

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin
    from nnunet_nacl.trainers._calibrated import build_loss as build_loss

__all__ = ["CalibratedLossMixin", "Recipe", "parse_name", "trainer_names"]

_LOADED_LATE = dict.fromkeys(("CalibratedLossMixin", "build_loss"), "_calibrated") | dict.fromkeys(
    ("MAX_LOGIT_EDGES", "MAX_LOGIT_HISTOGRAM", "MAX_LOGIT_QUANTILES", "PROGRESS_SWITCH"), "_progress"
)


def __getattr__(name: str) -> Any:
    recipe = parse_name(name)
    if recipe is not None:
        from nnunet_nacl.trainers._calibrated import trainer_class

        value: Any = trainer_class(name, recipe)
    elif name in _LOADED_LATE:
        value = getattr(import_module(f"{__name__}.{_LOADED_LATE[name]}"), name)
    elif (value := with_budget(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # one class object per name, so that pickling and isinstance work
    return value
