"""Records: dataclasses of arrays, perhaps of further dataclasses and dictionaries, changed or listed array by array."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Columns = TypeVar("Columns")


def each_column(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns
) -> Columns:
    """Return the record with ``function(column, *columns of the others)`` in place of each array."""
    changed: Any = record
    if isinstance(record, np.ndarray):
        changed = function(record, *others)
    elif isinstance(record, dict):
        changed = {}
        for key in record:
            of_key = [part[key] for part in (record, *others)]  # type: ignore[index]
            changed[key] = each_column(function, *of_key)
    elif is_dataclass(record):
        for field in fields(record):
            of_field = [getattr(part, field.name) for part in (record, *others)]
            changed = replace(changed, **{field.name: each_column(function, *of_field)})
    return cast("Columns", changed)


def named_columns(record: Any) -> dict[str, NDArray[Any]]:
    """Return the record's arrays by the names that lead to them, such as ``calibration.near.top.count``."""
    found = {}
    for name, part in (record if isinstance(record, dict) else vars(record)).items():
        if isinstance(part, np.ndarray):
            found[name] = part
        elif isinstance(part, dict) or is_dataclass(part):
            found |= {f"{name}.{inner}": column for inner, column in named_columns(part).items()}
    return found
