"""Records of arrays: dataclasses and dictionaries, changed column by column."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Columns = TypeVar("Columns")


def each_column(
    function: Callable[..., NDArray[Any]], record: Columns, *others: Columns, name: str = ""
) -> Columns:
    """The record with ``function(name, column, *columns of the others)`` in place of each array.

    A name leads to the array, such as ``calibration.near.top.count``. What is neither an array nor holds any stays.
    """
    changed: Any = record
    if isinstance(record, np.ndarray):
        changed = function(name.removeprefix("."), record, *others)
    elif isinstance(record, dict):
        changed = {}
        for key in record:
            of_key = [part[key] for part in (record, *others)]  # type: ignore[index]
            changed[key] = each_column(function, *of_key, name=f"{name}.{key}")
    elif is_dataclass(record):
        for field in fields(record):
            of_field = [getattr(part, field.name) for part in (record, *others)]
            column = each_column(function, *of_field, name=f"{name}.{field.name}")
            changed = replace(changed, **{field.name: column})
    return cast("Columns", changed)
