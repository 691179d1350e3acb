"""nnU-Net trainers with our losses, made on demand from their names.

``from nnunet_nacl.trainers import nnUNetTrainerNACL_weight0p2_100epochs`` works, as does every name that
:func:`parse_name` understands. nnU-Net's commands find them through ``ext/nnunet_nacl_trainers.py``.

Importing this package is cheap; torch and nnU-Net are loaded with the first name that needs them.
"""

from typing import TYPE_CHECKING, Any

from nnunet_nacl.trainers._names import LOSSES, SCHEDULE_SUFFIXES, Recipe, parse_name, trainer_names

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin, build_loss

__all__ = [
    "LOSSES",
    "SCHEDULE_SUFFIXES",
    "CalibratedLossMixin",
    "Recipe",
    "build_loss",
    "parse_name",
    "trainer_names",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    recipe = parse_name(name)
    from nnunet_nacl.trainers import _calibrated, _progress

    if recipe is not None:
        value: Any = _calibrated.trainer_class(name, recipe)
    else:
        value = (vars(_progress) | vars(_calibrated)).get(name) or _calibrated.with_budget(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # one class object per name, so that pickling and isinstance work
    return value
