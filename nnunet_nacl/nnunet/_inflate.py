"""Which library inflates compressed streams, and how much of them there can be."""

import zlib
from contextlib import suppress
from typing import Any

library: Any = zlib
"""Has the functions of zlib. That of the extra "fast" inflates the same streams faster."""
with suppress(ImportError):
    from isal import isal_zlib

    library = isal_zlib

MOST_OF_DEFLATE = 1032
"""Deflate makes at most so many bytes of one."""
