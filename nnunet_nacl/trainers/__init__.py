"""nnU-Net trainers with our losses, made on demand from their names.

``from nnunet_nacl.trainers import nnUNetTrainerNACL_weight0p2_100epochs`` works, as does every name that
``parse_name`` understands. nnU-Net's commands find them through ``ext/nnunet_nacl_trainers.py``.

Importing this package is cheap; torch and nnU-Net are loaded with the first name that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nnunet_nacl.trainers._recipes import (
    LOSSES,
    SCHEDULE,
    TERMS,
    Recipe,
    build_loss,
    default_of,
    parse_name,
    recipe_of,
    without_budget,
)

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin
    from nnunet_nacl.trainers._live import (
        MAX_LOGIT_EDGES,
        MAX_LOGIT_HISTOGRAM,
        MAX_LOGIT_QUANTILES,
    )

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
    "default_of",
    "parse_name",
    "recipe_of",
    "without_budget",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.startswith("MAX_LOGIT_"):
        return getattr(import_module(f"{__name__}._live"), name)
    calibrated = import_module(f"{__name__}._calibrated")
    if name == "CalibratedLossMixin":
        return calibrated.CalibratedLossMixin
    found = calibrated.trainer_class(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # one class object per name, so that pickling and isinstance work
    return found
