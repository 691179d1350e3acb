import csv
import io
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnunet_nacl import files
from nnunet_nacl.files import (
    Kind,
    check_file,
    check_input,
    is_readable,
    is_there,
    only_writer,
    whole_file,
    whole_folder,
    write_csv,
)

NOTE = Kind("a note", re.compile(rb"\ANote|end of note\Z"))


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


@pytest.mark.parametrize("content", ['{"labels": {}}', "A Note", "x" * 5000 + "Note" + "x" * 9000])
def test_only_files_of_ours_are_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    message = rf"{re.escape(str(file))} exists and is not a note of nnunet_nacl\. .* --overwrite\.$"
    with pytest.raises(FileExistsError, match=message):
        check_file(file, NOTE)
    with pytest.raises(FileExistsError, match=message), whole_file(file, NOTE):
        pytest.fail("nothing is written")
    assert file.read_text() == content
    with whole_file(file, NOTE, overwrite=True) as partial:
        partial.write_text("Note")
    assert file.read_text() == "Note"


@pytest.mark.parametrize("content", ["", "Note", "x" * 9000 + "end of note"])
def test_files_of_ours_are_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    with whole_file(file, NOTE) as partial:
        partial.write_text("new")
    assert file.read_text() == "new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_devices_and_folders_are_no_output(tmp_path: Path, overwrite: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/null")
    for name, message in (
        ("/dev/full", "device, a pipe"),
        ("fifo", "device, a pipe"),
        ("link", "device"),
        (".", "is a folder"),
    ):
        for kind in (None, NOTE):
            with pytest.raises(OSError, match=message), whole_file(tmp_path / name, kind, overwrite=overwrite):
                pytest.fail("nothing is written")
    assert (tmp_path / "fifo").is_fifo()
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        check_file(tmp_path / "nowhere" / "file", overwrite=overwrite)


def test_an_output_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    for text in ("Note 1", "Note 2"):
        with whole_file(tmp_path / "link", NOTE) as partial:
            partial.write_text(text)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "Note 2"
    assert list((tmp_path / "folder").iterdir()) == [tmp_path / "folder" / "file"]


def is_ours(folder: Path) -> bool:
    return (folder / "ours").exists()


def make_folder(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)


@pytest.fixture(params=[True, False])
def exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's exchange of folders and without."""
    if not request.param:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)


@pytest.mark.usefixtures("exchange")
def test_a_folder_is_replaced_at_once_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    make_folder(folder, "ours", "old")
    for error in (RuntimeError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), whole_folder(folder, is_ours, overwrite=True) as partial:
            (partial / "ours").write_text("")
            raise error
        assert sorted(file.name for file in folder.iterdir()) == ["old", "ours"]
    with whole_folder(folder, is_ours, overwrite=True) as partial:
        (partial / "new").write_text("")
        assert (folder / "old").exists()
    assert [file.name for file in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]
    with (
        pytest.raises(FileExistsError, match=r"out exists and was not made by this command"),
        whole_folder(folder, is_ours, overwrite=True),
    ):
        pytest.fail("nothing is written")
    with pytest.raises(FileExistsError, match=r"out exists already"), whole_folder(folder, is_ours):
        pytest.fail("nothing is written")


def test_an_interrupt_between_two_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    make_folder(folder, "ours")
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if target == folder and not (path / "ours").exists():
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_folder(folder, is_ours, overwrite=True):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "ours"]


def test_a_replaced_folder_behind_a_link(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder", "ours", "old")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with whole_folder(tmp_path / "link", is_ours, overwrite=True) as partial:
        (partial / "new").write_text("")
    assert (tmp_path / "link").is_symlink()
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["new"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_while_it_writes(tmp_path: Path, overwrite: bool) -> None:
    make_folder(tmp_path / "folder", "ours", "old")
    (tmp_path / "file").write_text("old")
    name = "folder" if overwrite else "new"
    code = (
        "import os, signal; from pathlib import Path; from nnunet_nacl.files import whole_file, whole_folder\n"
        f"folder = Path({str(tmp_path)!r})\n"
        f"with whole_folder(folder / {name!r}, lambda _: True, overwrite={overwrite}) as partial:\n"
        "    with whole_file(folder / 'file') as file:\n"
        "        file.write_text('new'); (partial / 'new').write_text('new')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(file.name for file in (tmp_path / "folder").iterdir()) == ["old", "ours"]
    with only_writer(tmp_path / "folder"), only_writer(tmp_path / "new"):  # the dead hold nothing
        pass


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    output = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from nnunet_nacl.files import whole_folder\n"
        f"with whole_folder(Path({str(output)!r})): print('here', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"here\n"
        with pytest.raises(BlockingIOError, match=rf"{output}: another process is writing it\."), whole_folder(output):
            pytest.fail("nothing is written")
        other.communicate()
    assert other.returncode == 0
    assert list(tmp_path.iterdir()) == [output]


def test_a_lock_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".out.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError, match=r"\.out\.lock is a link"), only_writer(tmp_path / "out"):
        pytest.fail("nothing is written")
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "😀" * 63])
def test_the_longest_names(tmp_path: Path, name: str) -> None:
    with whole_file(tmp_path / name) as partial:
        partial.write_text("")
    (tmp_path / name).unlink()
    with whole_folder(tmp_path / name):
        pass
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Within, no file gets longer than that, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with at_most(1000):
        with (
            pytest.raises(OSError, match=rf"File too large: '{tmp_path / 'file'}'"),
            whole_file(tmp_path / "file") as p,
        ):
            p.write_bytes(bytes(5000))
        with (
            pytest.raises(OSError, match=rf"File too large: '{tmp_path / 'out'}'"),
            whole_folder(tmp_path / "out") as p,
        ):
            (p / "file").write_bytes(bytes(5000))
    with (
        pytest.raises(OSError, match=rf"No such file.*'{tmp_path / 'out' / 'a' / 'b'}'"),
        whole_folder(tmp_path / "out") as p,
    ):
        (p / "a" / "b").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_cannot_be_read_are_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    for name, kind, message in (
        ("nothing", FileNotFoundError, "nothing does not exist: no image."),
        ("fifo/nothing", FileNotFoundError, "fifo/nothing does not exist: no image."),
        ("loop", OSError, "loop cannot be read: Too many levels of symbolic links."),
        ("x" * 256, OSError, "x cannot be read: File name too long."),
        ("fifo", OSError, "fifo is a device, a pipe or a socket, not a file."),
        (".", OSError, "is a folder, not a file."),
    ):
        with pytest.raises(kind, match=re.escape(message) + "$") as caught:
            check_input(tmp_path / name, ": no image.")
        assert isinstance(caught.value, FileNotFoundError) == (kind is FileNotFoundError)
        assert not is_readable(tmp_path / name)
    assert is_there(tmp_path / "loop")
    assert not is_there(tmp_path / "nothing")
    assert not is_there(tmp_path / ("x" * 256))


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match="file cannot be read: Permission denied"):
            check_input(tmp_path / "file")
        assert is_there(tmp_path / "file")
    finally:
        os.seteuid(0)


def test_formulas_are_text_in_csv() -> None:
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1+1"]
    stream = io.StringIO()
    write_csv(stream, [["name", "value"], *([text, -1.5] for text in texts), ["case_1", "-1e-05"], ["a=b", "-inf"]])
    rows = list(csv.reader(io.StringIO(stream.getvalue(), newline="")))
    assert rows[1:-2] == [[f"'{text}", "-1.5"] for text in texts]
    assert rows[-2:] == [["case_1", "-1e-05"], ["a=b", "-inf"]]
