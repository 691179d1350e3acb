"""Several members' probabilities combined."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from nnunetv2.ensembling.ensemble import ensemble_folders

from nnunet_nacl.calibrate import Fit, Temperature
from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.nnunet import CALIBRATED_NAME, Model, Predictions
from nnunet_nacl.use import combine_members, decode_folder, mean_pairwise_dice
from tests.generated import (
    SHAPE,
    STRUCTURES,
    geometry,
    names,
    probabilities,
    random_case,
    random_folder,
    read,
    shift,
    true_dice,
    write_predictions,
)


def write_members(folder: Path, cases: str = "ab", regions: bool = False) -> list[Path]:
    return [random_folder(folder / f"fold_{member}", cases, regions, first=10 * member) for member in range(3)]


@pytest.mark.parametrize("regions", [False, True])
def test_as_nnunet_does(tmp_path: Path, regions: bool) -> None:
    """Probabilities and segmentations are those of nnUNetv2_ensemble, to the last bit; agreement is that of a loop."""
    members = write_members(tmp_path, regions=regions)
    said = combine_members(members, tmp_path / "ours").summary()
    ensemble_folders([str(member) for member in members], str(tmp_path / "nnunets"), True, 1)
    for name in "ab":
        ours, nnunets = (probabilities(tmp_path / folder, name) for folder in ("ours", "nnunets"))
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, nnunets)
        file = f"{name}.nii.gz"
        np.testing.assert_array_equal(read(tmp_path / "ours" / file), read(tmp_path / "nnunets" / file))
        assert geometry(tmp_path / "ours" / file) == geometry(tmp_path / "nnunets" / file)
    predictions = Predictions.of_folder(None, tmp_path / "ours")
    for case in predictions.cases:
        SavedCase(case, predictions.data_set).probabilities()  # the segmentation is their argmax
    assert names(tmp_path / "ours") == names(members[0]) | {"members.json", "members_agreement.csv"}
    with (tmp_path / "ours" / "members_agreement.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 4
    for row in rows:
        maps = [read(member / f"{row['case']}.nii.gz") for member in members]
        pairs = [(maps[i], maps[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        expected = np.mean([true_dice(*pair, STRUCTURES[regions][row["structure"]]) for pair in pairs])
        assert float(row["mean_pairwise_dice"]) == pytest.approx(expected, abs=1e-6)
    first = rows[0]["structure"]
    mean = np.mean([float(row["mean_pairwise_dice"]) for row in rows if row["structure"] == first])
    assert f"Mean agreement of the members: {first} {mean:.3f}, " in said


def test_bad_cases_are_named_and_the_others_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = [random_folder(tmp_path / f"fold_{member}", "abcdefg") for member in range(2)]
    (members[1] / "a.npz").unlink()
    for ending in ("npz", "nii.gz"):
        (members[0] / f"b.{ending}").unlink()
    write_predictions(tmp_path / "smaller", {"c": random_case(2, shape=(5, 12, 13))})
    for file in ("c.npz", "c.nii.gz"):
        shutil.copyfile(tmp_path / "smaller" / file, members[1] / file)
    np.savez_compressed(members[1] / "d.npz", probabilities=np.full((3, *SHAPE), 0.5, np.float32))
    shutil.copyfile(members[1] / "f.npz", members[1] / "e.npz")
    shift(members[1] / "g.nii.gz")
    assert main(["members", *map(str, members), "-o", str(tmp_path / "out")]) == 1
    printed = "".join(capsys.readouterr())
    for said in (
        "Combined 1 of 7 cases into",
        f"skipped a: {members[1] / 'a.npz'} does not exist",
        f"skipped b: {members[0]} has neither b.nii.gz nor b.npz.",
        f"c.npz: the shape (3, 5, 12, 13) is not that of {members[0] / 'c.npz'}.",
        f"skipped d: {members[1] / 'd.npz'}: the probabilities of a voxel must sum to 1",
        f"skipped e: {members[1] / 'e.npz'} and e.nii.gz: the segmentation",
        f"skipped g: {members[1] / 'g.nii.gz'} does not lie where ",
    ):
        assert said in printed
    assert "--ignore_geometry" not in printed  # members has no such option
    assert names(tmp_path / "out") & {f"{name}.npz" for name in "abcdefg"} == {"f.npz"}
    skipped = json.loads((tmp_path / "out" / "members.json").read_text())["skipped"]
    assert [entry["case"] for entry in skipped] == [*"abcdeg"]
    shutil.copyfile(tmp_path / "out" / "f.npz", tmp_path / "out" / "a.npz")  # of an earlier run
    assert main(["members", *map(str, members), "-o", str(tmp_path / "out"), "--overwrite"]) == 1
    assert not (tmp_path / "out" / "a.npz").exists()


def test_other_folders_are_refused_by_name(tmp_path: Path) -> None:
    first, second, other = write_members(tmp_path, "a")
    for members, message in (
        ([first], r"^members: expected 2 or more folders, each once; got \S+fold_0\.$"),
        ([first, first / ".." / first.name], r"expected 2 or more folders, each once; got \S+fold_0, "),
        ([first, random_folder(tmp_path / "regions", "a", regions=True)], "regions has the labels .*, not .* as"),
    ):
        with pytest.raises(ValueError, match=message):
            combine_members(members, tmp_path / "out")
    for name, old, new, message in (
        ("dataset.json", '"two": 2', '"spleen": 2', "fold_1 has the labels .*, not .* as"),
        ("plans.json", "Dataset001_Toy", "Dataset002_Other", "fold_1 has the dataset Dataset002_Other, not Dataset001"),
    ):
        text = (second / name).read_text()
        (second / name).write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            combine_members([first, second, other], tmp_path / "out")
        (second / name).write_text(text)


def test_the_mean_of_calibrated_members_is_calibrated(tmp_path: Path) -> None:
    """What is known to be calibrated is not calibrated a second time."""
    members = write_members(tmp_path)

    def calibrate(member: Path, temperature: float) -> None:
        model = Model({"background": 0, "one": 1, "two": 2}, None, 3)
        Fit(Temperature(temperature), model, [], {}, {}, []).write(member / CALIBRATED_NAME, applied_to=member)

    for member in members[:2]:
        calibrate(member, 2.0)
    combine_members(members[:2], tmp_path / "out")
    assert Predictions.of_folder(None, tmp_path / "out").is_calibrated
    how = r"fold_1 and .*fold_2 are not calibrated by the same fit\. Combine .* before calibration, then calibrate the"
    with pytest.raises(ValueError, match=how):
        combine_members(members[1:], tmp_path / "mixed")
    calibrate(members[2], 3.0)
    with pytest.raises(ValueError, match=how):
        combine_members(members[1:], tmp_path / "mixed")
    calibrate(members[2], 2.0)
    decode_folder(members[2], tmp_path / "decoded")
    with pytest.raises(ValueError, match=r"decoded are not decoded alike\. Combine .* before decoding, then decode"):
        combine_members([members[1], tmp_path / "decoded"], tmp_path / "mixed")
    (members[2] / CALIBRATED_NAME).unlink()
    combine_members([members[2], *write_members(tmp_path / "more")], tmp_path / "out", overwrite=True)
    assert not Predictions.of_folder(None, tmp_path / "out").is_calibrated


def test_agreement_by_hand() -> None:
    meaning = LabelMeaning((0, 1, 2))
    labels = [np.array(one, np.uint8) for one in ([1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])]
    assert mean_pairwise_dice(labels, meaning) == pytest.approx(((2 / 3 + 0 + 0) / 3, 1))  # 1: absent from all
