"""Damaged bytes, and what every reader of them must keep to."""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
"""Of each kind of file."""

FUZZ = settings(max_examples=EXAMPLES, deadline=timedelta(seconds=20), suppress_health_check=list(HealthCheck))
HEADROOM = 256 << 20
"""How much memory reading a small file may take, whatever it says of itself, in bytes."""
_OUT_OF_MEMORY = ("memory", "allocat", "bad_alloc", "std::length_error")
T = TypeVar("T")


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes, start: int = 0, *, same_length: bool = False) -> bytes:
    """Content after one to three changes of bytes from ``start`` on."""
    data = bytearray(content)
    kinds = ["flip", "zeros", "swap"] + ([] if same_length else ["cut", "append", "insert", "remove"])
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        place = draw(st.integers(min(start, len(data)), max(len(data) - 1, start)))
        length = draw(st.integers(1, 64))
        if kind == "flip" and place < len(data):
            data[place] ^= draw(st.integers(1, 255))
        elif kind == "zeros":
            data[place : place + length] = bytes(len(data[place : place + length]))
        elif kind == "swap":
            data[place : place + 2 * length] = data[place + length : place + 2 * length] + data[place : place + length]
        elif kind == "cut":
            del data[place:]
        elif kind == "append":
            data += draw(st.one_of(st.binary(min_size=1, max_size=9), st.just(bytes(length)), st.just(content)))
        elif kind == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=9))
        elif kind == "remove":
            del data[place : place + length]
    return bytes(data)


def outcome(read: Callable[[], T], *names: Path) -> T | None:
    """What was read; None if it was refused, in an error that names one of the files and is not for lack of memory."""
    try:
        with limited_memory():
            return read()
    except (ValueError, OSError) as error:
        text = str(error)
        assert any(str(name) in text for name in names), text
        assert not any(word in text.lower() for word in _OUT_OF_MEMORY), text
        cause: BaseException | None = error
        while cause is not None:
            assert not isinstance(cause, MemoryError), text
            cause = cause.__cause__ or cause.__context__
        return None


@contextmanager
def limited_memory() -> Iterator[None]:
    """Within, this process gets no more memory than it has and the headroom."""
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def bits(value: Any) -> Any:
    """A value to the last bit, such that equal ones are equal, NaN too."""
    import dataclasses

    import numpy as np

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: bits(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: bits(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return value.hex() if isinstance(value, float) else value
