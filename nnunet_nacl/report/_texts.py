"""Numbers as tables and pages write them."""

import numpy as np


def number_text(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """A number with a true minus sign; a signed number has no sign if it is 0; – if it is not defined.

    >>> number_text(-0.0004, signed=True), number_text(-0.0006, signed=True), number_text(float("nan"))
    ('0.000', '−0.001', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return (text if float(text) else text.lstrip("+-")).replace("-", "−")


def p_text(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def percent_text(share: float) -> str:
    """A share in per cent, as exact as it is."""
    return f"{100 * share:g}"


def cases_text(number: int) -> str:
    """``1 case``, ``3 cases``."""
    return "1 case" if number == 1 else f"{number} cases"
