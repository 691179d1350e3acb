import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from nnunet_nacl.cli import main
from nnunet_nacl.use import REVIEW_NAME, _counting, review_folder
from nnunet_nacl.use._counting import voxel_volume_ml
from nnunet_nacl.use._rows import ranked_cases
from tests.use.generated import (
    ENDING,
    STEPS,
    STRUCTURES,
    VOXEL_ML,
    probabilities,
    read,
    shift,
    true_dice,
    write_case,
    write_folder,
    write_labels,
    write_pair,
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Ground truth and predictions of four cases."""
    return write_pair(tmp_path / "test", "abcd")


def labels_of(folder: Path, name: str) -> np.ndarray:
    return read(folder / f"{name}{ENDING}")


def rows_in(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def row_of(rows: list[dict[str, str]], case: str, structure: str) -> dict[str, Any]:
    (row,) = [row for row in rows if (row["case"], row["structure"]) == (case, structure)]
    return row


def by_loop(folder: Path, name: str, *, regions: bool) -> dict[str, dict[str, float]]:
    """Everything that a row says of a structure, from whole arrays."""
    p, s = probabilities(folder, name).astype(np.float64), labels_of(folder, name)
    rows: dict[str, dict[str, float]] = {}
    for number, (structure, labels) in enumerate(STRUCTURES[regions].items()):
        q = p[number if regions else number + 1]
        inside = np.isin(s, labels)
        terms = np.stack([q, 1 - q]) if regions else p
        near = distance_transform_edt((q if regions else 1 - p[0]) <= 0.05, sampling=STEPS) <= 5
        entropy = -np.sum(np.where(terms > 0, terms * np.log(np.where(terms > 0, terms, 1)), 0), axis=0)
        rows[structure] = {
            "predicted_dice": 2 * (q * inside).sum() / (q.sum() + inside.sum()),
            "volume_ml": VOXEL_ML * q.sum(),
            "segmented_ml": VOXEL_ML * inside.sum(),
            "max_probability": q.max(),
            "mean_error": 1 - terms.max(0)[near].mean(),
            "mean_entropy": entropy[near].mean(),
            "unsure_ml": VOXEL_ML * ((q > 0.1) & (q < 0.9)).sum(),
        }
    return rows


@pytest.mark.parametrize("regions", [False, True])
def test_the_csv_is_what_a_loop_computes(tmp_path: Path, regions: bool) -> None:
    _, predictions = write_pair(tmp_path, "abc", regions=regions)
    assert main(["review", str(predictions), "-np", "1"]) == 0
    rows = rows_in(predictions / REVIEW_NAME)
    assert len(rows) == 6
    for case in "abc":
        for structure, expected in by_loop(predictions, case, regions=regions).items():
            row = row_of(rows, case, structure)
            for name, value in expected.items():
                assert float(row[name]) == pytest.approx(value, rel=2e-5), name
            for name in ("volume_low_ml", "volume_high_ml", "fitted_dice", "agreement", "dice", "true_ml"):
                assert row[name] == ""
    assert list(rows[0])[:6] == [
        "case", "structure", "predicted_dice", "volume_ml", "volume_low_ml", "volume_high_ml",
    ]  # fmt: skip
    dice = [float(row["predicted_dice"]) for row in rows]
    assert dice == sorted(dice)


def test_a_structure_that_is_not_segmented_is_ranked_by_its_presence(tmp_path: Path) -> None:
    _, predictions = write_pair(tmp_path, "a")
    shape = (4, 8, 10)
    for name, probability in (("likely", 0.45), ("absent", 0.001)):
        p = np.zeros((3, *shape), np.float32)
        p[1, 0, 0, 0], p[2, 1:3, 2:6, 2:6] = probability, 0.97
        p[0] = 1 - p[1:].sum(0)
        write_case(predictions, name, p)
    review = review_folder(predictions)
    place = {(row.case, row.structure): number for number, row in enumerate(review.rows)}
    likely, absent = (review.rows[place[name, "liver"]] for name in ("likely", "absent"))
    assert likely.trust == pytest.approx(0.55)
    assert likely.predicted_dice == 0
    assert absent.trust == pytest.approx(0.999)
    assert absent.reasons == ()
    assert likely.reasons == ("nothing is segmented, though the structure's probability reaches 0.45",)
    assert place["likely", "liver"] == 0
    assert place["absent", "liver"] == len(review.rows) - 1


def test_a_structure_that_cannot_be_there_is_predicted_rightly(tmp_path: Path) -> None:
    truth, predictions = write_pair(tmp_path, "a")
    p = np.zeros((3, 4, 8, 10), np.float32)
    p[0] = 1
    write_case(predictions, "empty", p)
    write_labels(p.argmax(0), truth / f"empty{ENDING}")
    full = np.zeros((3, 4, 8, 10), np.float32)
    full[2] = 1
    write_case(predictions, "full", full)
    write_labels(full.argmax(0), truth / f"full{ENDING}")
    rows = {(row.case, row.structure): row for row in review_folder(predictions, gt_folder=truth).rows}
    for key in (("empty", "liver"), ("empty", "left kidney"), ("full", "liver"), ("full", "left kidney")):
        assert (rows[key].predicted_dice, rows[key].trust, rows[key].dice) == (1, 1, 1)
    assert rows["empty", "liver"].mean_error is None  # no voxel is near
    assert (
        rows["full", "left kidney"].volume_ml == rows["full", "left kidney"].true_ml == pytest.approx(320 * 0.75 / 1000)
    )


def test_a_flat_image_is_a_millimeter_thick() -> None:
    assert voxel_volume_ml((1, 4, 4), (999 * 0.4, 0.4, 0.2)) == pytest.approx(0.08 / 1000)
    assert voxel_volume_ml((1, 4, 4), (5.0, 0.4, 0.2)) == pytest.approx(0.4 / 1000)
    assert voxel_volume_ml((2, 4, 4), (999 * 0.4, 0.4, 0.2)) == pytest.approx(999 * 0.4 * 0.08 / 1000)


def test_members_agree_as_a_loop_says(tmp_path: Path) -> None:
    folders = [write_pair(tmp_path / str(seed), "ab", first=seed)[1] for seed in (0, 1, 2)]
    review = review_folder(folders[0], members=folders)
    for row in review.rows:
        masks = [np.isin(labels_of(one, row.case), STRUCTURES[False][row.structure]) for one in folders]
        pairs = [(0, 1), (0, 2), (1, 2)]
        dice = [2 * (masks[a] & masks[b]).sum() / (masks[a].sum() + masks[b].sum()) for a, b in pairs]
        assert row.agreement == pytest.approx(np.mean(dice))
    with pytest.raises(ValueError, match=r"^members: expected at least 2 folders; got 1"):
        review_folder(folders[0], members=folders[:1])
    (folders[2] / f"b{ENDING}").unlink()
    assert main(["review", str(folders[0]), "-np", "1", "--members", *map(str, folders)]) == 1
    assert {row["case"] for row in rows_in(folders[0] / REVIEW_NAME)} == {"a"}


def test_ground_truth_judges_it(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", str(folders[1]), "-np", "1", "-gt", str(folders[0])]) == 0
    rows = rows_in(folders[1] / REVIEW_NAME)
    errors = []
    for case in "abcd":
        truth, saved = labels_of(folders[0], case), labels_of(folders[1], case)
        for structure, labels in STRUCTURES[False].items():
            row = row_of(rows, case, structure)
            dice = true_dice(truth, saved, labels)
            assert float(row["dice"]) == pytest.approx(dice, rel=1e-5)
            true_ml = np.isin(truth, labels).sum() * VOXEL_ML
            assert float(row["true_ml"]) == pytest.approx(true_ml, rel=1e-5)
            errors.append(abs(float(row["predicted_dice"]) - dice))
    printed = capsys.readouterr().out
    assert re.search(rf"\(all\) +8 +{np.mean(errors):.3f} ", printed)
    stored = json.loads((folders[1] / "review.json").read_text())
    assert [one["structure"] for one in stored["judgements"]] == ["liver", "left kidney", "(all)"]
    assert stored["judgements"][-1]["dice_error"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_ignored_voxels_do_not_judge(tmp_path: Path) -> None:
    truth, predictions = write_pair(tmp_path, "ab")
    content = json.loads((predictions / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    labels = labels_of(truth, "a")
    labels[::2] = 3
    write_labels(labels, truth / f"a{ENDING}")
    review = review_folder(predictions, gt_folder=truth)
    counted = labels != 3
    p, saved = probabilities(predictions, "a").astype(np.float64)[1], labels_of(predictions, "a") == 1
    sums = next(case for case in review.cases if case.case == "a").counts.structures["liver"]
    assert sums.truth is not None
    assert sums.truth.sums.probability == pytest.approx(p[counted].sum())
    assert sums.truth.sums.segmented == saved[counted].sum()
    assert sums.truth.dice == pytest.approx(true_dice(labels[counted], labels_of(predictions, "a")[counted], [1]))
    assert sums.sums.probability == pytest.approx(p.sum())


def test_killed_it_goes_on(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os, signal, sys\n"
        "from nnunet_nacl.use import _counting as _cases, review_folder\n"
        "count, calls = _cases.count_case, []\n"
        "def third_dies(*files, **options):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return count(*files, **options)\n"
        "_cases.count_case = third_dies\n"
        "review_folder(sys.argv[1], output=sys.argv[2])\n"
    )
    output = tmp_path / "list.csv"
    done = subprocess.run([sys.executable, "-c", script, folders[1], output], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not output.exists()
    counted: list[str] = []
    count = _counting.count_case

    def spy(files: object, **options: object) -> object:
        counted.append(files.name)  # type: ignore[attr-defined]
        return count(files, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(_counting, "count_case", spy)
    review_folder(folders[1], output=output)
    assert counted == ["c", "d"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list.csv", "list.json", "test"]
    review_folder(folders[1], output=tmp_path / "anew.csv")
    assert counted == ["c", "d", *"abcd"]
    assert output.read_bytes() == (tmp_path / "anew.csv").read_bytes()

    counted.clear()
    write_labels(labels_of(folders[1], "b"), folders[1] / f"b{ENDING}")  # its time changes
    review_folder(folders[1], output=output, overwrite=True)
    assert counted == ["b"]
    counted.clear()
    review_folder(folders[1], output=output, overwrite=True)
    assert counted == []


def test_files_that_lie_elsewhere_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(folders[1], tmp_path / "other"))
    shift(folders[0] / f"a{ENDING}")
    shift(other / f"b{ENDING}")
    options = {"members": [folders[1], other], "gt_folder": folders[0]}
    review = review_folder(folders[1], **options)  # type: ignore[arg-type]
    assert [(one.case, "has the origin" in one.reason) for one in review.skipped] == [("a", True), ("b", True)]
    assert not review_folder(folders[1], ignore_geometry=True, **options).skipped  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "b.npz").unlink(), "b.npz does not exist: no probabilities"),
        (
            lambda folder: np.savez_compressed(folder / "b.npz", probabilities=7 * probabilities(folder, "b")),
            "b.npz: expected probabilities in [0, 1]",
        ),
        (
            lambda folder: shutil.copy(folder / f"c{ENDING}", folder / f"b{ENDING}"),
            f"the segmentation b{ENDING} has another label than these probabilities give",
        ),
    ],
)
def test_a_bad_case_is_named_and_the_others_are_written(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], spoil: object, message: str
) -> None:
    spoil(folders[1])  # type: ignore[operator]
    assert main(["review", str(folders[1]), "-np", "1"]) == 1
    assert {row["case"] for row in rows_in(folders[1] / REVIEW_NAME)} == {"a", "c", "d"}
    error = capsys.readouterr().err
    assert "skipped b: " in error
    assert message in error


def test_unusual_cases_have_reasons(tmp_path: Path) -> None:
    _, predictions = write_pair(tmp_path, "abcdefghi")
    p = probabilities(predictions, "e").copy()
    q = 0.55 * p + 0.15 * (1 - p)
    q /= q.sum(0)
    np.savez_compressed(predictions / "e.npz", probabilities=q.astype(np.float32))
    write_labels(q.argmax(0), predictions / f"e{ENDING}")
    review = review_folder(predictions)
    assert review.rows[0].case == "e"
    reasons = "; ".join(review.rows[0].reasons)
    assert re.search(r"the predicted Dice is unusually low: 0\.\d\d \(median 0\.\d\d\)", reasons)
    assert re.search(r"there is more doubt than usual: \d+\.\d % errors expected \(median \d+\.\d %\)", reasons)
    assert re.search(r"the unsure volume is \d+ % of the segmented volume \(median \d+ %\)", reasons)
    assert all("uncalibrated" in note for note in review.notes)


def test_outputs_that_exist_stay(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output, page = tmp_path / "list.csv", tmp_path / "page.html"
    command = ["review", str(folders[1]), "-np", "1", "-o", str(output), "--html", str(page)]
    for file in (output, output.with_suffix(".json"), page):
        file.write_text("mine")
        assert main(command) == 1
        assert f"{file.name} exists" in capsys.readouterr().err
        assert file.read_text() == "mine"
        file.unlink()
    assert main(command) == 0
    assert main([*command, "--overwrite"]) == 0
    for _ in range(2):  # under its own name
        assert main(["review", str(folders[1]), "-np", "1"]) == 0
    with pytest.raises(ValueError, match=r"^page.json: expected a name that ends with \.csv"):
        review_folder(folders[1], output="page.json")


def test_members_that_are_not_of_the_same_kind_are_refused(tmp_path: Path) -> None:
    first, second = (write_pair(tmp_path / str(seed), "ab", first=seed)[1] for seed in (0, 1))
    with pytest.raises(ValueError, match=r"predictions is given twice\.$"):
        review_folder(first, members=[second, second])
    description = second / "dataset.json"
    described = description.read_text()
    description.write_text(described.replace('"liver": 1, "left kidney": 2', '"liver": 2, "left kidney": 1'))
    with pytest.raises(ValueError, match=r"its labels .* are not those of"):
        review_folder(first, members=[first, second])
    description.write_text(described)
    plans = second / "plans.json"
    plans.write_text(plans.read_text().replace("Dataset001_Toy", "Dataset002_Other"))
    with pytest.raises(ValueError, match="is of the data set Dataset002_Other"):
        review_folder(first, members=[first, second])


def test_label_maps_are_no_images(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"labels has no images of these cases: no a_0000\.nii\.gz\."):
        review_folder(folders[1], images=folders[0], html=tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"labels is the folder of the ground truth; expected that of the images\."):
        review_folder(folders[1], images=folders[0], gt_folder=folders[0], html=tmp_path / "page.html")


def test_cases_are_ranked_by_the_structure_that_is_unusual_for_its_kind(tmp_path: Path) -> None:
    """The kidney is the harder structure everywhere; of case c the liver is bad for a liver."""
    predictions = write_folder(tmp_path / "in", {})
    doubts = {"a": (0.1, 0.4), "b": (0.11, 0.41), "c": (0.2, 0.3), "d": (0.12, 0.42)}
    for name, (liver, kidney) in doubts.items():
        p = np.zeros((3, 4, 8, 10), np.float32)
        p[1, :2], p[2, 2:] = 1 - liver, 1 - kidney
        p[0] = 1 - p[1:].sum(0)
        write_case(predictions, name, p)
    review = review_folder(predictions)
    assert [row.structure for row in review.rows[:4]] == ["left kidney"] * 4
    cases = ranked_cases(review.rows)
    assert [case.case for case in cases] == ["d", "c", "b", "a"]
    assert [(row.structure, row.rank) for row in cases[1].rows] == [("liver", 1), ("left kidney", 4)]
    assert {(row.case, row.structure): row.rank for row in review.rows}["d", "liver"] == 2
    assert re.search(r"0\.73  1 of 4  d  left kidney", review.summary())
