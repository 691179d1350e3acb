"""Studies: small tables in YAML, built in beside this file, or of users, who can copy them."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from nnunet_nacl.files import check_input

STUDIES_OF_ALL = (
    "main",
    "hyperparameters",
    "prior",
    "sigma",
    "penalty",
    "constraint",
    "samples",
)
"""What ``all`` stands for: the paper's studies, but for backbones, which need configurations of their own."""
STUDIES = (*STUDIES_OF_ALL, "backbones", "since")
_NO_OTHERS = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_NO_OTHERS)
class Method:
    """A method of a study.

    Attributes:
        name: in the report.
        trainer: any trainer that nnU-Net finds, without the suffixes for epochs and iterations.
        group: the method that it is a variant of, for the study's plot.
        value: the value of the setting that the study varies.
        training_cases: share of the training cases of each fold, such as ``25%``.
        network: ending of the configuration: ``attention_unet`` trains ``2d_attention_unet`` instead of ``2d``.
    """

    name: str
    trainer: str
    group: str = ""
    value: int | FiniteFloat | str | None = None
    training_cases: Annotated[str, Field(pattern=r"^([1-9]\d?|100)%$")] = "100%"
    network: str | None = None

    @property
    def label(self) -> str:
        """The value in plots."""
        return f"{self.value:g}" if isinstance(self.value, (int, float)) else self.value or ""


@dataclass(frozen=True, config=_NO_OTHERS)
class Study:
    """A study: methods, and the plot of the setting that it varies, if any.

    Attributes:
        methods: one or more, the baseline first.
        figure: the kind of the plot, which ``nnunet_nacl.paper.report`` draws.
        setting: what the plot says about ``value``.
    """

    name: str
    title: str
    methods: Annotated[tuple[Method, ...], Field(min_length=1)]
    figure: Literal["radar", "differences", "curves", "arrows"] | None = None
    setting: str = ""

    def __post_init__(self) -> None:
        names = [method.name for method in self.methods]
        if len({*names}) < len(names):
            raise ValueError(f"methods of the same name: {', '.join(names)}")
        are_shown = all(method.group and method.value is not None for method in self.methods)
        if self.figure is not None and not are_shown:
            raise ValueError("with a figure, every method needs group and value")
        if self.figure == "differences" and len(self.groups) > 2:
            raise ValueError("figure: differences compares two groups")

    def chosen(self, names: Collection[str]) -> "Study":
        """Return the study of these methods alone, by name or group.

        Raises:
            ValueError: there is no such method in the study.
        """
        known = {name for method in self.methods for name in (method.name, method.group)}
        if unknown := {*names} - known:
            listed = ", ".join(method.name for method in self.methods)
            raise ValueError(f"Study {self.name} has no method {min(unknown)!r}; it has {listed}.")
        chosen = [one for one in self.methods if one.name in names or one.group in names]
        return replace(self, methods=tuple(chosen))

    @property
    def groups(self) -> dict[str, list[Method]]:
        """Group -> its methods, in the order given."""
        groups: dict[str, list[Method]] = {}
        for method in self.methods:
            groups.setdefault(method.group, []).append(method)
        return groups

    def compared(self, names: Collection[str]) -> list[Method]:
        """Return the methods of these names."""
        return [method for method in self.methods if method.name in names]

    def missing(self, names: Collection[str]) -> list[str]:
        """Return the names of the study's other methods."""
        return [method.name for method in self.methods if method.name not in names]


def study_file(study: str) -> Path:
    """Return the file of one of ``STUDIES``, or of a user's; raises an OSError if it cannot be read."""
    file = Path(__file__).with_name(f"{study}.yaml") if study in STUDIES else Path(study)
    check_input(file, f"; there are {', '.join(STUDIES)}, and your own as FILE.yaml.")
    return file


def read_study(study: str) -> Study:
    """Read one of ``STUDIES``, or ``FILE.yaml``; raises a ValueError that says what is wrong and where."""
    file = study_file(study)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return TypeAdapter(Study).validate_python({"name": file.stem, **content})
    except (yaml.YAMLError, TypeError, ValidationError) as error:
        raise ValueError(f"{file} is not as expected: {error}") from error
