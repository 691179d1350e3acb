"""Splits: what is drawn, where it goes, and what is refused."""

import json
from pathlib import Path

import pytest

from nnunet_nacl.datasets import _split, split_folds, split_test, splits_file

PATIENTS = tuple(f"patient{number:03d}" for number in range(1, 11))
CASES = tuple(f"{patient}_frame{frame:02d}" for patient in PATIENTS for frame in (1, 12))
EXPECTED_CASES = ["patient001_frame01", "patient005_frame12", "patient007_frame01"]
EXPECTED_PATIENTS = ["patient003_frame01", "patient003_frame12", "patient006_frame01", "patient006_frame12"]
EXPECTED_SEED_1 = ["patient006_frame01", "patient006_frame12", "patient009_frame01", "patient009_frame12"]
EXPECTED_VAL = ["patient007_frame01", "patient007_frame12"]


def write_dataset(
    folder: Path, cases: tuple[str, ...] = CASES, *, channels: int = 2, ending: str = ".nii.gz", **more: object
) -> Path:
    for part in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / part).mkdir(parents=True)
    for case in cases:
        for channel in range(channels):
            (folder / "imagesTr" / f"{case}_{channel:04d}{ending}").write_text(f"{case} {channel}")
        (folder / "labelsTr" / f"{case}{ending}").write_text(case)
    (folder / "imagesTs" / f"unlabelled_0000{ending}").write_text("")
    names = {str(channel): "MRI" for channel in range(channels)}
    labels = {"background": 0, "RV": 1}
    description = {"channel_names": names, "labels": labels, "numTraining": len(cases), "file_ending": ending, **more}
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


@pytest.fixture
def acdc(nnunet: Path) -> Path:
    return write_dataset(nnunet / "raw" / "Dataset027_ACDC")


def cases_in(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".nii.gz") for path in folder.iterdir())


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_test_set(acdc: Path, nnunet: Path) -> None:
    before = tree(acdc)
    folder = split_test(27, test=4, output_id=127)
    assert folder == nnunet / "raw" / "Dataset127_ACDC"
    assert tree(acdc) == before
    test = cases_in(folder / "labelsTs")
    training = cases_in(folder / "labelsTr")
    assert len(test) == 4
    assert sorted(test + training) == sorted(CASES)
    for part, names in (("Tr", training), ("Ts", test)):
        assert cases_in(folder / f"images{part}") == [f"{name}_{c:04d}" for name in names for c in range(2)]
        for name in names:
            assert (folder / f"images{part}" / f"{name}_0001.nii.gz").read_text() == f"{name} 1"
            assert (folder / f"labels{part}" / f"{name}.nii.gz").read_text() == name
    assert (folder / "labelsTs" / f"{test[0]}.nii.gz").samefile(acdc / "labelsTr" / f"{test[0]}.nii.gz")
    old, new = (json.loads((path / "dataset.json").read_text()) for path in (acdc, folder))
    assert new == {**old, "numTraining": 16, "split_by": "nnunet_nacl"}
    assert sorted((nnunet / "raw").iterdir()) == [acdc, folder]


@pytest.mark.usefixtures("acdc")
def test_the_same_split_everywhere() -> None:
    """Written down once: what users have drawn must not change with Python, the machine or our code."""
    assert cases_in(split_test(27, test=3, output_id=127) / "labelsTs") == EXPECTED_CASES
    by_patient = split_test("Dataset027_ACDC", test="20%", output_id=128, by_patient=True, seed=0)
    assert cases_in(by_patient / "labelsTs") == EXPECTED_PATIENTS
    other_seed = split_test(27, test=2, output_id=129, by_patient=True, seed=1)
    assert cases_in(other_seed / "labelsTs") == EXPECTED_SEED_1
    (fold,) = json.loads(split_folds(128, val=1, by_patient=True).read_text())
    assert fold["val"] == EXPECTED_VAL


