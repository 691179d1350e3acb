"""Short names of methods: what all names begin or end with tells none from another."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SEPARATORS = "_ -"
_SHORTEST = 2
"""A single letter, such as a, reads as a word of the sentence that it stands in."""


@dataclass(frozen=True)
class ShortNames:
    """Names without the words that all of them begin or end with.

    Attributes:
        prefix: what is left out at the beginning; may be empty.
        suffix: what is left out at the end; may be empty.
        by_full: full name -> short name.
    """

    prefix: str
    suffix: str
    by_full: dict[str, str]

    @classmethod
    def of(cls, names: Iterable[str]) -> "ShortNames":
        """Cut whole words; none at all if a name would be left with a single character, or without a letter.

        Args:
            names: of all methods.

        >>> ShortNames.of(["DiceCE_paper_12epochs", "CE_paper_12epochs"]).by_full
        {'DiceCE_paper_12epochs': 'DiceCE', 'CE_paper_12epochs': 'CE'}
        """
        full = list(dict.fromkeys(names))
        words = [re.findall(f"[{_SEPARATORS}]|[^{_SEPARATORS}]+", name) for name in full]
        prefix = _shared(words)
        suffix = _shared([one[len(prefix) :][::-1] for one in words])[::-1]
        start, end = len("".join(prefix)), len("".join(suffix))
        short = {name: name[start : len(name) - end] for name in full}
        if not all(len(one) >= _SHORTEST and any(map(str.isalpha, one)) for one in short.values()):
            return cls("", "", {name: name for name in full})
        return cls("".join(prefix), "".join(suffix), short)


def _shared(words: Sequence[Sequence[str]]) -> list[str]:
    """The first words of all, up to a separator; each is left with one word at least."""
    shared: list[str] = []
    if len(words) > 1:
        for together in zip(*(one[:-1] for one in words), strict=False):
            if len(set(together)) > 1:
                break
            shared.append(together[0])
    while shared and shared[-1] not in _SEPARATORS:
        shared.pop()
    return shared
