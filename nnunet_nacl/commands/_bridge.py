"""From a typed function with a Google docstring to its command line.

Positional parameters are the command's arguments, keyword-only ones its options; an entry of ``Args:`` is the help,
which begins with the name of the value in capitals. What several commands share is described once, in ``SHARED``.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from nnunet_nacl.commands._shared import SHARED

_SINGLE_DASH = {"d", "c", "p", "f", "i", "o", "tr", "np", "gt", "chk", "device"}
"""nnU-Net writes these with one dash."""
_ALIASES = {"gt": ["-l"]}
_METAVAR = re.compile(r"[A-Z][A-Z_]*(?:[.=]\w+)?(?=[\s,;:]|$)")


@dataclass(frozen=True)
class Command:
    """A command: its name as it is typed, and the function that it calls."""

    name: str
    function: Callable[..., "int | None"]

    @property
    def summary(self) -> str:
        """The line that the help of all commands shows."""
        return self._sections()[0].partition("\n")[0].rstrip(".")

    def run(self, words: Sequence[str]) -> int:
        """Call the function with what the words say; returns the exit status.

        Raises:
            SystemExit: 0 after the help, 2 after wrong usage.
        """
        parser = self.parser()
        values = vars(parser.parse_args(words))
        given: list[Any] = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                given += values.pop(name)
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                given.append(values.pop(name))
            elif name == "command_line":
                values[name] = ["nnunet_nacl", *self.name.split(), *words]
        try:
            return self.function(*given, **values) or 0
        except argparse.ArgumentError as error:
            parser.error(str(error))

    def parser(self) -> argparse.ArgumentParser:
        """The parser of the words after the command's name."""
        description, described, examples = self._sections()
        parser = argparse.ArgumentParser(
            f"nnunet_nacl {self.name}",
            description=description,
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        hints = get_type_hints(self.function, include_extras=True)
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name != "command_line":
                _add(parser, parameter, hints[name], described.get(name) or SHARED[name])
        return parser

    def _sections(self) -> tuple[str, dict[str, str], str]:
        """The docstring's description, its arguments by name, and its examples."""
        description, *rest = re.split(r"^(Args|Examples):\n", inspect.getdoc(self.function) or "", flags=re.MULTILINE)
        sections = dict(zip(rest[::2], rest[1::2], strict=True))
        entries = re.findall(r"^    (\w+): (.+\n?(?: {8}.+\n?)*)", sections.get("Args", ""), re.MULTILINE)
        examples = sections.get("Examples", "").strip("\n").replace("    nnunet", "  nnunet")
        return description.strip(), {name: " ".join(text.split()) for name, text in entries}, examples


def _add(parser: argparse.ArgumentParser, parameter: inspect.Parameter, hint: Any, text: str) -> None:
    """Declare one parameter's argument or option."""
    default = None if parameter.default is parameter.empty else parameter.default
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    told = f"{text} (default: {shown})" if shown is not None and shown is not False else text
    options: dict[str, Any] = {"help": told.replace("%", "%%"), "default": default}
    kinds = [one for one in get_args(hint) if one is not NoneType] if get_origin(hint) in {Union, UnionType} else [hint]
    kind, several = kinds[0], parameter.kind is parameter.VAR_POSITIONAL
    if get_origin(kind) is Sequence:
        kind, several = get_args(kind)[0], True
    is_option = parameter.kind is parameter.KEYWORD_ONLY
    if several:
        options["nargs"] = "+"
    elif bool in kinds and len(kinds) > 1:
        options.update(nargs="?", const=True)
    elif not is_option and parameter.default is not parameter.empty:
        options["nargs"] = "?"
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[1]
    if kind is bool and len(kinds) == 1:
        options["action"] = "store_true"
    elif get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    else:
        value = _METAVAR.match(text)
        options.update(type=kind, metavar=value[0] if value and is_option else parameter.name.upper())
    if not is_option:
        parser.add_argument(parameter.name, **options)
        return
    dash = "-" if parameter.name in _SINGLE_DASH else "--"
    flags = [f"{dash}{parameter.name}", *_ALIASES.get(parameter.name, [])]
    parser.add_argument(*flags, dest=parameter.name, required=parameter.default is parameter.empty, **options)
