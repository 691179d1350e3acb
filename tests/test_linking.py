"""link and unlink in a Python environment made for it, in which nnU-Net then finds the trainers."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from nnunet_nacl import linking
from nnunet_nacl.linking import trainers_path

FIND = (
    "from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as find; "
    "print(find('nnUNetTrainerNACL_weight0p2').recipe.settings)"
)
SHOW = "import os; print(os.environ.get('nnUNet_extTrainer'))"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a site-packages of its own that also sees the packages of the one that the tests run in."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    executable = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    purelib = run(executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(purelib) / "parent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return executable


def run(python: Path, *arguments: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("nnUNet_extTrainer", "PYTHONPATH")}
    done = subprocess.run(
        [str(python), *arguments], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_link_and_unlink(python: Path) -> None:
    ours = str(trainers_path())
    assert run(python, "-c", SHOW).strip() == "None"
    assert "Not linked" in run(python, "-m", "nnunet_nacl.cli", "link", "--remove")

    said = run(python, "-m", "nnunet_nacl.cli", "link")
    assert said.startswith("Wrote ")
    assert linking.PTH_NAME in said
    assert ours in said
    assert "Already linked" in run(python, "-m", "nnunet_nacl.cli", "link")

    assert run(python, "-c", SHOW).strip() == ours
    assert run(python, "-c", SHOW, nnUNet_extTrainer="/mine").strip() == f"/mine{os.pathsep}{ours}"
    once = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {SHOW!r}], text=True))"
    assert run(python, "-c", once).strip() == ours  # not appended again in child processes
    assert "{'weight': 0.2}" in run(python, "-c", FIND)

    assert "Removed " in run(python, "-m", "nnunet_nacl.cli", "link", "--remove")
    assert run(python, "-c", SHOW).strip() == "None"


def test_site_packages_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "pth_file", lambda: tmp_path / "missing" / linking.PTH_NAME)
    with pytest.raises(OSError, match=r"cannot be written .* export nnUNet_extTrainer="):
        linking.link()


def test_a_link_to_another_file_is_replaced_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "pth_file", lambda: tmp_path / linking.PTH_NAME)
    (tmp_path / "precious").write_text("precious")
    linking.pth_file().symlink_to(tmp_path / "precious")
    assert linking.link().startswith("Wrote ")
    assert not linking.pth_file().is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_link_to_a_removed_package_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "pth_file", lambda: tmp_path / linking.PTH_NAME)
    monkeypatch.setattr(linking, "trainers_path", lambda: tmp_path / "gone")
    monkeypatch.delenv("nnUNet_extTrainer", raising=False)
    linking.link()
    exec((tmp_path / linking.PTH_NAME).read_text(), {})
    assert "nnUNet_extTrainer" not in os.environ
