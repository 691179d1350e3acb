"""Several members' probabilities combined."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from nnunetv2.ensembling.ensemble import ensemble_folders

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import CALIBRATED_NAME, PredictionFolder
from nnunet_nacl.use import combine_members
from tests.use.generated import (
    LABELS,
    REGIONS,
    SHAPE,
    geometry,
    names,
    probabilities,
    random_probabilities,
    random_regions,
    read,
    shift,
    true_dice,
    write_folder,
)


def combine(folders: list[Path], output: Path, *options: object) -> int:
    return main(["members", *map(str, folders), "-o", str(output), "-np", "1", *map(str, options)])


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
        maps = [read(member / f"{row['case']}.nii.gz") for member in members]
        expected = np.mean([true_dice(maps[i], maps[j], [label]) for i, j in ((0, 1), (0, 2), (1, 2))])
        assert float(row["mean_pairwise_dice"]) == pytest.approx(expected, abs=1e-6)
    mean = np.mean([float(row["mean_pairwise_dice"]) for row in rows if row["structure"] == "liver"])
    assert f"Mean agreement of the members: liver {mean:.3f}, left kidney 0." in capsys.readouterr().out


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
        "other_format": "other_format has .mha files; ",
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


def test_members_that_lie_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    shift(members[1] / "a.nii.gz")
    assert combine(members, tmp_path / "out") == 1
    assert f"Not combined: a: {members[1] / 'a.nii.gz'} has the origin (" in capsys.readouterr().out
    combine_members(members, tmp_path / "again", num_processes=1, ignore_geometry=True)
    arguments = ["-o", tmp_path / "maps", "-np", 1, "--what", "mutual_information", "--members", *members]
    assert main(["maps", *map(str, [members[0], *arguments])]) == 1
    assert "Not mapped: a: " in capsys.readouterr().out


def test_another_data_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    plans = members[1] / "plans.json"
    plans.write_text(plans.read_text().replace("Dataset001_Toy", "Dataset002_Other"))
    assert combine(members, tmp_path / "out") == 1
    assert "fold_1 is of the data set Dataset002_Other; " in capsys.readouterr().err


def test_no_member_is_replaced(tmp_path: Path) -> None:
    members = write_members(tmp_path)
    assert combine(members[:2], tmp_path / "ens") == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "ens").iterdir()}
    assert combine([tmp_path / "ens", members[2]], tmp_path / "ens", "--overwrite") == 1
    assert {file.name: file.read_bytes() for file in (tmp_path / "ens").iterdir()} == before
    assert combine(members, tmp_path / "ens") == 1
    assert combine(members, tmp_path / "ens", "--overwrite") == 0
    assert len(json.loads((tmp_path / "ens" / "members.json").read_text())["members"]) == 3


def test_the_mean_of_calibrated_members_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is known to be calibrated is not calibrated a second time."""
    members = write_members(tmp_path)
    for member in members[:2]:
        (member / CALIBRATED_NAME).write_text(f'{{"of": "{member.name}"}}')
    assert combine(members[:2], tmp_path / "out") == 0
    assert PredictionFolder.read(tmp_path / "out").is_calibrated
    assert combine(members[1:], tmp_path / "mixed") == 1
    assert "fold_1 is calibrated, and " in capsys.readouterr().err
    assert combine([members[2], *write_members(tmp_path / "more")], tmp_path / "out", "--overwrite") == 0
    assert not PredictionFolder.read(tmp_path / "out").is_calibrated
