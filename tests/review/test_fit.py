import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.calibrate import apply_folder, calibrate_folder
from nnunet_nacl.cli import main
from nnunet_nacl.confidence import THRESHOLDS, fit_dice, fit_volume, recall_threshold
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.review import MissedShare, ReviewFit, fit_review, review_folder
from tests.calibrate.generated import ENDING, probabilities, write_folder, write_model
from tests.review.generated import STRUCTURES, labels_of, true_dice, voxel_ml_of

NAMES = "abcdefghijklmnopqrstuvwx"  # 24 cases: 19 are needed for intervals of 90 %, 17 for bounds of the Dice


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_folder(tmp_path_factory.mktemp("calibration"), NAMES, structure=True, first=100)


@pytest.fixture(scope="module")
def fitted(calibration: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fit") / "fit.json"
    assert main(["review", "fit", *map(str, calibration), "-np", "1", "-o", str(file)]) == 0
    return file


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    """Cases that the fit does not know."""
    truth, predictions = write_folder(tmp_path / "new", "xyz", structure=True)
    for folder in (truth, predictions):
        for file in list(folder.glob("[xyz].*")):
            file.rename(folder / f"new_{file.name}")
    return truth, predictions


def loop(calibration: tuple[Path, Path], structure: str) -> dict[str, list[float]]:
    """Predicted Dice, Dice and volumes of all cases."""
    found: dict[str, list[float]] = {name: [] for name in ("predicted", "dice", "expected_ml", "true_ml")}
    channel, labels = list(STRUCTURES[False]).index(structure) + 1, STRUCTURES[False][structure]
    for name in NAMES:
        p = probabilities(calibration[1], name)[channel].astype(np.float64)
        truth, saved = (labels_of(folder, name) for folder in calibration)
        inside, voxel_ml = np.isin(saved, labels), voxel_ml_of(calibration[1], name)
        found["predicted"].append(2 * p[inside].sum() / (p.sum() + inside.sum()))
        found["dice"].append(true_dice(truth, saved, labels))
        found["expected_ml"].append(voxel_ml * p.sum())
        found["true_ml"].append(voxel_ml * np.isin(truth, labels).sum())
    return found


@pytest.mark.parametrize("structure", ["one", "two"])
def test_it_is_the_fit_of_what_a_loop_computes(calibration: tuple[Path, Path], fitted: Path, structure: str) -> None:
    values, one = loop(calibration, structure), ReviewFit.read(fitted).structures[structure]
    epsilon_ml = 10 * voxel_ml_of(calibration[1], "a")
    volume = fit_volume(values["expected_ml"], values["true_ml"], epsilon_ml=epsilon_ml)
    assert (one.volume.low, one.volume.high) == pytest.approx((volume.low, volume.high))
    dice = fit_dice(values["predicted"], values["dice"], kind="linear")
    assert one.dice is not None
    assert one.dice.margin == pytest.approx(dice.margin)
    assert one.dice.expected([0.7, 0.9]) == pytest.approx(dice.expected([0.7, 0.9]))


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_any_recall_can_be_asked(calibration: tuple[Path, Path], fitted: Path, alpha: float) -> None:
    rates = []
    for name in NAMES:
        p, truth = probabilities(calibration[1], name)[2], labels_of(calibration[0], name) == 2
        rates.append([(p[truth].astype(np.float64) < threshold).mean() for threshold in THRESHOLDS])
    assert ReviewFit.read(fitted).recall_threshold("two", alpha) == recall_threshold(rates, alpha=alpha)


def test_recall_thresholds_that_cannot_be_had(fitted: Path) -> None:
    review_fit = ReviewFit.read(fitted)
    with pytest.raises(ValueError, match=r"fit\.json has no structure 'three'; it has one, two\.$"):
        review_fit.recall_threshold("three", 0.1)
    with pytest.raises(ValueError, match=r"fit\.json: one: 24 calibration cases are too few: alpha 0.01 needs"):
        review_fit.recall_threshold("one", 0.01)
    with pytest.raises(ValueError, match="no calibration case has the structure"):
        MissedShare.of([]).threshold(0.1)


def test_equal_thresholds_are_stored_once() -> None:
    rates = np.repeat([0.0, 0.25, 1.0], [100, 300, THRESHOLDS.size - 400])
    stored = MissedShare.of([rates] * 30)
    assert len(stored.thresholds) == 4
    for alpha in (0.05, 0.2, 0.3, 0.6):
        assert stored.threshold(alpha) == recall_threshold([rates] * 30, alpha=alpha)


def test_the_list_has_intervals(new: tuple[Path, Path], fitted: Path) -> None:
    review = review_folder(new[1], fit=fitted, gt_folder=new[0])
    fit_of = ReviewFit.read(fitted).structures
    for row in review.rows:
        one = fit_of[row.structure]
        low, high = one.volume.interval_ml(row.volume_ml)
        assert (row.volume_low_ml, row.volume_high_ml) == (float(low), float(high))
        assert one.dice is not None
        assert row.fitted_dice == row.trust == float(one.dice.expected(row.predicted_dice))
        assert row.dice_low == float(one.dice.lower_bound(row.predicted_dice))
    every = review.judgements[-1]
    inside = [row.volume_low_ml <= row.true_ml <= row.volume_high_ml for row in review.rows]  # type: ignore[operator]
    assert every.interval_coverage == pytest.approx(np.mean(inside))
    width = [row.volume_high_ml - row.volume_low_ml for row in review.rows]  # type: ignore[operator]
    assert every.interval_width_ml == pytest.approx(np.mean(width))
    assert every.fitted_dice_error == pytest.approx(np.mean([abs(row.fitted_dice - row.dice) for row in review.rows]))  # type: ignore[operator]


def test_held_out_by_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fold is judged with the fit that the others give."""
    folds = [[f"{letter}" for letter in letters] for letters in ("abcdefghijkl", "mnopqrstuvwx")]
    model, preprocessed = write_model(tmp_path, ["".join(fold) for fold in folds])
    predictions = Predictions.of_validation(model, preprocessed, [0, 1])
    result = fit_review(predictions, coverage=0.8, output=tmp_path / "both.json")
    assert [part.part for part in result.held_out.parts] == ["fold 0", "fold 1"]
    other = fit_review(Predictions.of_validation(model, preprocessed, [1]), coverage=0.8, output=tmp_path / "one.json")
    judged = review_folder(
        model / "fold_0" / "validation",
        output=tmp_path / "list.csv",
        fit=tmp_path / "one.json",
        gt_folder=preprocessed / "gt_segmentations",
    )
    assert other.structures != result.structures
    for one, same in zip(result.held_out.parts[0].judgements, judged.judgements, strict=True):
        assert one.missed is not None
        assert replace(one, missed=None) == same
    pooled = result.held_out.judgements[-1]
    assert pooled.num_cases == 48
    parts = [part.judgements[-1].dice_error for part in result.held_out.parts]
    assert pooled.dice_error == pytest.approx(np.mean(parts))  # type: ignore[arg-type]
    assert ReviewFit.read(tmp_path / "both.json") == result

    monkeypatch.setenv("nnUNet_preprocessed", str(preprocessed.parent))
    monkeypatch.setenv("nnUNet_results", str(model.parents[1]))
    monkeypatch.setenv("nnUNet_raw", str(tmp_path))
    options = ["-d", "Dataset001_Toy", "-c", "2d", "-tr", "nnUNetTrainerNACL", "-f", "0", "1", "--coverage", "0.8"]
    assert main(["review", "fit", *options, "-np", "1"]) == 0
    assert ReviewFit.read(model / "review_fit.json") == result


def test_too_few_cases_are_refused(tmp_path: Path) -> None:
    folders = write_folder(tmp_path, "abcd", structure=True)
    with pytest.raises(ValueError, match=r"^one: 4 calibration cases are too few: a coverage of 0.9 needs at least 19"):
        fit_review(Predictions.of_folder(*folders))
    assert not (folders[1] / "review_fit.json").exists()
    with pytest.raises(ValueError, match=r"^coverage must be above 0 and below 1; got 1\.0"):
        fit_review(Predictions.of_folder(*folders), coverage=1.0)
    with pytest.raises(ValueError, match=r"^fold all is validated on"):
        fit_review(replace(Predictions.of_folder(*folders), groups={"fold all": []}))


def test_a_structure_that_is_hardly_segmented_has_no_dice(calibration: tuple[Path, Path], tmp_path: Path) -> None:
    truth, predictions = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in calibration)
    for name in NAMES[:15]:
        p = probabilities(predictions, name).copy()
        p[0] += 0.7 * p[2]
        p[2] *= 0.3
        labels = p.argmax(0)
        np.savez_compressed(predictions / f"{name}.npz", probabilities=p)
        image = sitk.ReadImage(str(predictions / f"{name}{ENDING}"))
        changed = sitk.GetImageFromArray(labels.astype(np.uint8))
        changed.CopyInformation(image)
        sitk.WriteImage(changed, str(predictions / f"{name}{ENDING}"))
    result = fit_review(Predictions.of_folder(truth, predictions))
    assert result.structures["one"].dice is not None
    assert result.structures["two"].dice is None
    assert "are too few to check the map" in (result.structures["two"].no_dice or "")
    assert "no Dice: Half of the calibration cases" in result.summary()


def test_a_bad_case_is_named_and_the_others_are_fitted(
    calibration: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, predictions = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in calibration)
    (truth / f"a{ENDING}").unlink()
    (predictions / "b.npz").write_bytes(b"PK")
    command = ["review", "fit", str(truth), str(predictions), "-np", "1"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "skipped b: " in error
    assert "skipped a: " not in error  # it has no ground truth: there is nothing to fit to
    stored = ReviewFit.read(predictions / "review_fit.json")
    assert len(stored.cases) == 22
    assert [entry.case for entry in stored.skipped] == ["b"]


def test_fits_of_others_are_refused(new: tuple[Path, Path], fitted: Path, calibration: tuple[Path, Path]) -> None:
    dataset_json = new[1] / "dataset.json"
    content = json.loads(dataset_json.read_text())
    dataset_json.write_text(json.dumps({**content, "labels": {"background": 0, "one": 2, "two": 1}}))
    with pytest.raises(ValueError, match=r"fit\.json cannot be used for .*: it was fitted to the labels"):
        review_folder(new[1], fit=fitted)
    dataset_json.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"was fitted to 24 of the 24 cases in .*: a, b, c, d, e, …\. It would look"):
        review_folder(calibration[1], fit=fitted, output=new[0].parent / "list.csv")
    forced = review_folder(calibration[1], fit=fitted, output=new[0].parent / "list.csv", force=True)
    assert forced.fitted_to_same_cases == list(NAMES)
    assert forced.notes[-1] == "The fit was fitted to 24 of these cases: what it says of them is too good."


def test_a_fit_to_other_probabilities_is_refused(new: tuple[Path, Path], fitted: Path, tmp_path: Path) -> None:
    calibrated = tmp_path / "calibrated"
    calibrate_folder(Predictions.of_folder(*new), tmp_path / "temperature.json", method="temperature")
    apply_folder(tmp_path / "temperature.json", new[1], calibrated, force=True)
    with pytest.raises(ValueError, match=r"that are not calibrated, and these are calibrated \(temperature "):
        review_folder(calibrated, fit=fitted)


def test_spacing_in_another_unit_is_refused(new: tuple[Path, Path], fitted: Path) -> None:
    file = new[1] / f"new_x{ENDING}"
    image = sitk.ReadImage(str(file))
    image.SetSpacing([step / 10 for step in image.GetSpacing()])
    sitk.WriteImage(image, str(file))
    review = review_folder(new[1], fit=fitted)
    (skipped,) = review.skipped
    assert skipped.case == "new_x"
    assert "Is the spacing in another unit than mm?" in skipped.reason
    assert {row.case for row in review.rows} == {"new_y", "new_z"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content.pop("fit"), "is no review fit of nnunet_nacl: it has no 'fit'"),
        (lambda content: content.update(format="fit"), "is no review fit of nnunet_nacl: its format is 'fit'"),
        (lambda content: content["fit"]["cases"].append("y"), "the list of cases is not the one"),
        (lambda content: content["fit"].update(coverage="high"), "fit.coverage: expected a number"),
        (lambda content: content["fit"]["structures"]["one"]["missed"]["mean"].pop(), "as many means as thresholds"),
    ],
)
def test_damaged_files_are_refused(fitted: Path, tmp_path: Path, damage: object, message: str) -> None:
    content = json.loads(fitted.read_text())
    damage(content)  # type: ignore[operator]
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError) as error:
        ReviewFit.read(file)
    assert str(error.value).startswith(str(file))
    assert message in str(error.value)
