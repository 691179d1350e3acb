import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.cli import main
from nnunet_nacl.review import REVIEW_NAME, _cases, review_folder, voxel_volume_ml
from tests.calibrate.generated import ENDING, LABELS, description, probabilities, write_case, write_folder, write_labels
from tests.review.generated import STRUCTURES, by_loop, labels_of, row_of, rows_in, true_dice, voxel_ml_of


@pytest.mark.parametrize("regions", [False, True])
def test_the_csv_is_what_a_loop_computes(tmp_path: Path, regions: bool) -> None:
    _, predictions = write_folder(tmp_path, "abc", structure=True, regions=regions)
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


def test_two_processes_write_the_same(folders: tuple[Path, Path], tmp_path: Path) -> None:
    for number in (1, 2):
        review_folder(folders[1], output=tmp_path / f"{number}.csv", num_processes=number)
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


def test_a_structure_that_is_not_segmented_is_ranked_by_its_presence(tmp_path: Path) -> None:
    truth, predictions = write_folder(tmp_path, "a", structure=True)
    shape = (4, 8, 10)
    for name, probability in (("likely", 0.45), ("absent", 0.001)):
        p = np.zeros((3, *shape), np.float32)
        p[1, 0, 0, 0], p[2, 1:3, 2:6, 2:6] = probability, 0.97
        p[0] = 1 - p[1:].sum(0)
        write_case(truth, predictions, name, p, p.argmax(0), False)
    review = review_folder(predictions)
    place = {(row.case, row.structure): number for number, row in enumerate(review.rows)}
    likely, absent = (review.rows[place[name, "one"]] for name in ("likely", "absent"))
    assert likely.trust == pytest.approx(0.55)
    assert likely.predicted_dice == 0
    assert absent.trust == pytest.approx(0.999)
    assert absent.reasons == ()
    assert likely.reasons == ("nothing is segmented, though the structure's probability reaches 0.45",)
    assert place["likely", "one"] == 0
    assert place["absent", "one"] == len(review.rows) - 1


def test_a_structure_that_cannot_be_there_is_predicted_rightly(tmp_path: Path) -> None:
    truth, predictions = write_folder(tmp_path, "a", structure=True)
    p = np.zeros((3, 4, 8, 10), np.float32)
    p[0] = 1
    write_case(truth, predictions, "empty", p, p.argmax(0), False)
    full = np.zeros((3, 4, 8, 10), np.float32)
    full[2] = 1
    write_case(truth, predictions, "full", full, full.argmax(0), False)
    rows = {(row.case, row.structure): row for row in review_folder(predictions, gt_folder=truth).rows}
    for key in (("empty", "one"), ("empty", "two"), ("full", "one"), ("full", "two")):
        assert (rows[key].predicted_dice, rows[key].trust, rows[key].dice) == (1, 1, 1)
    assert rows["empty", "one"].mean_error is None  # no voxel is near
    assert rows["full", "two"].volume_ml == rows["full", "two"].true_ml == pytest.approx(320 * 0.75 / 1000)


def test_the_size_of_voxels_scales_volumes_and_nothing_else(folders: tuple[Path, Path], tmp_path: Path) -> None:
    before = review_folder(folders[1], output=tmp_path / "before.csv")
    for name in "abcd":
        image = sitk.ReadImage(str(folders[1] / f"{name}{ENDING}"))
        image.SetSpacing([2 * step for step in image.GetSpacing()])
        sitk.WriteImage(image, str(folders[1] / f"{name}{ENDING}"))
    after = review_folder(folders[1], output=tmp_path / "after.csv")
    for one, other in zip(before.rows, after.rows, strict=True):
        assert (one.case, one.structure, one.predicted_dice) == (other.case, other.structure, other.predicted_dice)
        for name in ("volume_ml", "segmented_ml", "unsure_ml"):
            assert getattr(other, name) == pytest.approx(8 * getattr(one, name))


