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
    return replace_columns(lambda _, *columns: function(*columns), record, *others)


def named_columns(record: Any) -> dict[str, NDArray[Any]]:
    """Return the record's arrays by the names that lead to them, such as ``calibration.near.top.count``."""
    found: dict[str, NDArray[Any]] = {}
    replace_columns(found.setdefault, record)
    return found


def replace_columns(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns, name: str = ""
) -> Columns:
    """Return the record with ``function(name, *columns)`` in place of each array, see ``named_columns``."""
    changed: Any = record
    if isinstance(record, np.ndarray):
        changed = function(name.removeprefix("."), record, *others)
    elif isinstance(record, dict):
        changed = {}
        for key in record:
            of_key = [part[key] for part in (record, *others)]  # type: ignore[index]
            changed[key] = replace_columns(function, *of_key, name=f"{name}.{key}")
    elif is_dataclass(record):
        for field in fields(record):
            of_field = [getattr(part, field.name) for part in (record, *others)]
            column = replace_columns(function, *of_field, name=f"{name}.{field.name}")
            changed = replace(changed, **{field.name: column})
    return cast("Columns", changed)
