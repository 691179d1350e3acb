"""Read studies: small tables in YAML, built in beside this file, or of users, who can copy them."""

import json
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from yaml.constructor import ConstructorError

from nnunet_nacl.files import check_input
from nnunet_nacl.paper.studies._study import Study

STUDIES = (
    "main",
    "hyperparameters",
    "prior",
    "sigma",
    "penalty",
    "constraint",
    "samples",
    "backbones",
    "since",
)


def studies_called(study: str) -> list[Study]:
    """Read and check a built-in study, ``FILE.yaml``, or ``all`` built-in ones.

    ``all`` is the paper's, without ``backbones``, which needs configurations that the plans may not have.

    Raises:
        OSError: the file cannot be read.
        ValueError: there is no such built-in study, or the file is not a study; the message says what is wrong and
            where.
    """
    if study != "all":
        return [read_study(study)]
    return [read_study(name) for name in STUDIES if name not in {"backbones", "since"}]


class _Loader(yaml.SafeLoader):
    """Refuses a key that occurs twice, as YAML does: of a method whose dash is missing, the last one would win."""

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
    there_are = f"; there are {', '.join(STUDIES)}, and your own as FILE.yaml."
    if study in STUDIES:
        file = Path(__file__).with_name(f"{study}.yaml")
    elif file.suffix != ".yaml":
        raise ValueError(f"There is no study {study!r}{there_are}")
    check_input(file, there_are)
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
        if isinstance(content, dict):
            content = {"name": file.stem, **content}
        checked = TypeAdapter(Study).validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise ValueError(f"{file} is not as expected: {error}") from error
    # A ValueError for a date that there is not, a TypeError for a date as a key
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a YAML file: {error}") from error
    if checked.text:
        raise ValueError(f"{file} is not as expected: text\n  Unexpected key")
    return replace(checked, text=text)
