"""The parser of a command, made of its function's signature and docstring.

Positional parameters are the command's arguments, keyword-only ones its options. An entry of ``Args:`` is the help, and
begins with the name of the value in capitals; without an entry it is that of ``SHARED``, which several commands have.
A parameter that is a dataclass stands for its fields, and one of the type ``CommandLine`` is all that was typed. An
``argparse.ArgumentError`` says that options do not go together.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

SINGLE_DASH = {"d", "c", "p", "f", "i", "o", "tr", "np", "gt", "chk", "device"}  # as in nnU-Net

SHARED = {
    "gt_folder": "folder with the ground truth",
    "pred_folder": "segmentations and their .npz files, as of nnUNetv2_predict --save_probabilities",
    "d": "DATASET, by name or number",
    "c": "CONFIGURATION such as 2d",
    "tr": "TRAINER",
    "p": "PLANS",
    "f": "FOLD or folds",
    "device": "cuda, cpu or mps; auto: cuda if there is one",
    "np": "N cases at a time (default: nnUNet_def_n_proc, or 8 if that is not set; at most the number of cores)",
    "calibrated": "use the validation cases that 'calibrate --npz' predicted, fold_X/validation_calibrated",
    "summaries": "calibration_summary.json, or its folder",
    "names": "NAME of each method, one for each summary (default: trainer or folder)",
    "ignore_geometry": "accept a case's files even if their spacing, origin or direction differ; "
    "lengths are in the prediction's spacing",
    "no_surface": "without HD95, ASSD and normalized surface distance, which take longest on large volumes",
    "by_patient": "REGEX: resample and test patients, not their cases; the patient is the case's name up to the last "
    "underscore, or REGEX's first group",
    "overwrite": "replace existing files of the same names, and no others",
    "voxels": "foreground (where the ground truth is not background), union (where it or the prediction is not), near "
    "(within 5 mm, or pixels, of foreground probabilities above 0.05) or image (default: near, where there is "
    "a choice)",
}
"""Parameter -> its help, in all commands whose docstring does not say more of it."""
_VALUE = re.compile(r"[A-Z]+([.=]\w+)?\b")
"""The name of a value at the beginning of an option's help: NAME, FILE.html, NAME=T."""
CommandLine = NewType("CommandLine", list[str])
"""The words of a command line, the first one ``nnunet_nacl``."""


@dataclass(frozen=True)
class Command:
    """A command: a function by whose name it is called, with blanks for underscores."""

    function: Callable[..., int]

    @property
    def name(self) -> str:
        """The name as it is typed."""
        return self.function.__name__.replace("_", " ")

    @property
    def summary(self) -> str:
        """The line that the help of all commands shows."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")

    def run(self, words: Sequence[str]) -> int:
        """Call the function with what the words say; returns the exit status, or exits after help and wrong usage."""
        parser = self.parser()
        values = vars(parser.parse_args(words))
        for name, hint in get_type_hints(self.function).items():
            if hint is CommandLine:
                values[name] = CommandLine(["nnunet_nacl", *self.name.split(), *words])
            elif isinstance(hint, type) and is_dataclass(hint):
                members = [field.name for field in fields(hint)]
                given = {member: values.pop(member) for member in members if member in values}
                values[name] = hint(**given)
        try:
            return self.function(**values)
        except argparse.ArgumentError as error:
            parser.error(str(error))

    def parser(self) -> argparse.ArgumentParser:
        """Make the parser of the words after the command's name."""
        text, _, examples = (inspect.getdoc(self.function) or "").partition("\nExamples:\n")
        description, _, arguments = text.partition("\nArgs:\n")
        helps = dict(SHARED)
        name = ""
        for line in arguments.splitlines():
            if line.startswith(" " * 8):  # more of the entry
                helps[name] += f" {line.strip()}"
            else:
                name, _, helps[name] = line.strip().partition(": ")
        parser = argparse.ArgumentParser(
            f"nnunet_nacl {self.name}",
            description=description.strip(),
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,  # the function has the defaults
        )
        for parameter in _parameters(self.function):
            _add_argument(parser, parameter, helps[parameter.name])
        return parser


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """List the arguments and options that a command line has, with their types."""
    hints = get_type_hints(function)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and is_dataclass(hint):
            found += _parameters(hint)
        elif hint is not CommandLine:
            found.append(parameter.replace(annotation=hint))
    return found


def _add_argument(parser: argparse.ArgumentParser, parameter: inspect.Parameter, text: str) -> None:
    """Declare one parameter's argument or option: ``Sequence[X]`` takes several values, ``X | bool`` none or one."""
    is_option = parameter.kind is parameter.KEYWORD_ONLY
    is_required = parameter.default is parameter.empty
    declared: dict[str, Any] = {}
    # Of X | bool and X | None
    hint = parameter.annotation
    kind, *others = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    if get_origin(kind) is Sequence:
        (kind,) = get_args(kind)
        declared.update(nargs="+", action="extend")
    elif bool in others:
        declared.update(nargs="?", const=True)
    elif not is_option and not is_required:
        declared.update(nargs="?", default=parameter.default)

    default = parameter.default
    if not is_required and default:
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        text += f" (default: {shown})"

    if kind is bool:
        declared["action"] = "store_true"
    elif get_origin(kind) is Literal:
        declared["choices"] = get_args(kind)
    else:
        named = _VALUE.match(text) if is_option else None
        declared["type"] = kind
        declared["metavar"] = named[0] if named else parameter.name.upper()

    name = parameter.name
    if is_option:
        declared.update(dest=name, required=is_required)
        name = f"-{name}" if name in SINGLE_DASH else f"--{name}"
    parser.add_argument(name, help=text.replace("%", "%%"), **declared)
