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