@pytest.mark.usefixtures("acdc")
@pytest.mark.parametrize("by_patient", [True, r"^(patient\d+)_", r"t(\d{3})"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_patient_is_in_two_sets(by_patient: bool | str, seed: int) -> None:
    folder = split_test(27, test=3, output_id=127, by_patient=by_patient, seed=seed)
    (fold,) = json.loads(split_folds(127, val=2, by_patient=by_patient, seed=seed).read_text())
    sets = [cases_in(folder / "labelsTs"), fold["val"], fold["train"]]
    assert [len(cases) for cases in sets] == [6, 4, 10]
    patients = [{case.partition("_")[0] for case in cases} for cases in sets]
    assert [len(names) for names in patients] == [3, 2, 5]
    assert set().union(*patients) == set(PATIENTS)


def test_a_case_more_does_not_shuffle_the_others(nnunet: Path) -> None:
    drawn = []
    for number, cases in ((1, CASES), (2, (*CASES, "patient011_frame01"))):
        write_dataset(nnunet / "raw" / f"Dataset00{number}_A", cases)
        folder = split_test(number, test=10, output_id=number + 10)
        drawn.append(set(cases_in(folder / "labelsTs")))
    assert len(drawn[0] - drawn[1]) <= 1


@pytest.mark.usefixtures("acdc")
def test_folds(nnunet: Path) -> None:
    file = split_folds(27, folds=5, by_patient=True)
    assert file == nnunet / "preprocessed" / "Dataset027_ACDC" / "splits_final.json"
    splits = json.loads(file.read_text())
    assert len(splits) == 5
    assert sorted(case for fold in splits for case in fold["val"]) == sorted(CASES)
    for fold in splits:
        assert sorted(fold["train"] + fold["val"]) == sorted(CASES)
        assert len(fold["val"]) == 4
        assert not {case[:10] for case in fold["val"]} & {case[:10] for case in fold["train"]}


def test_leave_one_out(nnunet: Path) -> None:
    write_dataset(nnunet / "raw" / "Dataset018_MRBrainS18", ("a", "b", "c"))
    splits = json.loads(split_folds(18, folds=3).read_text())
    assert sorted(fold["val"] for fold in splits) == [["a"], ["b"], ["c"]]


def test_other_files_of_nnunet(nnunet: Path) -> None:
    """Spacings of TIFF files lie beside them; MSD's dataset.json counts test cases."""
    source = write_dataset(nnunet / "raw" / "Dataset001_A", ("a", "b"), ending=".tif", numTest=9)
    for case in ("a", "b"):
        (source / "imagesTr" / f"{case}.json").write_text('{"spacing": [1, 1, 1]}')
    (source / "splits_final.json").write_text("[]")
    folder = split_test(1, test="50%", output_id=2)
    (test,) = [path.name.removesuffix(".tif") for path in (folder / "labelsTs").iterdir()]
    assert (folder / "imagesTs" / f"{test}.json").is_file()
    assert not (folder / "splits_final.json").exists()
    assert json.loads((folder / "dataset.json").read_text())["numTest"] == 1


@pytest.mark.parametrize(
    ("amount", "by_patient", "message"),
    [
        (20, False, r"test=20 would draw 20 of 20 cases; expected at least one drawn and one left"),
        (10, True, r"test=10 would draw 10 of 10 patients; "),
        ("2%", False, r"test=2% would draw 0 of 20 cases; "),
        (0, False, r"test=0 would draw 0 of 20 cases; "),
        ("a few", False, r"test must be a number such as 20 or a share such as \"20%\", got 'a few'\."),
        (0.2, False, r"test must be a number such as 20 or a share such as \"20%\", got 0\.2\."),
        (-1, False, r"got -1\."),
        (1, "patient", r"by_patient='patient' has no group; expected parentheses around the patient\."),
        (1, "(", r"by_patient='\(' is no regular expression: "),
        (1, r"(patient00\d)", r"The name of case patient010_frame01 does not tell its patient; expected it to match '"),
        (1, r"(frame02)?", r"The name of case patient001_frame01 does not tell its patient"),
    ],
)
def test_what_cannot_be_drawn(amount: object, by_patient: bool | str, message: str, acdc: Path, nnunet: Path) -> None:
    with pytest.raises(ValueError, match=message):
        split_test(27, test=amount, output_id=127, by_patient=by_patient)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message.replace("test", "val")):
        split_folds(27, val=amount, by_patient=by_patient)  # type: ignore[arg-type]
    assert list((nnunet / "raw").iterdir()) == [acdc]
    assert list((nnunet / "preprocessed").iterdir()) == []


def test_names_without_a_frame(nnunet: Path) -> None:
    write_dataset(nnunet / "raw" / "Dataset001_A", ("a", "b"))
    with pytest.raises(ValueError, match=r"The name of case a does not tell its patient; expected .* PATIENT_FRAME\."):
        split_test(1, test=1, output_id=2, by_patient=True)


@pytest.mark.usefixtures("acdc")
@pytest.mark.parametrize("folds", [0, 1, 21])
def test_numbers_of_folds(folds: int) -> None:
    with pytest.raises(ValueError, match=rf"folds must be from 2 to the 20 cases that there are, got {folds}\."):
        split_folds(27, folds=folds)


@pytest.mark.usefixtures("acdc")
@pytest.mark.parametrize("arguments", [{}, {"val": 2, "folds": 5}])
def test_either_val_or_folds(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"Expected either val or folds, got val="):
        split_folds(27, **arguments)  # type: ignore[arg-type]


def test_what_exists_is_kept(acdc: Path) -> None:
    with pytest.raises(FileExistsError, match=r"Dataset027_ACDC exists already: choose another id than 27"):
        split_test(27, test=1, output_id=27)
    file = split_folds(27, val=2)
    before = file.read_text()
    with pytest.raises(FileExistsError, match=r"splits_final\.json exists already; models may have been trained by it"):
        split_folds(27, val=3)
    assert file.read_text() == before
    file.unlink()
    (acdc / "splits_final.json").write_text("[]")
    with pytest.raises(FileExistsError, match=r"raw.*splits_final\.json exists already"):
        split_folds(27, val=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"folds": 99}, "folds must be from 2 to the 16 cases"),
        ({"val": 16}, "val=16 would draw 16"),
        ({"val": "a"}, "val must"),
    ],
)
def test_a_split_that_fails_leaves_nothing(nnunet: Path, wrong: dict[str, object], message: str) -> None:
    acdc = write_dataset(nnunet / "raw" / "Dataset027_ACDC")
    before = sorted(nnunet.rglob("*"))
    with pytest.raises(ValueError, match=message):
        split_test(27, test=4, output_id=127, **wrong)  # type: ignore[arg-type]
    assert sorted(nnunet.rglob("*")) == before
    (nnunet / "preprocessed" / "Dataset127_ACDC").mkdir()
    (nnunet / "preprocessed" / "Dataset127_ACDC" / "splits_final.json").write_text("[]")
    with pytest.raises(FileExistsError, match=r"splits_final\.json exists already"):
        split_test(27, test=4, output_id=127, val=1)
    assert not (nnunet / "raw" / "Dataset127_ACDC").exists()
    assert acdc.is_dir()


