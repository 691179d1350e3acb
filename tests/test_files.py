import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnunet_nacl.files import check_output, read_json, whole_file, write_csv, write_json
from nnunet_nacl.paths import FileState


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "out.nii.gz"
    with whole_file(file) as partial:
        assert partial.name.endswith(".nii.gz")
        partial.write_text("first")
        assert not file.exists()
    assert file.read_text() == "first"
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), whole_file(file) as partial:
            partial.write_text("second")
            raise error
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


def test_an_output_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    with whole_file(tmp_path / "link") as partial:
        partial.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert [file.read_text() for file in (tmp_path / "folder").iterdir()] == ["new"]


def test_outputs_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_output(str(tmp_path / "new")) == tmp_path / "new"
    with pytest.raises(PermissionError, match="nowhere does not exist or may not be written to"):
        check_output(tmp_path / "nowhere" / "file", overwrite=True)
    (tmp_path / "folder").mkdir()
    check_output(tmp_path / "folder", is_folder=True)
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "link").symlink_to("nothing")
    for name, is_folder in (("folder", False), ("folder/file", True)):
        with pytest.raises(FileExistsError, match=rf"{name} exists; expected the name of a f"):
            check_output(tmp_path / name, overwrite=True, is_folder=is_folder)
    for name, is_folder in (("folder", True), ("folder/file", False), ("link", False)):
        with pytest.raises(FileExistsError, match=rf"{name} exists\. Choose another name, or .* --overwrite\."):
            check_output(tmp_path / name, is_folder=is_folder)
        check_output(tmp_path / name, overwrite=True, is_folder=is_folder)
    monkeypatch.setattr(os, "access", lambda *_: False)  # as of a folder that may only be read
    with pytest.raises(PermissionError, match=rf"{tmp_path} does not exist or may not be written to"):
        check_output(tmp_path / "new")


@dataclass(frozen=True)
class Settings:
    bins: int
    voxels: list[str]


def test_json(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"bins": 15, "voxels": ["near"], "more": None})
    assert read_json(file, Settings) == Settings(15, ["near"])
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"bins": float("nan")})
    assert read_json(file, Settings) == Settings(15, ["near"])
    file.write_text('{"bins": "15", "voxels": []}')
    assert read_json(file, Settings, strict=False) == Settings(15, [])
    file.write_text('{"bins": 15, "voxels": [1, 2, 3, 4, 5]}')  # say, by another version: a page of errors helps nobody
    with pytest.raises(ValueError, match=rf"{file} is not as expected: voxels\.0: [^;]*; voxels\.1: [^;]*; [^;]*$"):
        read_json(file, Settings)


def test_formulas_are_text_in_csv(tmp_path: Path) -> None:
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
    file = tmp_path / "a.csv"
    write_csv(file, [["name", "value"], *([text, -1.5] for text in texts), ["case_1", "-1e-05"], ["a=b", "-inf"]])
    rows = list(csv.reader(io.StringIO(file.read_bytes().decode(), newline="")))
    assert rows[1:-2] == [[f"'{text}", "-1.5"] for text in texts]
    assert rows[-2:] == [["case_1", "-1e-05"], ["a=b", "-inf"]]


def test_a_file_is_known_by_its_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "case.npz"
    file.write_bytes(b"one")
    state = FileState.now(file)
    moved = file.rename(tmp_path / "moved.npz")
    assert not state.has_changed  # it is missing
    moved.rename(file)
    assert not state.has_changed
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert state.has_changed
    missing = FileState.now(tmp_path / "none")
    (tmp_path / "none").touch()
    assert missing.has_changed  # it was added
