"""What calibrate fit and apply replace, and what they leave when they are interrupted or fail."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.files import only_writer
from nnunet_nacl.nnunet import CALIBRATED_NAME
from nnunet_nacl.posthoc import Fit, apply_folder
from tests.posthoc.generated import ENDING, fit_folder, known_case, probabilities, write_case, write_folder


@pytest.fixture
def test(tmp_path: Path) -> tuple[Path, Path]:
    return write_folder(tmp_path / "test", "xyz", first=10)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["dataset.json", "plans.json", "a.npz", "a.pkl"])
def test_fit_replaces_only_fits(train: tuple[Path, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(train[1])
    assert main(["calibrate", "fit", *map(str, train), "-o", str(train[1] / name)]) == 1
    assert f"{train[1] / name} exists and is not a fit of nnunet_nacl" in capsys.readouterr().err
    assert contents(train[1]) == before
    for method in ("temperature", "irm", "temperature"):
        assert main(["calibrate", "fit", *map(str, train), "-o", str(train[1] / "fit.json"), "--method", method]) == 0
    assert main(["calibrate", "fit", *map(str, train), "-o", str(train[1] / "a.pkl"), "--overwrite"]) == 0
    assert Fit.read(train[1] / "a.pkl").cases == list("abcdef")


def test_what_apply_wrote_is_no_fit(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    fit_folder(train)
    apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    before = contents(tmp_path / "out")
    assert main(["calibrate", "fit", *map(str, train), "-o", str(tmp_path / "out" / CALIBRATED_NAME)]) == 1
    assert contents(tmp_path / "out") == before


def test_overwrite(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path) -> None:
    for method in ("temperature", "irm"):
        fit_folder(train, method=method)
    output = tmp_path / "out"
    command = ["calibrate", "apply", str(train[1] / "posthoc_irm.json"), str(test[1]), "-o", str(output)]
    apply_folder(train[1] / "posthoc_temperature.json", test[1], output)
    before = contents(output)
    assert main(command) == 1
    (test[1] / "broken.json").write_text("{}")
    broken = ["calibrate", "apply", str(test[1] / "broken.json"), *command[3:], "--overwrite"]
    assert main(broken) == 1
    assert contents(output) == before
    assert main([*command, "--overwrite"]) == 0
    assert b'"method": "irm"' in contents(output)[CALIBRATED_NAME]
    assert main([*command[:-1], str(train[0]), "--overwrite"]) == 1  # not a calibrated folder
    assert len(list(train[0].iterdir())) == 6


def test_two_at_once(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_folder(train)
    command = [
        "calibrate",
        "apply",
        str(train[1] / "posthoc_temperature.json"),
        str(test[1]),
        "-o",
        str(tmp_path / "out"),
    ]
    with only_writer(tmp_path / "out"):
        assert main(command) == 1
    assert f"{tmp_path / 'out'}: another process is writing it." in capsys.readouterr().err
    assert main(command) == 0


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, number: signal.Signals, overwrite: bool
) -> None:
    fit_folder(train)
    fit = train[1] / "posthoc_temperature.json"
    if overwrite:
        apply_folder(fit, test[1], tmp_path / "out")
    before = contents(tmp_path)
    hour = "import time\nfrom nnunet_nacl.posthoc import _written as _folder\nshutil = _folder.shutil.copy2\n"
    hour += "_folder.shutil.copy2 = lambda *where: (shutil(*where), time.sleep(3600))\n"
    hour += "from nnunet_nacl.cli import main\nimport sys\nsys.exit(main(sys.argv[1:]))\n"
    command = [sys.executable, "-c", hour, "calibrate", "apply", str(fit), str(test[1]), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command + ["--overwrite"] * overwrite, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(tmp_path.glob(f".out.*.partial/.*/*{ENDING}")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 128 + number, printed
    assert "Traceback" not in printed
    assert contents(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_a_full_disk_is_named(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_folder(train, method=method)
    fit = train[1] / f"posthoc_{method}.json"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        assert main(["calibrate", "apply", str(fit), str(test[1]), "-o", str(tmp_path / "out")]) == 1
        printed = capsys.readouterr().err
        assert main(["calibrate", "fit", *map(str, train), "-o", str(tmp_path / "fit.json")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"'{tmp_path / 'out'}" in printed
    assert f"File too large: '{tmp_path / 'fit.json'}'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test", "train"]


@pytest.mark.parametrize("length", [240, 248])
def test_long_case_names(train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, length: int) -> None:
    name = "x" * length
    write_case(*test, name, *known_case(2.5, 20), regions=False)
    for method in ("temperature", "vector"):
        fit_folder(train, method=method)
        applied = apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / method)
        assert applied.skipped == []
        assert np.isfinite(probabilities(tmp_path / method, name)).all()


def test_unreadable_files_are_not_called_missing(
    train: tuple[Path, Path], test: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_folder(train)
    (test[1] / "x.npz").unlink()
    (test[1] / "x.npz").symlink_to(test[1] / "x.npz")
    (test[1] / "y.npz").unlink()
    applied = apply_folder(train[1] / "posthoc_temperature.json", test[1], tmp_path / "out")
    assert [entry.reason for entry in applied.skipped] == [
        f"{test[1] / 'x.npz'} cannot be read: Too many levels of symbolic links.",
        f"{test[1] / 'y.npz'} does not exist.",
    ]
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    assert main(["calibrate", "apply", str(tmp_path / "loop.json"), str(test[1]), "-o", str(tmp_path / "out2")]) == 1
    assert "loop.json cannot be read: Too many levels of symbolic links." in capsys.readouterr().err
