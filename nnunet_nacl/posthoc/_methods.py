"""The calibration methods by name: a new one is a module of its own and a line here."""

from nnunet_nacl.posthoc._calibrator import Calibrator
from nnunet_nacl.posthoc._isotonic import IsotonicRegression
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._temperature import ClasswiseTemperature, Temperature
from nnunet_nacl.posthoc._vector import VectorScaling

METHODS: dict[str, type[Calibrator]] = {
    kind.method: kind
    for kind in (
        Temperature,
        ClasswiseTemperature,
        VectorScaling,
        IsotonicRegression,
        LocalTemperature,
    )
}


def method_of(name: str) -> type[Calibrator]:
    """The method of a name.

    Raises:
        ValueError: there is none.
    """
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {name!r}.")
    return METHODS[name]
