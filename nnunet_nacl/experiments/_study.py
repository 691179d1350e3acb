"""Studies: which methods are trained and compared, as small tables in YAML that users can copy."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from nnunet_nacl.report import Study, Variant
from nnunet_nacl.trainers import parse_name

_FOLDER = Path(__file__).parent / "studies"
STUDIES = ("main", "hyperparameters", "prior", "sigma", "penalty", "constraint", "samples", "backbones")
_MOST = 100_000
_WORDS = (str, int, float)
_SHARE = re.compile(r"[0-9.]{1,12}(/[0-9]{1,12})?%")
FIGURES = ("radar", "differences", "curves", "arrows")


@dataclass(frozen=True)
class Row:
    """A method of a study.

    Attributes:
        name: in the report.
        trainer: name of nnU-Net's or our trainer, without the budget's suffixes.
        group: what it is a variant of, for the study's plot.
        value: of the setting that the study varies.
        training_cases: share of the training cases of each fold, such as ``25%``.
        network: a configuration's ending, such as ``attention_unet``: the method is trained with the configuration
            ``2d_attention_unet`` in place of ``2d``.
        on_request: left out unless it is asked for by name.
    """

    name: str
    trainer: str
    group: str | None = None
    value: float | str | None = None
    training_cases: str = "100%"
    network: str | None = None
    on_request: bool = False

    @property
    def share(self) -> Fraction:
        """Of the training cases, exactly: in floating point, 7 % of 100 cases is more than 7."""
        return Fraction(self.training_cases[:-1]) / 100


@dataclass(frozen=True)
class StudyTable:
    """A study: methods, and the plot that shows what it varies, if it varies one thing."""

    name: str
    title: str
    rows: tuple[Row, ...]
    figure: str | None = None
    setting: str = ""

    def chosen(self, methods: Sequence[str] | None) -> "StudyTable":
        """Only these methods, by name or group; without a choice, all but those on request.

        Raises:
            ValueError: there is no such method in the study, or all are on request.
        """
        if methods is None:
            rows = tuple(row for row in self.rows if not row.on_request)
            if not rows:
                named = ", ".join(row.name for row in self.rows)
                raise ValueError(f"All methods of study {self.name} are on request: name some of {named} (--methods).")
            return replace(self, rows=rows)
        known = [row.name for row in self.rows]
        known += sorted({row.group for row in self.rows if row.group is not None} - set(known))
        for method in methods:
            if method not in known:
                raise ValueError(f"Study {self.name} has no method {method!r}; it has {', '.join(known)}.")
        return replace(self, rows=tuple(row for row in self.rows if {row.name, row.group} & set(methods)))


def study_file(study: str) -> Path:
    """The file of a built-in study, to read or to copy.

    Raises:
        ValueError: there is no such study.
    """
    if study not in STUDIES:
        raise ValueError(f"There is no study {study!r}; there are {', '.join(STUDIES)}.")
    return _FOLDER / f"{study}.yaml"


def read_study(file: str | Path) -> StudyTable:
    """Read and check a study's table.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no study; the message says what is wrong where.
    """
    file = Path(file)
    try:
        read = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe one
    except RecursionError:
        raise ValueError(f"{file} is no YAML file: it is nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError for a date that there is not, say
        raise ValueError(f"{file} is no YAML file: {error}") from error
    if _is_large(read):
        raise ValueError(f"{file} holds more than {_MOST:,} entries, its aliases included.")
    if not isinstance(read, Mapping):
        raise ValueError(f"{file} must hold title and runs; got {type(read).__name__}.")
    _check_keys(read, {"title", "runs"}, {"title", "runs", "figure", "setting"}, str(file))
    if read.get("figure") not in (None, *FIGURES):
        raise ValueError(f"{file}: figure must be one of {', '.join(FIGURES)}; got {read['figure']!r}.")
    if not isinstance(read["runs"], list) or not read["runs"]:
        raise ValueError(f"{file}: runs must be a list of methods.")
    if not isinstance(read["title"], _WORDS) or not isinstance(read.get("setting", ""), _WORDS):
        raise ValueError(f"{file}: title and setting must be texts.")
    rows = tuple(_row(entry, f"{file}: run {number}") for number, entry in enumerate(read["runs"], start=1))
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{file}: the name {name!r} occurs twice.")
    if read.get("figure") is not None and any(row.group is None or row.value is None for row in rows):
        raise ValueError(f"{file}: with a figure, every run needs group and value.")
    return StudyTable(file.stem, str(read["title"]), rows, read.get("figure"), str(read.get("setting", "")))


class _Loader(yaml.SafeLoader):
    """As ``yaml.safe_load``, but a key that comes twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} comes twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _is_large(content: Any) -> bool:
    """Whether it has more entries than any study: aliases can make a few lines hold billions, or themselves."""
    left, seen = [content], 0
    while left and seen <= _MOST:
        seen += 1
        one = left.pop()
        left += [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
    return seen > _MOST


def _row(entry: Any, where: str) -> Row:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must hold name and trainer; got {entry!r}.")
    _check_keys(entry, {"name", "trainer"}, {field.name for field in fields(Row)}, where)
    for key in ("name", "trainer"):
        if not isinstance(entry[key], _WORDS):
            raise ValueError(f"{where}: {key} must be a text; got {entry[key]!r:.80}.")
    row = Row(**{**entry, "name": str(entry["name"]), "trainer": str(entry["trainer"])})
    if "__" in row.trainer or not row.trainer.isidentifier():
        raise ValueError(f"{where}: {row.trainer!r} cannot be a trainer's name.")
    try:
        parse_name(row.trainer)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    known = isinstance(row.value, (*_WORDS, type(None))) and not isinstance(row.value, bool)
    if not known or (isinstance(row.value, float) and not math.isfinite(row.value)):
        raise ValueError(f"{where}: value must be a finite number or a word; got {row.value!r:.80}.")
    if not isinstance(row.group, (str, type(None))):
        raise ValueError(f"{where}: group must be a word; got {row.group!r:.80}.")
    if row.network is not None and not (isinstance(row.network, str) and row.network.isidentifier()):
        raise ValueError(f"{where}: network must be a word such as attention_unet; got {row.network!r:.80}.")
    if not isinstance(row.on_request, bool):
        raise ValueError(f"{where}: on_request must be true or false; got {row.on_request!r}.")
    try:
        valid = _SHARE.fullmatch(str(row.training_cases)) is not None and 0 < row.share <= 1
    except (ValueError, ZeroDivisionError):
        valid = False
    if not valid:
        raise ValueError(f"{where}: training_cases must be a share such as 25%; got {row.training_cases!r}.")
    return row


def _check_keys(entry: Mapping[Any, Any], needed: set[str], known: set[str], where: str) -> None:
    missing, unknown = needed - set(entry), set(entry) - known
    if missing or unknown:
        what = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        what += [f"has the unknown {', '.join(sorted(map(str, unknown)))}"] if unknown else []
        raise ValueError(f"{where} {' and '.join(what)}; known are {', '.join(sorted(known))}.")


def study_plot(study: StudyTable) -> Study | None:
    """What the report draws of the study, if its table names a plot.

    Raises:
        ValueError: its methods do not suit its plot.
    """
    if study.figure is None:
        return None
    variants = tuple(
        Variant(row.name, row.group, row.value) for row in study.rows if row.group is not None and row.value is not None
    )
    return Study(study.title, study.figure, study.setting, variants)  # type: ignore[arg-type]
