"""JSON files: what is wrong with them is said in one line, with the file and the place."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nnunet_nacl.json_files import load_json, parse_json, read_json, typed


@dataclass(frozen=True)
class Leaf:
    number: float
    names: list[str]
    flag: bool = False


@dataclass(frozen=True)
class Tree:
    leaves: dict[str, Leaf]
    either: int | list[int] | None = None


GOOD = {"leaves": {"a": {"number": 1, "names": ["x"], "more": 3}}, "either": [1, 2], "unknown": None}


def test_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(GOOD))
    assert read_json(file, Tree, "tree") == Tree({"a": Leaf(1.0, ["x"])}, [1, 2])
    file.write_text('{"leaves": {"a": {"number": NaN, "names": []}}}')
    assert math.isnan(read_json(file, Tree, "tree").leaves["a"].number)
    with pytest.raises(ValueError, match=r"tree\.json is not valid JSON: expected finite numbers; got NaN"):
        read_json(file, Tree, "tree", finite=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "FILE is no tree: expected a JSON object; got []"),
        (None, "FILE is no tree: expected a JSON object; got null"),
        ({}, "FILE is no tree: it has no 'leaves'"),
        ({"leaves": []}, "FILE: leaves: expected a JSON object; got []"),
        ({"leaves": {"a": {"number": 1}}}, "FILE: leaves.a: it has no 'names'"),
        ({"leaves": {"a": {"number": "1", "names": []}}}, 'FILE: leaves.a.number: expected a number; got "1"'),
        ({"leaves": {"a": {"number": True, "names": []}}}, "FILE: leaves.a.number: expected a number; got true"),
        ({"leaves": {"b.c": {"number": 1, "names": [1]}}}, 'FILE: leaves."b.c".names[0]: expected a text; got 1'),
        ({"leaves": {}, "either": 1.0}, "FILE: either: expected an integer or a list of integers; got 1.0"),
        ({"leaves": {}, "either": [1, 1.5]}, "FILE: either[1]: expected an integer; got 1.5"),
        ({"leaves": {}, "either": "x" * 99}, 'FILE: either: expected an integer or a list of integers; got "xxx'),
    ],
)
def test_content_of_another_type(content: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        typed(content, Tree, "FILE", "tree")
    assert str(raised.value).startswith(message)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff\xfe", "'utf-8' codec can't decode"),
        (b"\xef\xbb\xbf{}", "Unexpected UTF-8 BOM"),
        (b"[" * 200_000, "it is nested too deeply"),
        (b'{"a": 1, "a": 2}', 'an object has the key "a" twice'),
        (b"9" * 5000, "Exceeds the limit"),
    ],
)
def test_no_json(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{file} is not valid JSON: .*") as raised:
        load_json(file)
    assert message in str(raised.value)


def test_numbers_too_large_to_be_finite() -> None:
    assert parse_json("1e999", "FILE") == math.inf
    for text in ("1e999", "-Infinity", "[NaN]"):
        with pytest.raises(ValueError, match="expected finite numbers"):
            parse_json(text, "FILE", finite=True)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tree\.json does not exist\.$"):
        load_json(tmp_path / "tree.json")
    with pytest.raises(OSError, match="is a folder, not a file"):
        load_json(tmp_path)
    with pytest.raises(OSError, match="/dev/null is a device, a pipe or a socket, not a file"):
        load_json(Path("/dev/null"))
