"""Splits: what is drawn, where it goes, and what is refused."""

import json
from pathlib import Path

import pytest
from nnunetv2.utilities.crossval_split import generate_crossval_split

from nnunet_nacl.cli import main
from nnunet_nacl.paper.datasets import split

CASES = tuple(f"patient{number:03d}_frame{frame:02d}" for number in range(1, 11) for frame in (1, 12))


def write_dataset(folder: Path, cases: tuple[str, ...] = CASES, *, ending: str = ".nii.gz", **more: object) -> Path:
    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / part).mkdir(parents=True)
    for case in cases:
        for channel in range(2):
            (folder / "imagesTr" / f"{case}_{channel:04d}{ending}").write_text(f"{case} {channel}")
        (folder / "labelsTr" / f"{case}{ending}").write_text(case)
    (folder / "imagesTs" / f"unlabelled_0000{ending}").write_text("")
    labels = {"labels": {"background": 0, "RV": 1}, "channel_names": {"0": "MRI", "1": "MRI"}}
    description = {**labels, "numTraining": len(cases), "file_ending": ending, **more}
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


@pytest.fixture
def acdc(nnunet: Path) -> Path:
    return write_dataset(nnunet / "raw" / "Dataset027_ACDC")


def cases_in(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".nii.gz") for path in folder.iterdir())


def test_a_test_set(acdc: Path, nnunet: Path) -> None:
    before = sorted(acdc.rglob("*"))
    (folder,) = split(27, test=4, output_id=127)
    assert folder == nnunet / "raw" / "Dataset127_ACDC"
    assert sorted(acdc.rglob("*")) == before
    test, training = cases_in(folder / "labelsTs"), cases_in(folder / "labelsTr")
    assert len(test) == 4
    assert sorted(test + training) == sorted(CASES)
    for part, names in (("Tr", training), ("Ts", test)):
        assert cases_in(folder / f"images{part}") == [f"{name}_{c:04d}" for name in names for c in range(2)]
        for file in (f"images{part}/{names[0]}_0001.nii.gz", f"labels{part}/{names[0]}.nii.gz"):
            assert (folder / file).samefile(acdc / file.replace("Ts/", "Tr/"))
    old, new = (json.loads((path / "dataset.json").read_text()) for path in (acdc, folder))
    assert new == {**old, "numTraining": 16, "split_by": "nnunet_nacl"}
    assert sorted((nnunet / "raw").iterdir()) == [acdc, folder]


@pytest.mark.usefixtures("acdc")
def test_the_same_split_everywhere() -> None:
    """Written down once: what users have drawn must not change with Python, the machine or our code."""
    (folder,) = split(27, test=3, output_id=127)
    assert cases_in(folder / "labelsTs") == ["patient001_frame01", "patient005_frame12", "patient007_frame01"]
    folder, file = split("Dataset027_ACDC", test="20%", output_id=128, val=1, by_patient=True)
    both = ("patient003", "patient006")
    assert cases_in(folder / "labelsTs") == [f"{patient}_frame{frame}" for patient in both for frame in ("01", "12")]
    (fold,) = json.loads(file.read_text())
    assert fold["val"] == ["patient007_frame01", "patient007_frame12"]


