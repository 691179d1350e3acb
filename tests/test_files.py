import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnunet_nacl.files import whole_file, whole_folder


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    with whole_file(file) as partial:
        partial.write_text("first")
        assert not file.exists()
    assert file.read_text() == "first"
    with pytest.raises(RuntimeError), whole_file(file) as partial:
        partial.write_text("second")
        raise RuntimeError
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    with pytest.raises(RuntimeError), whole_folder(folder) as partial:
        (partial / "a").write_text("")
        raise RuntimeError
    assert list(folder.parent.iterdir()) == []
    with whole_folder(folder) as partial:
        (partial / "a").write_text("")
    assert (folder / "a").is_file()
    with pytest.raises(FileExistsError, match=r"out exists already\.$"), whole_folder(folder):
        pass


@pytest.fixture(params=[0o077, 0o022, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_permissions_are_those_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    with whole_folder(tmp_path / "folder"), whole_file(tmp_path / "file") as partial:
        partial.write_text("")
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_machines_that_share_a_disk_do_not_share_temporary_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of two machines may have one number."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    with whole_file(tmp_path / "out") as one, whole_file(tmp_path / "out") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "out").read_text() == "one"
    with whole_folder(tmp_path / "a"), whole_folder(tmp_path / "b"):
        pass