def test_permuting_voxels_changes_no_sum(folders: tuple[Path, Path], tmp_path: Path) -> None:
    before = review_folder(folders[1], output=tmp_path / "before.csv")
    for name in "abcd":
        p, s = probabilities(folders[1], name), labels_of(folders[1], name)
        order = np.random.default_rng(0).permutation(s.size)
        write_labels(s.reshape(-1)[order].reshape(s.shape), folders[1] / f"{name}{ENDING}")
        np.savez_compressed(folders[1] / f"{name}.npz", probabilities=p.reshape(3, -1)[:, order].reshape(p.shape))
    after = review_folder(folders[1], output=tmp_path / "after.csv")
    for one, other in zip(before.rows, after.rows, strict=True):
        for name in ("predicted_dice", "volume_ml", "segmented_ml", "unsure_ml", "max_probability"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-9), name


@pytest.mark.parametrize("ending", [".nrrd", ".mha", ".png", ".tif"])
def test_every_format(tmp_path: Path, ending: str) -> None:
    """PNG is two-dimensional: 1 mm thick, pixels of 1 mm."""
    generator = np.random.default_rng(0)
    shape = (1, 12, 16) if ending == ".png" else (5, 12, 16)
    p = generator.dirichlet([1, 1, 1], shape).transpose(3, 0, 1, 2).astype(np.float32)
    (tmp_path / "dataset.json").write_text(json.dumps({**json.loads(description()), "file_ending": ending}))
    np.savez_compressed(tmp_path / "a.npz", probabilities=p)
    labels = p.argmax(0).astype(np.uint8)
    image = sitk.GetImageFromArray(labels[0] if ending == ".png" else labels)
    if ending in {".nrrd", ".mha"}:
        image.SetSpacing((0.5, 0.5, 3))
    if ending == ".tif":
        (tmp_path / "a.json").write_text(json.dumps({"spacing": [3, 0.5, 0.5]}))
    sitk.WriteImage(image, str(tmp_path / f"a{ending}"))
    review = review_folder(tmp_path)
    voxel_ml = 0.001 if ending == ".png" else 0.75 / 1000
    for row in review.rows:
        q = p[LABELS[row.structure]]
        assert row.volume_ml == pytest.approx(voxel_ml * q.sum(dtype=np.float64))
        assert row.predicted_dice == pytest.approx(
            2 * q[labels == LABELS[row.structure]].sum() / (q.sum() + (labels == LABELS[row.structure]).sum()), rel=1e-5
        )


def test_a_flat_image_is_a_millimeter_thick() -> None:
    assert voxel_volume_ml((1, 4, 4), (999 * 0.4, 0.4, 0.2)) == pytest.approx(0.08 / 1000)
    assert voxel_volume_ml((1, 4, 4), (5.0, 0.4, 0.2)) == pytest.approx(0.4 / 1000)
    assert voxel_volume_ml((2, 4, 4), (999 * 0.4, 0.4, 0.2)) == pytest.approx(999 * 0.4 * 0.08 / 1000)


def test_members_agree_as_a_loop_says(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(seed), "ab", structure=True, first=seed)[1] for seed in (0, 1, 2)]
    review = review_folder(folders[0], members=folders)
    for row in review.rows:
        masks = [np.isin(labels_of(one, row.case), STRUCTURES[False][row.structure]) for one in folders]
        pairs = [(0, 1), (0, 2), (1, 2)]
        dice = [2 * (masks[a] & masks[b]).sum() / (masks[a].sum() + masks[b].sum()) for a, b in pairs]
        assert row.agreement == pytest.approx(np.mean(dice))
    with pytest.raises(ValueError, match=r"^members must be two folders or more"):
        review_folder(folders[0], members=folders[:1])
    (folders[2] / f"b{ENDING}").unlink()
    assert main(["review", str(folders[0]), "-np", "1", "--members", *map(str, folders)]) == 1
    assert {row["case"] for row in rows_in(folders[0] / REVIEW_NAME)} == {"a"}


