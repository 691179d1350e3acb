"""A study: methods to train and compare, and those of them that a plot compares."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, FiniteFloat
from pydantic.dataclasses import dataclass

from nnunet_nacl.trainers import recipe_of

FigureKind = Literal["radar", "differences", "curves", "arrows"]
"""The kinds of plots of a study, which are told and drawn in ``nnunet_nacl.paper.report``."""
_STRICT = ConfigDict(strict=True, extra="forbid")
_Word = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]


def _known_trainer(name: str) -> str:
    recipe_of(name)  # raises a ValueError for a suffix that our trainers do not know
    return name


@dataclass(frozen=True, config=_STRICT)
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
    trainer: Annotated[_Word, AfterValidator(_known_trainer)]
    group: str = ""
    value: int | FiniteFloat | str | None = None
    training_cases: Annotated[str, Field(pattern=r"^([1-9]\d?|100)%$")] = "100%"
    network: _Word | None = None

    @property
    def label(self) -> str:
        """The value in plots."""
        return f"{self.value:g}" if isinstance(self.value, (int, float)) else self.value or ""


@dataclass(frozen=True, config=_STRICT)
class Study:
    """A study: methods, and the plot of the setting that it varies, if any.

    Attributes:
        methods: one or more, the baseline first.
        figure: the kind of the plot.
        setting: what the plot says about ``value``.
        text: its YAML file.
    """

    name: str
    title: str
    methods: Annotated[tuple[Method, ...], Field(min_length=1)]
    figure: FigureKind | None = None
    setting: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        for name, times in Counter(method.name for method in self.methods).items():
            if times > 1:
                raise ValueError(f"the name {name!r} occurs twice")
        are_shown = all(method.group and method.value is not None for method in self.methods)
        if self.figure is not None and not are_shown:
            raise ValueError("with a figure, every method needs group and value")
        groups = Counter(method.group for method in self.methods)
        if self.figure == "differences" and len(groups) > 2:
            raise ValueError(f"figure: differences compares two groups; here are {len(groups)}")
        if self.figure == "arrows" and max(groups.values()) > 2:
            raise ValueError("figure: arrows joins the two values of a group; here are more")

    def chosen(self, names: Sequence[str]) -> "Study":
        """Only these methods, by name or group.

        Raises:
            ValueError: there is no such method in the study.
        """
        known = dict.fromkeys(
            key for method in self.methods for key in (method.name, method.group) if key
        )
        for name in names:
            if name not in known:
                raise ValueError(
                    f"Study {self.name} has no method {name!r}; it has {', '.join(known)}."
                )
        chosen = [method for method in self.methods if {method.name, method.group} & {*names}]
        return replace(self, methods=tuple(chosen))

    @property
    def groups(self) -> dict[str, list[Method]]:
        """Group -> its methods, in the order given."""
        groups: dict[str, list[Method]] = {}
        for method in self.methods:
            groups.setdefault(method.group, []).append(method)
        return groups

    def compared(self, names: Collection[str]) -> list[Method]:
        """The methods of these names."""
        return [method for method in self.methods if method.name in names]
