import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import _folder, evaluate
from nnunet_nacl.metrics import LabelMeaning, Settings, mean_pairwise_dice
from nnunet_nacl.nnunet import CaseFiles, Predictions
from nnunet_nacl.use import fit_review, review_folder
from nnunet_nacl.use._review_list import ranked_cases
from tests.generated import (
    ENDING,
    STRUCTURES,
    VOXEL_ML,
    near_by_scipy,
    overlapping_case,
    probabilities,
    read,
    shift,
    true_dice,
    write_case,
    write_folder,
    write_labels,
    write_overlapping,
    write_predictions,
)
from tests.use.conftest import judged


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Ground truth and predictions of four cases."""
    return write_folder(tmp_path / "test", "abcd", structure=True)


def by_loop(folder: Path, name: str, *, regions: bool) -> dict[str, dict[str, float]]:
    """Everything that a row says of a structure, from whole arrays."""
    p, s = probabilities(folder, name).astype(np.float64), read(folder / f"{name}{ENDING}")
    rows: dict[str, dict[str, float]] = {}
    for number, (structure, labels) in enumerate(STRUCTURES[regions].items()):
        q = p[number if regions else number + 1]
        inside = np.isin(s, labels)
        terms = np.stack([q, 1 - q]) if regions else p
        near = near_by_scipy(q if regions else 1 - p[0])
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
    truth, predictions = write_folder(tmp_path, "abc", structure=True, regions=regions)
    review = review_folder(predictions, gt_folder=truth)
    with (predictions / "review.csv").open(newline="") as stream:
        rows = {(row["case"], row["structure"]): row for row in csv.DictReader(stream)}
    errors = []
    for case in "abc":
        for structure, expected in by_loop(predictions, case, regions=regions).items():
            labels, row = STRUCTURES[regions][structure], rows.pop((case, structure))
            maps = [read(folder / f"{case}{ENDING}") for folder in (truth, predictions)]
            expected |= {"dice": true_dice(*maps, labels), "true_ml": VOXEL_ML * np.isin(maps[0], labels).sum()}
            expected["trust"] = expected["predicted_dice"]
            for name, value in expected.items():
                assert float(row[name]) == pytest.approx(value, rel=2e-5), name
            assert {row[name] for name in ("volume_low_ml", "volume_high_ml", "fitted_dice", "agreement")} == {""}
            errors.append(abs(expected["predicted_dice"] - expected["dice"]))
    assert not rows
    assert review.table.predicted_dice.is_monotonic_increasing
    assert re.search(rf"mean absolute error .* {np.mean(errors):.3f}\n", review.summary())
    judgement = json.loads((predictions / "review.json").read_text())["judgements"][-1]
    assert judgement["dice_error"] == pytest.approx(np.mean(errors))
    assert len(judged(predictions)) == 6


def test_structures_that_are_not_segmented(tmp_path: Path) -> None:
    """Their trust is 1 − max p."""
    truth, predictions = write_folder(tmp_path, "a", structure=True)
    shape = (4, 8, 10)
    for name, probability in (("likely", 0.45), ("absent", 0.001), ("never", 0.0)):
        p = np.zeros((3, *shape), np.float32)
        p[1, 0, 0, 0], p[2, 1:3, 2:6, 2:6] = probability, 0.97 if probability else 0
        p[0] = 1 - p[1:].sum(0)
        write_case(predictions, name, p)
        write_labels(p.argmax(0), truth / f"{name}{ENDING}")
    table = review_folder(predictions, gt_folder=truth).table
    rows = {row.case: row for row in table[table.structure == "one"].itertuples()}
    assert rows["likely"].predicted_dice == 0
    assert [rows[name].trust for name in ("likely", "absent", "never")] == pytest.approx([0.55, 0.999, 1])
    assert rows["likely"].reasons == ["nothing is segmented, though the structure's probability reaches 0.45"]
    assert rows["absent"].reasons == []
    assert [rows[name].rank for name in ("likely", "absent", "never")] == [1, 3, 4]
    of_one = judged(predictions).xs("one", level="structure")
    for name, row in rows.items():
        for column in of_one.columns.intersection(table.columns):  # one name, one number
            assert of_one.loc[name, column] == pytest.approx(getattr(row, column), nan_ok=True), column
        assert {*of_one.columns} - {*table.columns} == {"dice_to_expect", "missed"}
        assert of_one.dice_to_expect[name] == row.trust
    assert (rows["never"].predicted_dice, rows["never"].dice) == (1, 1)
    assert np.isnan(rows["never"].mean_error)  # no voxel is near


def test_members_agree_as_a_loop_says(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(seed), "ab", structure=True, first=seed)[1] for seed in (0, 1, 2)]
    for row in review_folder(folders[0], members=folders).table.itertuples():
        maps = [read(folder / f"{row.case}{ENDING}") for folder in folders]
        pairs = [(maps[0], maps[1]), (maps[0], maps[2]), (maps[1], maps[2])]
        expected = np.mean([true_dice(*pair, STRUCTURES[0][row.structure]) for pair in pairs])
        assert row.agreement == pytest.approx(expected)
    absent = [np.array(one, np.uint8) for one in ([1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])]
    assert mean_pairwise_dice(absent, LabelMeaning((0, 1, 2))) == pytest.approx(((2 / 3 + 0 + 0) / 3, 1))
    (folders[2] / f"b{ENDING}").unlink()
    review = review_folder(folders[0], members=folders)
    reason = f"{folders[2] / 'b'}{ENDING} does not exist."
    assert (review.cases, review.skipped) == (["a"], [Skipped("b", reason)])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases that were counted, while the test runs."""
    names = list[str]()

    class Spy(_folder._CaseCounter):
        def count(self, files: CaseFiles) -> object:
            names.append(files.name)
            return super().count(files)

    monkeypatch.setattr(_folder, "_CaseCounter", Spy)
    return names


