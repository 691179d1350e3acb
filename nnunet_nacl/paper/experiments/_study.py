"""Studies: which methods are trained and compared, as small tables in YAML that users can copy."""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from yaml.constructor import ConstructorError

from nnunet_nacl.files import check_input
from nnunet_nacl.paper.report import FigureKind, StudyPlot, Variant
from nnunet_nacl.trainers import recipe_of

STUDIES = (
    "main",
    "hyperparameters",
    "prior",
    "sigma",
    "penalty",
    "constraint",
    "samples",
    "backbones",
)
_STRICT = ConfigDict(strict=True, extra="forbid", populate_by_name=True)
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
    group: str | None = None
    value: int | FiniteFloat | str | None = None
    training_cases: Annotated[str, Field(pattern=r"^([1-9]\d?|100)%$")] = "100%"
    network: _Word | None = None


@dataclass(frozen=True, config=_STRICT)
class Study:
    """A study: methods, and the plot of the setting that it varies, if any.

    Attributes:
        methods: ``runs`` in the YAML file.
        figure: the kind of the plot.
        setting: what the plot says about ``value``.
        text: its YAML file.
    """

    name: str
    title: str
    methods: Annotated[tuple[Method, ...], Field(min_length=1, alias="runs")]
    figure: FigureKind | None = None
    setting: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        for name, times in Counter(method.name for method in self.methods).items():
            if times > 1:
                raise ValueError(f"the name {name!r} occurs twice")
        if self.figure is not None and len(self._variants) < len(self.methods):
            raise ValueError("with a figure, every run needs group and value")
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
            key for method in self.methods for key in (method.name, method.group) if key is not None
        )
        for name in names:
            if name not in known:
                raise ValueError(
                    f"Study {self.name} has no method {name!r}; it has {', '.join(known)}."
                )
        return self.having(
            method for method in self.methods if {method.name, method.group} & {*names}
        )

    def having(self, methods: Iterable[Method]) -> "Study":
        """The same study of these methods."""
        return replace(self, methods=tuple(methods))

    def plot(self) -> StudyPlot | None:
        """What the report draws of the study, if it names a plot."""
        if self.figure is None:
            return None
        return StudyPlot(self.title, self.figure, self.setting, self._variants)

    @property
    def _variants(self) -> tuple[Variant, ...]:
        """What the plot shows: the methods with group and value."""
        return tuple(
            Variant(method.name, method.group, method.value)
            for method in self.methods
            if method.group is not None and method.value is not None
        )


def studies_called(study: str) -> list[Study]:
    """Read and check a built-in study, ``FILE.yaml``, or ``all`` built-in ones.

    ``all`` leaves out ``backbones``, which needs configurations that the plans may not have.

    Raises:
        OSError: the file cannot be read.
        ValueError: there is no such built-in study, or the file is not a study; the message says what is wrong and
            where.
    """
    if study != "all":
        return [read_study(study)]
    return [read_study(name) for name in STUDIES if name != "backbones"]


class _Loader(yaml.SafeLoader):
    """Refuses a key that occurs twice, as YAML does: of a run whose dash is missing, the last one would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise ConstructorError(None, None, f"{key.value!r} occurs twice", key.start_mark)
            seen.add(key.value)
        content: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return content


def read_study(study: str) -> Study:
    """Read and check one of ``STUDIES``, or ``FILE.yaml``."""
    file = Path(study)
    if study in STUDIES:
        file = Path(__file__).with_name("studies") / f"{study}.yaml"
    elif file.suffix != ".yaml":
        raise ValueError(
            f"There is no study {study!r}; there are {', '.join(STUDIES)}, and your own as FILE.yaml."
        )
    check_input(file, f"; there are {', '.join(STUDIES)}, and your own as FILE.yaml.")
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
        if isinstance(content, dict):
            content = {"name": file.stem, **content, "text": text}
        return TypeAdapter(Study).validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise ValueError(f"{file} is not as expected: {error}") from error
    # A ValueError for a date that there is not, a TypeError for a date as a key
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a YAML file: {error}") from error
