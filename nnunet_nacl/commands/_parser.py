"""The command line's parser: argparse with examples in its help, and 'did you mean' in its errors."""

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_CHOICE = re.compile(r"invalid choice: '(?P<given>.*?)' \(choose from (?P<valid>.*)\)")

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What a parser's add_subparsers gives."""


class Parser(argparse.ArgumentParser):
    """A parser of ours. The options that it reads get ``parser``, the one of the command that was given.

    Attributes:
        more: what the help ends with, as it stands.
        brief: the help shows usage and description alone before that.
        actions: parsers that take over where the first argument is their name; argparse has no optional subparsers.
    """

    def __init__(self, *args: Any, brief: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.more = ""
        self.brief = brief
        self.actions: dict[str, Parser] = {}
        self._nested: list[Subparsers] = []
        self.set_defaults(parser=self)

    def add_section(self, title: str, lines: Sequence[str]) -> None:
        """Let the help end with some lines."""
        self.more += f"\n{title}:\n" + "".join(f"  {line}\n" for line in lines)

    def add_subparsers(self, **options: Any) -> Subparsers:  # type: ignore[override]
        """As argparse has it."""
        self._nested.append(super().add_subparsers(**options))
        return self._nested[-1]

    def walk(self) -> "Iterator[Parser]":
        """This parser, and those of all its commands."""
        yield self
        nested = [parser for subparsers in self._nested for parser in subparsers.choices.values()]
        for parser in [*nested, *self.actions.values()]:
            yield from parser.walk()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it, or by one of the actions."""
        if args and args[0] in self.actions:
            return self.actions[args[0]].parse_known_args(args[1:], namespace)
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """The whole text."""
        return (f"{self.format_usage()}\n{self.description}\n" if self.brief else super().format_help()) + self.more

    def parse_all(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """As :meth:`parse_args`, but what is unknown is an error of the command that it was given to."""
        options: argparse.Namespace
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{options.parser.meant_option(unknown)}")
        return options

    def meant_option(self, unknown: Sequence[str]) -> str:
        """A question after the option that the first unknown one may stand for."""
        known = _OPTION.findall(self.format_usage())
        return did_you_mean(next((one for one in unknown if one.startswith("-")), "").partition("=")[0], known)

    def error(self, message: str) -> NoReturn:
        """End with status 2 and the message, after what the user may have meant."""
        choice = _CHOICE.search(message)
        if choice is not None:
            valid = [one.strip().strip("'") for one in choice["valid"].split(",")]
            message += did_you_mean(choice["given"], valid)
        super().error(message)


def did_you_mean(given: str, valid: Sequence[str]) -> str:
    """The question that an error ends with; empty where nothing is alike.

    >>> did_you_mean("evalute", ["evaluate", "report"])
    ". Did you mean 'evaluate'?"
    """
    alike = difflib.get_close_matches(given, valid, n=1)
    return f". Did you mean '{alike[0]}'?" if alike else ""


@dataclass(frozen=True)
class Commands:
    """The commands, and the line that the help shows of each."""

    subparsers: Subparsers
    lines: dict[str, str] = field(default_factory=dict)

    def add_parser(self, name: str, *, help: str, description: str | None = None) -> Parser:  # noqa: A002 - argparse's
        """The parser of a new command."""
        self.lines[name] = help
        return self.subparsers.add_parser(name, help=help, description=description or f"{help[0].upper()}{help[1:]}.")