def test_what_an_evaluation_counted_is_not_counted_again(tmp_path: Path, counted: list[str]) -> None:
    """Nor the other way round, if there was ground truth."""
    cases = "jklmnopqrs"
    (truth, one), (_, other) = (write_folder(tmp_path / name, cases, structure=True) for name in ("one", "other"))
    first, second = Predictions.of_folder(truth, one), Predictions.of_folder(truth, other)
    as_command = Settings(surface=True)
    evaluate(first, as_command)
    assert sorted(counted) == [*cases]
    records = {file: file.read_bytes() for file in (one / "calibration").iterdir()}
    review_folder(one)
    review_folder(one, gt_folder=truth)
    fit_review(first, coverage=0.7)
    assert len(counted) == 10
    assert {file: file.read_bytes() for file in (one / "calibration").iterdir()} == records
    review_folder(other)
    assert len(counted) == 20
    fit_review(second, coverage=0.7)  # counts the ground truth, too
    assert len(counted) == 30
    review_folder(other)
    review_folder(other, gt_folder=truth)
    evaluate(second, as_command)
    assert len(counted) == 30
    for file in ("review.csv", "calibration_cases.csv"):
        assert (one / file).read_bytes() == (other / file).read_bytes()


@pytest.mark.parametrize(
    ("settings", "times"),
    [(Settings(margin_mm=1), 2), (Settings(num_bins=9, tolerance_mm=2, protocol="authors"), 1)],
)
def test_a_review_leaves_the_record_of_an_evaluation(
    folders: tuple[Path, Path], counted: list[str], settings: Settings, times: int
) -> None:
    """Of another margin, it does not serve the review, whose own are not kept. Other settings do not matter."""
    evaluate(Predictions.of_folder(*folders), settings)
    records = {file: file.read_bytes() for file in (folders[1] / "calibration").iterdir()}
    doubt = review_folder(folders[1]).table.mean_error
    assert sorted(counted) == sorted("abcd" * times)
    assert {file: file.read_bytes() for file in (folders[1] / "calibration").iterdir()} == records
    shutil.rmtree(folders[1] / "calibration")
    assert list(review_folder(folders[1]).table.mean_error) == list(doubt)


