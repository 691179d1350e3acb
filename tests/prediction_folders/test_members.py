"""Several members' probabilities combined."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from nnunetv2.ensembling.ensemble import ensemble_folders

from nnunet_nacl.cli import main
from nnunet_nacl.confidence import mutual_information
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.prediction_folders import PredictionFolder
from tests.prediction_folders.generated import (
    LABELS,
    REGIONS,
    SHAPE,
    geometry,
    names,
    probabilities,
    random_probabilities,
    random_regions,
    read,
    write_folder,
)


def combine(folders: list[Path], output: Path, *options: object) -> int:
    return main(["members", "combine", *map(str, folders), "-o", str(output), "-np", "1", *map(str, options)])


def made(labels: dict[str, object], member: int, case: int) -> np.ndarray:
    return (random_regions if labels is REGIONS else random_probabilities)(10 * case + member)


def write_members(folder: Path, labels: dict[str, object] = LABELS, **options: str) -> list[Path]:
    return [
        write_folder(
            folder / f"fold_{member}",
            {name: made(labels, member, case) for case, name in enumerate("ab")},
            labels=labels,
            **options,
        )
        for member in range(3)
    ]


@pytest.mark.parametrize("labels", [LABELS, REGIONS], ids=["classes", "regions"])
def test_as_nnunet_does(tmp_path: Path, labels: dict[str, object]) -> None:
    """Probabilities and segmentations are those of nnUNetv2_ensemble, to the last bit."""
    members = write_members(tmp_path, labels)
    assert combine(members, tmp_path / "ours") == 0
    ensemble_folders([str(member) for member in members], str(tmp_path / "nnunets"), True, 1)
    for name in "ab":
        ours, nnunets = (probabilities(tmp_path / folder, name) for folder in ("ours", "nnunets"))
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, nnunets)
        file = f"{name}.nii.gz"
        np.testing.assert_array_equal(read(tmp_path / "ours" / file), read(tmp_path / "nnunets" / file))
        assert geometry(tmp_path / "ours" / file) == geometry(tmp_path / "nnunets" / file)
    predictions = PredictionFolder.read(tmp_path / "ours")
    for case in predictions.cases:
        SavedCase(case, predictions.data_set).probabilities()  # the segmentation is their argmax
    assert names(tmp_path / "ours") == names(members[0]) | {"members.json", "members_agreement.csv"}


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return 2 * np.count_nonzero(a & b) / (np.count_nonzero(a) + np.count_nonzero(b))


def test_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    assert combine(members, tmp_path / "out") == 0
    with (tmp_path / "out" / "members_agreement.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["case"], row["structure"]) for row in rows] == [
        ("a", "liver"), ("a", "left kidney"), ("b", "liver"), ("b", "left kidney"),
    ]  # fmt: skip
    for row in rows:
        label = LABELS[row["structure"]]
        masks = [read(member / f"{row['case']}.nii.gz") == label for member in members]
        expected = np.mean([dice(masks[i], masks[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
        assert float(row["mean_pairwise_dice"]) == pytest.approx(expected, abs=1e-6)
    mean = np.mean([float(row["mean_pairwise_dice"]) for row in rows if row["structure"] == "liver"])
    assert f"Mean agreement of the members: liver {mean:.3f}, left kidney 0." in capsys.readouterr().out


def test_mutual_information(tmp_path: Path) -> None:
    members = write_members(tmp_path)
    assert combine(members, tmp_path / "out", "--mutual_information") == 0
    assert names(tmp_path / "out" / "mutual_information") == {"a.nii.gz", "b.nii.gz"}
    for case, name in enumerate("ab"):
        stack = np.stack([made(LABELS, member, case) for member in range(3)]).astype(np.float64)
        file = tmp_path / "out" / "mutual_information" / f"{name}.nii.gz"
        np.testing.assert_allclose(read(file), mutual_information(stack), atol=1e-6)
        assert geometry(file) == geometry(members[0] / f"{name}.nii.gz")
    assert [case.name for case in PredictionFolder.read(tmp_path / "out").cases] == ["a", "b"]


def test_tiff_keeps_its_spacing(tmp_path: Path) -> None:
    members = write_members(tmp_path, ending=".tif", reader="Tiff3DIO")
    assert combine(members, tmp_path / "out", "--mutual_information") == 0
    for folder in (tmp_path / "out", tmp_path / "out" / "mutual_information"):
        assert json.loads((folder / "a.json").read_text()) == {"spacing": [2.0, 0.5, 0.75]}


def test_members_that_are_the_same_agree(tmp_path: Path) -> None:
    first = write_folder(tmp_path / "one", {"a": random_probabilities(0)})
    shutil.copytree(first, tmp_path / "two")
    assert combine([first, tmp_path / "two"], tmp_path / "out", "--mutual_information") == 0
    assert ",1.000000" in (tmp_path / "out" / "members_agreement.csv").read_text()
    np.testing.assert_array_equal(probabilities(tmp_path / "out", "a"), random_probabilities(0))
    assert np.abs(read(tmp_path / "out" / "mutual_information" / "a.nii.gz")).max() < 1e-6


def test_bad_cases_are_named_and_the_others_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {name: random_probabilities(seed) for seed, name in enumerate("abcdef")}
    members = [write_folder(tmp_path / f"fold_{member}", cases) for member in range(2)]
    (members[1] / "a.npz").unlink()
    for ending in ("npz", "nii.gz"):
        (members[0] / f"b.{ending}").unlink()
    write_folder(tmp_path / "smaller", {"c": random_probabilities(2, shape=(5, 12, 13))})
    for file in ("c.npz", "c.nii.gz"):
        shutil.copyfile(tmp_path / "smaller" / file, members[1] / file)
    np.savez_compressed(members[1] / "d.npz", probabilities=np.full((3, *SHAPE), 0.5, np.float32))
    shutil.copyfile(members[1] / "f.npz", members[1] / "e.npz")
    assert combine(members, tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert "Combined 1 of 6 cases into" in printed
    assert f"Not combined: a: {members[1] / 'a.npz'} does not exist." in printed
    assert f"Not combined: b: {members[0] / 'b.npz'} does not exist." in printed
    assert f"c.npz: the shape (3, 5, 12, 13) is not that of {members[0] / 'c.npz'}, (3, 5, 12, 14)." in printed
    assert f"Not combined: d: {members[1] / 'd.npz'}: the probabilities of a voxel must sum to 1" in printed
    assert f"Not combined: e: {members[1] / 'e.npz'}: the segmentation e.nii.gz" in printed
    assert names(tmp_path / "out") & {f"{name}.npz" for name in "abcdef"} == {"f.npz"}
    skipped = json.loads((tmp_path / "out" / "members.json").read_text())["skipped"]
    assert [entry["case"] for entry in skipped] == [*"abcde"]


def test_other_folders_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_folder(tmp_path / "first", {"a": random_probabilities(0)})
    others = {
        "other_labels": write_folder(
            tmp_path / "other_labels", {"a": random_probabilities(0)}, labels={"background": 0, "liver": 1, "spleen": 2}
        ),
        "other_cases": write_folder(tmp_path / "other_cases", {"z": random_probabilities(0)}),
        "other_format": write_folder(tmp_path / "other_format", {"a": random_probabilities(0)}, ending=".mha"),
    }
    expected = {
        "other_labels": "other_labels: its labels {'background': 0, 'liver': 1, 'spleen': 2} are not those of",
        "other_cases": f"other_cases has none of the cases of {first}.",
        "other_format": "other_format: its segmentations are .mha files, those of",
    }
    before = names(tmp_path)
    for name, folder in others.items():
        assert combine([first, folder], tmp_path / "out") == 1
        assert expected[name] in capsys.readouterr().err
    assert combine([first], tmp_path / "out") == 1
    assert "members: expected at least 2 folders; got 1." in capsys.readouterr().err
    assert combine([first, tmp_path / "first" / ".." / "first"], tmp_path / "out") == 1
    assert "first is given twice." in capsys.readouterr().err
    assert combine([first, tmp_path / "nowhere"], tmp_path / "out") == 1
    assert f"{tmp_path / 'nowhere'} is not a folder." in capsys.readouterr().err
    assert names(tmp_path) == before


def test_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    assert combine(members, tmp_path / "out") == 0
    assert combine(members[:2], tmp_path / "out") == 1
    assert "exists already" in capsys.readouterr().err
    assert combine(members[:2], tmp_path / "out", "--overwrite") == 0
    assert len(json.loads((tmp_path / "out" / "members.json").read_text())["members"]) == 2
    assert combine(members, members[0], "--overwrite") == 1
    assert "was not made by this command" in capsys.readouterr().err


def test_many_structures_are_not_all_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"background": 0, **{f"organ {number}": number for number in range(1, 8)}}
    members = [
        write_folder(tmp_path / f"m{seed}", {"a": random_probabilities(seed, classes=8)}, labels=labels)
        for seed in range(2)
    ]
    assert combine(members, tmp_path / "out") == 0
    with (tmp_path / "out" / "members_agreement.csv").open(newline="") as stream:
        values = {row["structure"]: float(row["mean_pairwise_dice"]) for row in csv.DictReader(stream)}
    lowest, highest = min(values, key=lambda name: values[name]), max(values.values())
    printed = capsys.readouterr().out
    assert f"Mean agreement of the members: {lowest} {values[lowest]:.3f} (lowest) to organ " in printed
    assert f" {highest:.3f} (highest of 7). That of each case" in printed


def test_members_that_lie_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    image = sitk.ReadImage(str(members[1] / "a.nii.gz"))
    image.SetOrigin((0.0, 0.0, 0.0))
    sitk.WriteImage(image, str(members[1] / "a.nii.gz"))
    assert combine(members, tmp_path / "out") == 1
    assert f"Not combined: a: {members[1] / 'a.nii.gz'} has the origin (0, 0, 0) mm, not (" in capsys.readouterr().out
    assert combine(members, tmp_path / "out", "--overwrite", "--ignore_geometry") == 0
    arguments = ["-o", tmp_path / "maps", "-np", 1, "--what", "mutual_information", "--members", *members]
    assert main(["maps", *map(str, [members[0], *arguments])]) == 1
    assert "Not mapped: a: " in capsys.readouterr().out
