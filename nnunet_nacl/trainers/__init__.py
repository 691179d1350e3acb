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
    Recipe,
    parse_name,
    recipe_of,
    schedule_suffix,
    trainer_names,
)

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin, build_loss, default_of

__all__ = [
    "LOSSES",
    "MAX_LOGIT_EDGES",
    "MAX_LOGIT_HISTOGRAM",
    "MAX_LOGIT_QUANTILES",
    "SCHEDULE",
    "CalibratedLossMixin",
    "Recipe",
    "build_loss",
    "default_of",
    "parse_name",
    "recipe_of",
    "schedule_suffix",
    "trainer_names",
]


def __getattr__(name: str) -> Any:
    value: Any = None
    if not name.startswith("_"):
        module = import_module(f"{__name__}._calibrated")
        value = getattr(module, name) if name in __all__ else module.trainer_class(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # one class object per name, so that pickling and isinstance work
    return value