def test_what_a_review_counted_is_no_evaluation(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    review_folder(folders[1])
    assert main(["table", str(folders[1])]) == 1
    assert "expected a folder that nnunet_nacl evaluate has evaluated" in capsys.readouterr().err


def test_bad_cases_are_named_and_the_others_are_written(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    truth, predictions = folders
    shift(truth / f"a{ENDING}")
    (predictions / "b.npz").unlink()
    assert main(["review", str(predictions), "-gt", str(truth)]) == 1
    with (predictions / "review.csv").open(newline="") as stream:
        assert {row["case"] for row in csv.DictReader(stream)} == {"c", "d"}
    error = capsys.readouterr().err
    assert "Only evaluate takes them as they are, with --ignore_geometry." in error
    assert "skipped b: " in error
    assert "b.npz does not exist: no probabilities" in error


def test_outputs_that_exist_stay_but_an_earlier_review_in_its_place(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output, page, described = tmp_path / "list.csv", tmp_path / "page.html", folders[1] / "review.json"
    command = ["review", str(folders[1])]
    elsewhere = [*command, "-o", str(output), "--html", str(page)]
    for arguments, files in (
        (elsewhere, (output, output.with_suffix(".json"), page)),
        (command, (described, described.with_suffix(".csv"))),
    ):
        for file in files:
            file.write_text('{"mine": 1}')
            assert main(arguments) == 1
            assert f"{file.name} exists" in capsys.readouterr().err
            assert file.read_text() == '{"mine": 1}'
            file.unlink()
        assert main(arguments) == 0
    assert len(list((tmp_path / "list.csv.cases").iterdir())) == len(list((folders[1] / "calibration").iterdir())) == 4
    assert main([*elsewhere, "--overwrite"]) == 0
    earlier = json.loads(described.read_text())
    described.write_text(json.dumps({"format": earlier["format"], "version": "0.1"}))  # as another version might
    described.with_suffix(".csv").unlink()  # as a process that was killed leaves it
    assert main(command) == 0
    assert json.loads(described.read_text()) == earlier
    assert described.with_suffix(".csv").is_file()


def test_cases_are_ranked_by_the_structure_that_is_unusual_for_its_kind(tmp_path: Path) -> None:
    """Structure two is the harder one everywhere; of case c the first is bad for its kind."""
    predictions = write_predictions(tmp_path / "in", {})
    doubts = {"a": (0.1, 0.4), "b": (0.11, 0.41), "c": (0.2, 0.3), "d": (0.12, 0.42)}
    for name, (one, two) in doubts.items():
        p = np.zeros((3, 4, 8, 10), np.float32)
        p[1, :2], p[2, 2:] = 1 - one, 1 - two
        p[0] = 1 - p[1:].sum(0)
        write_case(predictions, name, p)
    review = review_folder(predictions)
    assert list(review.table.structure[:4]) == ["two"] * 4
    cases = ranked_cases(review.table)
    assert list(cases) == ["d", "c", "b", "a"]
    assert [(row["structure"], row["rank"]) for row in cases["c"]] == [("one", 1), ("two", 4)]
    assert {(row.case, row.structure): row.rank for row in review.table.itertuples()}["d", "one"] == 2
    assert "0.73  two, 1 of 4  d" in review.summary()


def test_volumes_that_look_uncalibrated_are_noted(tmp_path: Path) -> None:
    p = np.zeros((3, 4, 8, 10), np.float32)
    p[0], p[1], p[2] = 0.5, 0.45, 0.05
    p[:, :1] = np.array([0.4, 0.6, 0])[:, None, None, None]
    review = review_folder(write_predictions(tmp_path / "in", {"a": p}), html=tmp_path / "page.html")
    assert list(review.table.reasons) == [["the predicted Dice is below 0.5"], []]
    shown = '<span data-structure="one">one: the predicted Dice is below 0.5</span></div>'
    assert shown in (tmp_path / "page.html").read_text()
    note, fit = review.notes
    assert "review fit" in fit
    assert note.startswith(
        "one: the expected volumes add up to 1.95 times the segmented ones. Either segmentations are too small, "
    )


def test_members_are_others_of_the_same_labels(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_folder(tmp_path / "regions", "a", regions=True)[1]
    for members, error in (
        ([], "expected two or more different folders"),
        ([other, folders[1] / ".." / folders[1].name], "expected two or more different folders"),
        ([other], r"it has the labels .*, not"),
    ):
        with pytest.raises(ValueError, match=error):
            review_folder(folders[1], members=[folders[1], *members])


LOST = "A label map cannot hold the regions A, B as regions_class_order [1, 2] writes them"


def test_regions_that_a_label_map_cannot_hold_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth, folder = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate("ab")})
    out = str(tmp_path / "out")
    for command in (
        ["review", str(folder)],
        ["review", "fit", str(truth), str(folder)],
        ["decode", str(folder), "-o", out],
        ["decode", str(folder), "-o", out, "--threshold", "A=0.3"],
    ):
        assert main(command) == 1
        assert LOST in capsys.readouterr().err
    assert not Path(out).exists()
