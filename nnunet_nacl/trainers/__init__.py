"""nnU-Net trainers with our losses, made on demand from their names.

``from nnunet_nacl.trainers import nnUNetTrainerNACL_weight0p2_100epochs`` works, as does every name that
``parse_name`` understands. nnU-Net's commands find them through ``ext/nnunet_nacl_trainers.py``.

Importing this package is cheap; torch and nnU-Net are loaded with the first name that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nnunet_nacl.trainers._logged import (
    MAX_LOGIT_EDGES,
    MAX_LOGIT_HISTOGRAM,
    MAX_LOGIT_QUANTILES,
)
from nnunet_nacl.trainers._recipes import (
    LOSSES,
    SCHEDULE,
    TERMS,
    Recipe,
    parse_name,
    recipe_of,
    schedule_suffix,
    trainer_names,
    without_budget,
)

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin
    from nnunet_nacl.trainers._losses import build_loss, build_term, default_of

__all__ = [
    "LOSSES",
    "MAX_LOGIT_EDGES",
    "MAX_LOGIT_HISTOGRAM",
    "MAX_LOGIT_QUANTILES",
    "SCHEDULE",
    "TERMS",
    "CalibratedLossMixin",
    "Recipe",
    "build_loss",
    "build_term",
    "default_of",
    "parse_name",
    "recipe_of",
    "schedule_suffix",
    "trainer_names",
    "without_budget",
]

_LOADED_LATE = {
    "CalibratedLossMixin": "_calibrated",
    "build_loss": "_losses",
    "build_term": "_losses",
    "default_of": "_losses",
}


def __getattr__(name: str) -> Any:
    value: Any = None
    if name in _LOADED_LATE:
        value = getattr(import_module(f"{__name__}.{_LOADED_LATE[name]}"), name)
    elif not name.startswith("_"):
        value = import_module(f"{__name__}._classes").trainer_class(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # one class object per name, so that pickling and isinstance work
    return value
