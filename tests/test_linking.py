"""link and unlink in a Python environment made for it; nnU-Net finds the trainers by the variable that it then has."""

import os
import subprocess
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as find_trainer

from nnunet_nacl import linking
from nnunet_nacl.linking import trainers_path

SHOW = "import os; print(os.environ.get('nnUNet_extTrainer'))"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a site-packages of its own that also sees the packages of the one that the tests run in."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    executable = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    purelib = run(executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # Folders of packages, without their .pth files: ours may be among them
    packages = [sysconfig.get_path("purelib"), str(Path(linking.__file__).parents[1])]
    (Path(purelib) / "parent.pth").write_text("\n".join(packages))
    return executable


def run(python: Path, *arguments: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("nnUNet_extTrainer", "PYTHONPATH")}
    done = subprocess.run(
        [str(python), *arguments], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_link_and_unlink(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = str(trainers_path())
    assert run(python, "-c", SHOW).strip() == "None"
    said = run(python, "-m", "nnunet_nacl", "link")
    assert said.startswith("Wrote ")
    assert linking.PTH_NAME in said
    assert ours in said
    assert "nnUNetTrainerNACL" in said
    assert said.endswith("Next:\n    nnUNetv2_train DATASET 2d 0 -tr nnUNetTrainerNACL_paperSchedule\n")
    run(python, "-m", "nnunet_nacl", "link")  # again

    linked = run(python, "-c", SHOW).strip()
    assert linked == ours
    assert run(python, "-c", SHOW, nnUNet_extTrainer="/mine").strip() == f"/mine{os.pathsep}{ours}"
    assert run(python, "-c", SHOW, nnUNet_extTrainer=ours).strip() == ours  # as in child processes
    monkeypatch.setenv("nnUNet_extTrainer", linked)
    assert find_trainer("nnUNetTrainerNACL_weight0p2").recipe.settings == {"weight": 0.2}

    assert "Removed " in run(python, "-m", "nnunet_nacl", "link", "--remove")
    assert run(python, "-c", SHOW).strip() == "None"


def test_installing_does_not_link() -> None:
    files = metadata.files("nnunet-nacl")
    assert files
    assert linking.PTH_NAME not in {file.name for file in files}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What link writes."""
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "site-packages"))
    return tmp_path / "site-packages" / linking.PTH_NAME


def test_site_packages_that_cannot_be_written(file: Path) -> None:
    with pytest.raises(OSError, match=r"site-packages.* export nnUNet_extTrainer=") as raised:
        linking.link()
    line = str(raised.value).partition("start-up file: ")[2]
    for before, after in (("", ""), ("/mine", "/mine:")):
        shown = subprocess.run(
            ["sh", "-c", f"{line}; printf %s \"$nnUNet_extTrainer\""], env={"nnUNet_extTrainer": before},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert shown.stdout == f"{after}{trainers_path()}"
    file.parent.mkdir()
    file.symlink_to(file.with_name("precious"))
    linking.link()
    assert not file.is_symlink()  # nor was what it points to written
    assert list(file.parent.iterdir()) == [file]


def test_a_link_to_a_removed_package_does_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "trainers_path", lambda: file.parent / "gone")
    monkeypatch.delenv("nnUNet_extTrainer", raising=False)
    file.parent.mkdir()
    linking.link()
    exec(file.read_text(), {})
    assert "nnUNet_extTrainer" not in os.environ
