"""Parts of sentences."""

from collections.abc import Sequence

_NAMED = 5


def listed(names: Sequence[str]) -> str:
    """``A``, ``A and B`` or ``A, B and C``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def first_few(names: Sequence[str]) -> str:
    """``A, B, C``, or the first five ``and 7 more``."""
    named = ", ".join(names[:_NAMED])
    return f"{named} and {len(names) - _NAMED} more" if len(names) > _NAMED else named or "none"


def these_cases(count: int) -> str:
    """``one case`` or ``these 60 cases``."""
    return "one case" if count == 1 else f"these {count} cases"


def capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
