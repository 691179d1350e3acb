"""nnU-Net trainers with our losses, made on demand from their names.

``from nnunet_nacl.trainers import nnUNetTrainerNACL_weight0p2_100epochs`` works, as does every name that
:func:`parse_name` understands. nnU-Net's commands find them through ``ext/nnunet_nacl_trainers.py``.

Importing this package is cheap; torch and nnU-Net are loaded with the first trainer class.
"""

from typing import TYPE_CHECKING, Any

from nnunet_nacl.trainers._names import LOSSES, PREFIX, SCHEDULE_SUFFIXES, THREADS, Recipe, parse_name, trainer_names

if TYPE_CHECKING:
    from nnunet_nacl.trainers._calibrated import CalibratedLossMixin, build_loss

__all__ = [
    "LOSSES",
    "SCHEDULE_SUFFIXES",
    "THREADS",
    "CalibratedLossMixin",
    "Recipe",
    "build_loss",
    "parse_name",
    "trainer_names",
]


def __getattr__(name: str) -> Any:
    recipe = parse_name(name) if name.startswith(PREFIX) else None
    if recipe is None and name not in {"CalibratedLossMixin", "build_loss"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from nnunet_nacl.trainers import _calibrated

    found = getattr(_calibrated, name) if recipe is None else _calibrated.trainer_class(name, recipe)
    globals()[name] = found  # one class object per name, so that pickling and isinstance work
    return found
