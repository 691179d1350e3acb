"""Records: dataclasses of arrays, perhaps of further dataclasses and dictionaries, changed or listed array by array."""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Columns = TypeVar("Columns")


def each_column(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns
) -> Columns:
    """Return the record with ``function(column, *columns of the others)`` in place of each array."""
    parts: list[Any] = [record, *others]
    changed: Any = record
    if isinstance(record, np.ndarray):
        changed = function(*parts)
    elif isinstance(record, dict):
        changed = {key: each_column(function, *(part[key] for part in parts)) for key in record}
    elif is_dataclass(record):
        columns = {
            name: each_column(function, *(getattr(part, name) for part in parts))
            for name in vars(record)
        }
        changed = replace(changed, **columns)
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
