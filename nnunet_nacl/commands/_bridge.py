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

from nnunet_nacl.commands._shared import SHARED, SINGLE_DASH


@dataclass(frozen=True)
class Command:
    """A command: its name as it is typed, and the function that it calls."""

    name: str
    function: Callable[..., "int | None"]

    @property
    def summary(self) -> str:
        """The line that the help of all commands shows."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")

    def run(self, words: Sequence[str]) -> int:
        """Call the function with what the words say; returns the exit status.

        Raises:
            SystemExit: 0 after the help, 2 after wrong usage.
        """
        parser, parameters = self.parser(), inspect.signature(self.function).parameters
        values = vars(parser.parse_args(words))
        given: list[Any] = []
        for name in [name for name, one in parameters.items() if one.kind is not one.KEYWORD_ONLY]:
            value = values.pop(name)
            given += value if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else [value]
        if "command_line" in parameters:
            values["command_line"] = ["nnunet_nacl", *self.name.split(), *words]
        try:
            return self.function(*given, **values) or 0
        except argparse.ArgumentError as error:
            parser.error(str(error))

    def parser(self) -> argparse.ArgumentParser:
        """The parser of the words after the command's name."""
        description, arguments, examples = re.fullmatch(
            r"(.*?)(?:\nArgs:\n(.*?))?(?:\nExamples:\n(.*))?", inspect.getdoc(self.function) or "", re.DOTALL
        ).groups()  # type: ignore[union-attr]
        described = SHARED | dict(re.findall(r"^    (\w+): (.+\n?(?: {8}.+\n?)*)", arguments or "", re.MULTILINE))
        parser = argparse.ArgumentParser(
            f"nnunet_nacl {self.name}",
            description=description.strip(),
            epilog=f"examples:\n{examples}".replace("    nnunet", "  nnunet") if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        hints = get_type_hints(self.function, include_extras=True)
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name != "command_line":
                _add(parser, parameter, hints[name], " ".join(described[name].split()))
        return parser


def _add(parser: argparse.ArgumentParser, parameter: inspect.Parameter, hint: Any, text: str) -> None:
    """Declare one parameter's argument or option."""
    name, default = parameter.name, None if parameter.default is parameter.empty else parameter.default
    is_option, several = parameter.kind is parameter.KEYWORD_ONLY, parameter.kind is parameter.VAR_POSITIONAL
    kinds = [one for one in get_args(hint) if one is not NoneType] if get_origin(hint) in {Union, UnionType} else [hint]
    kind = kinds[0]
    if get_origin(kind) is Sequence:
        kind, several = get_args(kind)[0], True
    if default is not None and default is not False:
        text += f" (default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"
    options: dict[str, Any] = {"help": text.replace("%", "%%"), "default": default}
    if several:
        options["nargs"] = "+"
    elif bool in kinds[1:]:
        options.update(nargs="?", const=True)
    elif not is_option and parameter.default is not parameter.empty:
        options["nargs"] = "?"
    if kind is bool:
        options["action"] = "store_true"
    elif get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    else:
        value = re.match(r"[A-Z][A-Z_]*(?:[.=]\w+)?(?=[\s,;:]|$)", text)
        options["metavar"] = value[0] if value and is_option else name.upper()
        options["type"] = get_args(kind)[1] if get_origin(kind) is Annotated else kind
    if is_option:
        options.update(dest=name, required=parameter.default is parameter.empty)
    parser.add_argument(f"{'-' if name in SINGLE_DASH else '--'}{name}" if is_option else name, **options)
