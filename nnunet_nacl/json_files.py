"""JSON read into the types that it must have, or refused in one line that names the file and the place in it.

pydantic compares the content with a dataclass, and strictly: a text is no number, 1.0 is no integer, true is no 1. It
is imported when it is used first, since worker processes can do without.
"""

import json
import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nnunet_nacl.files import check_input

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

Typed = TypeVar("Typed")

_SHOWN = 60
"""How many characters of a wrong value an error shows."""

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "none_required": "null",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
"""pydantic's name of an error -> what was expected; the error's context fills the braces."""

_ITEMS = {"int": "integers", "float": "numbers", "str": "texts"}


def read_json(file: Path, kind: type[Typed], what: str, *, finite: bool = False) -> Typed:
    """Read a JSON file.

    Args:
        file: encoded in UTF-8.
        kind: what it holds: a dataclass, or a list of them. Keys that a dataclass does not have are left out.
        what: what the file should be, for errors, such as ``plans.json of nnU-Net``.
        finite: refuse NaN and infinite numbers anywhere in it.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read, or is no file.
        ValueError: it holds something else.
    """
    return typed(load_json(file, finite=finite), kind, str(file), what)


def load_json(file: Path, *, finite: bool = False) -> Any:
    """What a JSON file holds, of whatever types.

    Args:
        file: encoded in UTF-8.
        finite: refuse NaN and infinite numbers.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read, or is no file.
        ValueError: it is not valid JSON, or has a key twice in one object.
    """
    check_input(file)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise OSError(f"{file} cannot be read: {error.strerror or error}.") from error
    return parse_json(content, str(file), finite=finite)


def parse_json(text: str | bytes, name: str, *, finite: bool = False) -> Any:
    """What a JSON text holds, of whatever types; arguments and errors as for :func:`load_json`."""
    hooks: dict[str, Any] = {"parse_float": _finite, "parse_constant": _finite} if finite else {}
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(decoded, object_pairs_hook=_without_repeats, **hooks)
    except RecursionError:
        raise ValueError(f"{name} is not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected finite numbers; got {text:.{_SHOWN}}")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; the second of two entries of one name would silently replace the first."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has the key {_shown(next(one for one in names if names.count(one) > 1))} twice")
    return content


def typed(content: Any, kind: type[Typed], name: str, what: str) -> Typed:
    """Content of JSON or YAML as an object of that type.

    Args:
        content: made of what JSON can hold.
        kind: as for :func:`read_json`.
        name: of the file; may be empty, if the caller names it.
        what: what the content should be.

    Raises:
        ValueError: it is something else; names the first place that is wrong, what was expected and what is there.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(content)
        found: Any = kind  # also of list[…], which is no class
        result: Typed = _adapter(found).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(_explained(error.errors(include_url=False), content, name, what)) from error
    except (RecursionError, TypeError, ValueError) as error:  # what YAML can hold and JSON cannot
        raise ValueError(": ".join(filter(None, (_head(name, what), str(error))))) from error
    return result


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _explained(errors: "Sequence[ErrorDetails]", content: Any, name: str, what: str) -> str:
    """The first wrong place in a line. Of alternatives, pydantic says for each what is wrong with it, and how deep."""
    first = _place(errors[0], content)
    path = max((place for error in errors if (place := _place(error, content))[: len(first)] == first), key=len)
    here = [error for error in errors if _place(error, content) == path]
    # Of the alternatives, the one whose type is right says more.
    here = [error for error in here if not error["type"].endswith("_type")] or here
    head = name if path else _head(name, what)
    return ": ".join(filter(None, (head, _written(path), _problem(here))))


def _head(name: str, what: str) -> str:
    return f"{name} is no {what}" if name else ""


def _problem(errors: "Sequence[ErrorDetails]") -> str:
    """What is wrong with one place; several errors are alternatives."""
    first = errors[0]
    if first["type"] == "missing":
        key = first["loc"][-1]
        return f"it has no entry {key}" if isinstance(key, int) else f"it has no {key!r}"
    if first["type"] in {"json_invalid", "value_error"}:
        return str(first["ctx"]["error"])
    expected = dict.fromkeys(map(_expected, errors))
    return f"expected {' or '.join(expected)}; got {_shown(first['input'])}"


def _place(error: "ErrorDetails", content: Any) -> tuple[str | int, ...]:
    """Where in the content an error is, without pydantic's names of alternatives in between."""
    path: list[str | int] = []
    for step in error["loc"]:
        is_key = isinstance(content, dict) and step in content
        if is_key or (isinstance(content, list) and isinstance(step, int) and step < len(content)):
            inside: Any = content
            content = inside[step]
            path.append(step)
    return tuple(path)


def _written(path: tuple[str | int, ...]) -> str:
    """``labels.nerve`` or ``runs[2].name``."""
    steps = [f"[{one}]" if isinstance(one, int) else f".{_key(one)}" for one in path]
    return "".join(steps).removeprefix(".")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w -]{1,60}", key) else _shown(key)


def _expected(error: "ErrorDetails") -> str:
    kind = error["type"]
    of_items = re.fullmatch(r"list\[(?:constrained-)?(\w+)\]", str(error["loc"][-1])) if error["loc"] else None
    if kind == "list_type" and of_items and of_items[1] in _ITEMS:
        return f"a list of {_ITEMS[of_items[1]]}"
    if kind in _EXPECTED:
        return _EXPECTED[kind].format_map(error.get("ctx", {}))
    return f"something else ({error['msg']})"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