def test_ground_truth_judges_it(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", str(folders[1]), "-np", "1", "--gt", str(folders[0])]) == 0
    rows = rows_in(folders[1] / REVIEW_NAME)
    errors = []
    for case in "abcd":
        truth, saved = labels_of(folders[0], case), labels_of(folders[1], case)
        for structure, labels in STRUCTURES[False].items():
            row = row_of(rows, case, structure)
            dice = true_dice(truth, saved, labels)
            assert float(row["dice"]) == pytest.approx(dice, rel=1e-5)
            true_ml = np.isin(truth, labels).sum() * voxel_ml_of(folders[0], case)
            assert float(row["true_ml"]) == pytest.approx(true_ml, rel=1e-5)
            errors.append(abs(float(row["predicted_dice"]) - dice))
    printed = capsys.readouterr().out
    assert f"(all)          8  {np.mean(errors):.3f}" in printed
    stored = json.loads((folders[1] / "review.json").read_text())
    assert [one["structure"] for one in stored["judgements"]] == ["one", "two", "(all)"]
    assert stored["judgements"][-1]["dice_error"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_ignored_voxels_do_not_judge(tmp_path: Path) -> None:
    truth, predictions = write_folder(tmp_path, "ab", structure=True)
    content = json.loads((predictions / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    labels = labels_of(truth, "a")
    labels[::2] = 3
    write_labels(labels, truth / f"a{ENDING}")
    review = review_folder(predictions, gt_folder=truth)
    counted = labels != 3
    p, saved = probabilities(predictions, "a").astype(np.float64)[1], labels_of(predictions, "a") == 1
    sums = next(case for case in review.cases if case.case == "a").counts.structures["one"]
    assert sums.truth is not None
    assert sums.truth.sums.probability == pytest.approx(p[counted].sum())
    assert sums.truth.sums.segmented == saved[counted].sum()
    assert sums.truth.dice == pytest.approx(true_dice(labels[counted], labels_of(predictions, "a")[counted], [1]))
    assert sums.sums.probability == pytest.approx(p.sum())


def test_killed_it_goes_on(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os, signal, sys\n"
        "from nnunet_nacl.review import _cases, review_folder\n"
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
    count = _cases.count_case

    def spy(files: object, **options: object) -> object:
        counted.append(files.name)  # type: ignore[attr-defined]
        return count(files, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(_cases, "count_case", spy)
    review_folder(folders[1], output=output)
    assert counted == ["c", "d"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list.csv", "list.json", "test"]
    review_folder(folders[1], output=tmp_path / "anew.csv")
    assert counted == ["c", "d", *"abcd"]
    assert output.read_bytes() == (tmp_path / "anew.csv").read_bytes()

    counted.clear()
    write_labels(labels_of(folders[1], "b"), folders[1] / f"b{ENDING}")  # its time changes
    review_folder(folders[1], output=output)
    assert counted == ["b"]
    counted.clear()
    review_folder(folders[1], output=output, overwrite=True)
    assert counted == list("abcd")


def _moved(file: Path) -> None:
    image = sitk.ReadImage(str(file))
    image.SetOrigin([step + 1 for step in image.GetOrigin()])
    sitk.WriteImage(image, str(file))


def test_files_that_lie_elsewhere_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(folders[1], tmp_path / "other"))
    _moved(folders[0] / f"a{ENDING}")
    _moved(other / f"b{ENDING}")
    options = {"members": [folders[1], other], "gt_folder": folders[0]}
    review = review_folder(folders[1], **options)  # type: ignore[arg-type]
    assert [(one.case, "has the origin" in one.reason) for one in review.skipped] == [("a", True), ("b", True)]
    assert not review_folder(folders[1], ignore_geometry=True, **options).skipped  # type: ignore[arg-type]


def test_a_decoded_folder_is_reviewed(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Its segmentations are not the argmax, which a mark says. Without it they would be another model's."""
    decoded = tmp_path / "decoded"
    assert main(["decode", str(folders[1]), "-o", str(decoded), "--metric", "dice", "-np", "1"]) == 0
    before, after = (
        {(row.case, row.structure): row for row in review_folder(one, output=tmp_path / f"{number}.csv").rows}
        for number, one in enumerate((folders[1], decoded))
    )
    assert before.keys() == after.keys()
    assert np.mean([after[key].predicted_dice - before[key].predicted_dice for key in before]) > 0
    for name in (f"a{ENDING}", f"b{ENDING}"):
        shutil.copy(decoded / name, tmp_path / name)
    shutil.copy(tmp_path / f"a{ENDING}", decoded / f"b{ENDING}")
    (skipped,) = review_folder(decoded, output=tmp_path / "exchanged.csv").skipped
    assert skipped.case == "b"


def _missing(predictions: Path) -> None:
    (predictions / "b.npz").unlink()


def _truncated(predictions: Path) -> None:
    file = predictions / "b.npz"
    file.write_bytes(file.read_bytes()[:-3000])


def _not_a_number(predictions: Path) -> None:
    p = probabilities(predictions, "b").copy()
    p[1, 0, 0, 0] = np.nan
    np.savez_compressed(predictions / "b.npz", probabilities=p)


def _logits(predictions: Path) -> None:
    np.savez_compressed(predictions / "b.npz", probabilities=7 * probabilities(predictions, "b"))


def _no_segmentation(predictions: Path) -> None:
    (predictions / f"b{ENDING}").unlink()


def _other_shape(predictions: Path) -> None:
    write_labels(labels_of(predictions, "b")[1:], predictions / f"b{ENDING}")


def _unknown_label(predictions: Path) -> None:
    labels = labels_of(predictions, "b")
    labels[0, 0, 0] = 7
    write_labels(labels, predictions / f"b{ENDING}")


def _of_another_case(predictions: Path) -> None:
    shutil.copy(predictions / f"c{ENDING}", predictions / f"b{ENDING}")


def _other_channels(predictions: Path) -> None:
    np.savez_compressed(predictions / "b.npz", probabilities=probabilities(predictions, "b")[:2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_missing, "b.npz does not exist: no probabilities"),
        (_truncated, "b.npz cannot be read"),
        (_not_a_number, "b.npz: NaN or infinite values in channel 1."),
        (_logits, "b.npz: expected probabilities in [0, 1]"),
        (_no_segmentation, f"b{ENDING} does not exist: no predicted segmentation"),
        (_other_shape, f"does not match that of b{ENDING}, (9, 48, 72)"),
        (_unknown_label, f"b{ENDING} holds labels that are not in the data set: 7"),
        (_of_another_case, f"the segmentation b{ENDING} has another label than these probabilities give"),
        (_other_channels, "has 2 channels (the first axis), but the data set has 3 labels."),
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


def test_what_is_not_there_is_said(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a folder\.$"):
        review_folder(folders[1], gt_folder=tmp_path / "nowhere")
    for file in folders[1].glob("*.npz"):
        file.unlink()
    with pytest.raises(ValueError, match=r"^None of 4 cases can be reviewed; the first: a: .*no probabilities"):
        review_folder(folders[1])
    assert not (folders[1] / REVIEW_NAME).exists()


def test_files_of_others_stay(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, text in (("list.csv", "name,grade\n"), ("list.json", "{}"), ("page.html", "<html></html>")):
        (tmp_path / name).write_text(text)
        command = ["review", str(folders[1]), "-np", "1", "-o", str(tmp_path / "list.csv")]
        command += ["--html", str(tmp_path / "page.html")]
        assert main(command) == 1
        assert f"{name} exists and is not a" in capsys.readouterr().err
        assert (tmp_path / name).read_text() == text
        (tmp_path / name).unlink()
    assert main(command) == 0
    assert main(command) == 0  # over our own
    with pytest.raises(ValueError, match=r"^page.json: expected a name that ends with \.csv"):
        review_folder(folders[1], output="page.json")


def test_unusual_cases_have_reasons(tmp_path: Path) -> None:
    _, predictions = write_folder(tmp_path, "abcdefghi", structure=True)
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
    assert all("uncalibrated" not in note or "one" in note or "two" in note for note in review.notes)