@pytest.mark.usefixtures("acdc")
@pytest.mark.parametrize("by_patient", [[], [r"t(\d{3})"]])
def test_no_patient_is_in_two_sets(nnunet: Path, by_patient: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--test", "30%", "-o", "127", "--val", "2", "--by_patient", *by_patient]
    assert main(["paper", "split", "-d", "27", *options]) == 0
    folder = nnunet / "raw" / "Dataset127_ACDC"
    file = nnunet / "preprocessed" / "Dataset127_ACDC" / "splits_final.json"
    assert capsys.readouterr().out == f"Wrote {folder}\nWrote {file}\n"
    (fold,) = json.loads(file.read_text())
    sets = [cases_in(folder / "labelsTs"), fold["val"], fold["train"]]
    assert [len(cases) for cases in sets] == [6, 4, 10]
    patients = [{case.partition("_")[0] for case in cases} for cases in sets]
    assert [len(names) for names in patients] == [3, 2, 5]


@pytest.mark.usefixtures("acdc")
def test_folds() -> None:
    """nnU-Net's own folds, if each case is one patient; and with as many folds as patients, one is left out."""
    (file,) = split(27, folds=5)
    assert json.loads(file.read_text()) == generate_crossval_split(sorted(CASES), seed=12345, n_splits=5)
    file.unlink()
    (file,) = split(27, folds=10, by_patient=True)
    folds = json.loads(file.read_text())
    assert sorted(fold["val"] for fold in folds) == [
        [first, second] for first, second in zip(CASES[::2], CASES[1::2], strict=True)
    ]
    assert all(sorted(fold["train"] + fold["val"]) == sorted(CASES) for fold in folds)
    file.unlink()
    folder, file = split(27, test=4, output_id=127, folds=16)
    folds = json.loads(file.read_text())
    assert sorted(case for fold in folds for case in fold["val"]) == cases_in(folder / "labelsTr")


def test_other_files_of_nnunet(nnunet: Path) -> None:
    """Spacings of TIFF files lie beside them; MSD's dataset.json counts test cases."""
    source = write_dataset(nnunet / "raw" / "Dataset001_A", ("a", "b"), ending=".tif", numTest=9)
    for case in ("a", "b"):
        (source / "imagesTr" / f"{case}.json").write_text('{"spacing": [1, 1, 1]}')
    (source / "splits_final.json").write_text("[]")
    (folder,) = split(1, test="50%", output_id=2)
    (test,) = [path.name.removesuffix(".tif") for path in (folder / "labelsTs").iterdir()]
    assert (folder / "imagesTs" / f"{test}.json").is_file()
    assert not (folder / "splits_final.json").exists()
    found = json.loads((folder / "dataset.json").read_text())
    assert found["numTest"] == 1


def test_files_that_lie_elsewhere(nnunet: Path) -> None:
    """``dataset`` lists them; in the new data set they have nnU-Net's names."""
    source = write_dataset(nnunet / "raw" / "Dataset001_A", ("x", "y"))
    files = {}
    for name, case in (("a", "x"), ("b", "y")):
        images = [f"imagesTr/{case}_{channel:04d}.nii.gz" for channel in range(2)]
        files[name] = {"images": images, "label": str(source / "labelsTr" / f"{case}.nii.gz")}
    described = json.loads((source / "dataset.json").read_text())
    (source / "dataset.json").write_text(json.dumps({**described, "dataset": files}))
    (folder,) = split(1, test=1, output_id=1001)
    assert folder.name == "Dataset1001_A"
    for part, count in (("imagesTr", 2), ("labelsTr", 1), ("imagesTs", 2), ("labelsTs", 1)):
        names = cases_in(folder / part)
        assert len(names) == count
        assert {name[0] for name in names} <= {"a", "b"}
    (test,) = cases_in(folder / "labelsTs")
    assert (folder / "imagesTs" / f"{test}_0001.nii.gz").read_text() == f"{'xy'['ab'.index(test)]} 1"
    assert "dataset" not in json.loads((folder / "dataset.json").read_text())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"test": 20}, r"test: expected 1 to 19 cases or a share such as \"20%\", with one left .*; got 20\."),
        *(
            (
                {"test": 1, "by_patient": wrong},
                r"by_patient: .* case patient001_frame01 does not tell its patient; .* first",
            )
            for wrong in ("(", "patient", "^x(.+)_")
        ),
        ({"test": 4, "output_id": None}, r"Expected --test with a new id"),
        ({"val": 1}, r"--test with a new id"),
        ({"output_id": None}, r"or --val, or --folds"),
        ({"folds": 5, "val": 2, "test": 4}, r"or --val, or --folds"),
    ],
)
@pytest.mark.usefixtures("acdc")
def test_what_cannot_be_drawn_leaves_nothing(wrong: dict[str, object], message: str, nnunet: Path) -> None:
    before = sorted(nnunet.rglob("*"))
    with pytest.raises(ValueError, match=message):
        split(27, **{"output_id": 127, **wrong})  # type: ignore[arg-type]
    assert sorted(nnunet.rglob("*")) == before


@pytest.mark.usefixtures("acdc")
def test_nothing_is_added_to_what_an_interrupted_split_left() -> None:
    """Another number of test cases would leave some of them among the training cases, too."""
    (folder,) = split(27, test=2, output_id=127)
    (folder / "dataset.json").unlink()  # written last
    with pytest.raises(FileExistsError, match=r"Dataset127_ACDC exists already: .* or remove it"):
        split(27, test=5, output_id=127)


def test_what_exists_is_kept(acdc: Path) -> None:
    (file,) = split(27, val=2)
    before = file.read_text()
    for existing in (file, acdc / "splits_final.json"):
        existing.write_text(before)
        with pytest.raises(FileExistsError, match=f"{existing} exists already; models may have been trained by it"):
            split(27, val=3)
        assert existing.read_text() == before
        existing.unlink()
