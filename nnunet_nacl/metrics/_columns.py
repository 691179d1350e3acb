"""Records of arrays: dataclasses and dictionaries, changed column by column."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Columns = TypeVar("Columns")


def each_column(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns
) -> Columns:
    """The record with ``function(column, *columns of the others)`` in place of each array."""
    return _changed(lambda _, *columns: function(*columns), record, *others)


def named_columns(record: Any) -> dict[str, NDArray[Any]]:
    """The record's arrays by the names that lead to them, such as ``calibration.near.top.count``."""
    found = {}

    def find(name: str, column: NDArray[Any]) -> NDArray[Any]:
        found[name] = column
        return column

    _changed(find, record)
    return found


def with_columns(record: Columns, columns: Mapping[str, NDArray[Any]]) -> Columns:
    """The record with these arrays, named as by ``named_columns``, in place of its own."""
    return _changed(lambda name, _: columns[name], record)


def _changed(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns, name: str = ""
) -> Columns:
    """The record with ``function(name, *columns)`` in place of each array; what is, and holds, no array stays."""
    changed: Any = record
    if isinstance(record, np.ndarray):
        changed = function(name.removeprefix("."), record, *others)
    elif isinstance(record, dict):
        changed = {}
        for key in record:
            of_key = [part[key] for part in (record, *others)]  # type: ignore[index]
            changed[key] = _changed(function, *of_key, name=f"{name}.{key}")
    elif is_dataclass(record):
        for field in fields(record):
            of_field = [getattr(part, field.name) for part in (record, *others)]
            column = _changed(function, *of_field, name=f"{name}.{field.name}")
            changed = replace(changed, **{field.name: column})
    return cast("Columns", changed)