def test_an_interrupted_split_leaves_nothing(acdc: Path, nnunet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(nnunet.rglob("*"))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_split, "link_or_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split_test(27, test=4, output_id=127, folds=3)
    assert sorted(nnunet.rglob("*")) == before
    assert acdc.is_dir()


def test_both_are_what_each_alone_would_be(acdc: Path, nnunet: Path) -> None:
    split_test(acdc.name, test=4, output_id=127)
    alone = split_folds(127, folds=3).read_text()
    folder = split_test(27, test=4, output_id=128, folds=3)
    assert splits_file(folder) == nnunet / "preprocessed" / "Dataset128_ACDC" / "splits_final.json"
    assert splits_file(folder).read_text() == alone


def test_overwrite(acdc: Path, nnunet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No earlier test case stays among the training cases."""
    folder = split_test(27, test=4, output_id=127, val=2)
    before = tree(nnunet)
    with pytest.raises(FileExistsError, match="exists already"):
        split_test(27, test=5, output_id=127)
    with pytest.raises(FileExistsError, match="was not made by this command"):
        split_test(127, test=4, output_id=27, overwrite=True)
    with pytest.raises(ValueError, match="would draw"):
        split_test(27, test=99, output_id=127, overwrite=True)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_split, "link_or_copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            split_test(27, test=5, output_id=127, val=3, overwrite=True)
    assert tree(nnunet) == before
    split_test(27, test=5, output_id=127, val=3, overwrite=True)
    test, training = (cases_in(folder / f"labels{part}") for part in ("Ts", "Tr"))
    assert (len(test), len(training)) == (5, 15)
    assert not set(test) & set(training)
    (fold,) = json.loads(splits_file(folder).read_text())
    assert len(fold["val"]) == 3
    assert acdc.is_dir()
