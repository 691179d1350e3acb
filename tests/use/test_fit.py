import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.calibrate import apply_folder, calibrate_folder
from nnunet_nacl.cli import main
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.use import ReviewFit, fit_dice, fit_review, fit_volume, recall_threshold, review_folder
from nnunet_nacl.use._conformal import THRESHOLDS
from nnunet_nacl.use._fit import MissedShare
from tests.use.generated import (
    ENDING,
    STRUCTURES,
    VOXEL_ML,
    probabilities,
    read,
    true_dice,
    write_case,
    write_model,
    write_pair,
)

NAMES = "abcdefghijklmnopqrstuvwx"  # 24 cases: 19 are needed for intervals of 90 %, 17 for bounds of the Dice


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("calibration"), NAMES, first=100)


@pytest.fixture(scope="module")
def fitted(calibration: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fit") / "fit.json"
    assert main(["review", "fit", *map(str, calibration), "-np", "1", "-o", str(file)]) == 0
    return file


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    """Cases that the fit does not know."""
    truth, predictions = write_pair(tmp_path / "new", "xyz")
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
        truth, saved = (read(folder / f"{name}{ENDING}") for folder in calibration)
        inside = np.isin(saved, labels)
        found["predicted"].append(2 * p[inside].sum() / (p.sum() + inside.sum()))
        found["dice"].append(true_dice(truth, saved, labels))
        found["expected_ml"].append(VOXEL_ML * p.sum())
        found["true_ml"].append(VOXEL_ML * np.isin(truth, labels).sum())
    return found


@pytest.mark.parametrize("structure", ["liver", "left kidney"])
def test_it_is_the_fit_of_what_a_loop_computes(calibration: tuple[Path, Path], fitted: Path, structure: str) -> None:
    values, one = loop(calibration, structure), ReviewFit.read(fitted).structures[structure]
    volume = fit_volume(values["expected_ml"], values["true_ml"], epsilon_ml=10 * VOXEL_ML)
    assert (one.volume.low, one.volume.high) == pytest.approx((volume.low, volume.high))
    dice = fit_dice(values["predicted"], values["dice"], kind="linear")
    assert one.dice is not None
    assert one.dice.margin == pytest.approx(dice.margin)
    assert one.dice.expected([0.7, 0.9]) == pytest.approx(dice.expected([0.7, 0.9]))


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_any_recall_can_be_asked(calibration: tuple[Path, Path], fitted: Path, alpha: float) -> None:
    rates = []
    for name in NAMES:
        p, truth = probabilities(calibration[1], name)[2], read(calibration[0] / f"{name}{ENDING}") == 2
        rates.append([(p[truth].astype(np.float64) < threshold).mean() for threshold in THRESHOLDS])
    assert ReviewFit.read(fitted).recall_threshold("left kidney", alpha) == recall_threshold(rates, alpha=alpha)


def test_recall_thresholds_that_cannot_be_had(fitted: Path) -> None:
    review_fit = ReviewFit.read(fitted)
    with pytest.raises(ValueError, match=r"fit\.json has no structure 'three'; it has liver, left kidney\.$"):
        review_fit.recall_threshold("three", 0.1)
    with pytest.raises(ValueError, match=r"fit\.json: liver: 24 calibration cases are too few: alpha 0.01 needs"):
        review_fit.recall_threshold("liver", 0.01)
    with pytest.raises(ValueError, match="no calibration case has the structure"):
        MissedShare.of([]).threshold(0.1)


def test_the_list_has_intervals(new: tuple[Path, Path], fitted: Path) -> None:
    review = review_folder(new[1], fit=fitted, gt_folder=new[0])
    fit_of = ReviewFit.read(fitted).structures
    for row in review.rows:
        one = fit_of[row.structure]
        low, high = one.volume.interval_ml(row.volume_ml)
        assert (row.volume_low_ml, row.volume_high_ml) == (low, high)
        assert one.dice is not None
        assert row.fitted_dice == row.trust == float(one.dice.expected(row.predicted_dice))
        assert row.dice_low == float(one.dice.lower_bound(row.predicted_dice))
    every = review.judgements[-1]
    inside = [row.volume_low_ml <= row.true_ml <= row.volume_high_ml for row in review.rows]  # type: ignore[operator]
    assert every.interval_coverage == pytest.approx(np.mean(inside))
    width = [row.volume_high_ml - row.volume_low_ml for row in review.rows]  # type: ignore[operator]
    assert every.interval_width_ml == pytest.approx(np.mean(width))
    assert every.fitted_dice_error == pytest.approx(np.mean([abs(row.fitted_dice - row.dice) for row in review.rows]))  # type: ignore[operator]


def test_held_out_by_fold(tmp_path: Path) -> None:
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


def test_too_few_cases_are_refused(tmp_path: Path) -> None:
    folders = write_pair(tmp_path, "abcd")
    with pytest.raises(
        ValueError, match=r"^liver: 4 calibration cases are too few: a coverage of 0.9 needs at least 19"
    ):
        fit_review(Predictions.of_folder(*folders))
    assert not (folders[1] / "review_fit.json").exists()
    with pytest.raises(ValueError, match=r"^coverage must be above 0 and below 1; got 1\.0"):
        fit_review(Predictions.of_folder(*folders), coverage=1.0)
    with pytest.raises(ValueError, match=r"^seed must be at least 0; got -1"):
        fit_review(Predictions.of_folder(*folders), seed=-1)
    with pytest.raises(ValueError, match=r"^fold all is validated on"):
        fit_review(replace(Predictions.of_folder(*folders), groups={"fold all": []}))


def test_a_structure_that_is_hardly_segmented_has_no_dice(calibration: tuple[Path, Path], tmp_path: Path) -> None:
    truth, predictions = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in calibration)
    for name in NAMES[:15]:
        p = probabilities(predictions, name).copy()
        p[0] += 0.7 * p[2]
        p[2] *= 0.3
        write_case(predictions, name, p)
    result = fit_review(Predictions.of_folder(truth, predictions))
    assert result.structures["liver"].dice is not None
    assert result.structures["left kidney"].dice is None
    assert "are too few to check the map" in (result.structures["left kidney"].no_dice or "")
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
    dataset_json.write_text(json.dumps({**content, "labels": {"background": 0, "liver": 2, "left kidney": 1}}))
    with pytest.raises(ValueError, match=r"fit\.json cannot be used for .*: it was fitted to the labels"):
        review_folder(new[1], fit=fitted)
    dataset_json.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"was fitted to 24 of the 24 cases in .*: a, b, c, d, e, …\. It would look"):
        review_folder(calibration[1], fit=fitted, output=new[0].parent / "list.csv")
    forced = review_folder(calibration[1], fit=fitted, output=new[0].parent / "list.csv", force=True)
    assert forced.notes[-1] == "The fit was fitted to 24 of these cases: what it says of them is too good."


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
        (lambda content: content.pop("fit"), "fit: Field required"),
        (lambda content: content.update(format="fit"), "format: Input should be 'review fit of nnunet_nacl'"),
        (lambda content: content["fit"].update(coverage="high"), "fit.coverage: Input should be a valid number"),
        (lambda content: content["fit"]["structures"]["liver"]["missed"]["mean"].pop(), "as many means as thresholds"),
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
    assert "\n" not in str(error.value)


def test_a_structure_that_was_removed_by_hand(new: tuple[Path, Path], fitted: Path, tmp_path: Path) -> None:
    content = json.loads(fitted.read_text())
    del content["fit"]["structures"]["liver"]
    (tmp_path / "changed.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"changed\.json has the structures \['left kidney'\], and "):
        review_folder(new[1], fit=tmp_path / "changed.json")


def test_a_fit_to_argmax_is_not_for_decoded_segmentations(new: tuple[Path, Path], fitted: Path, tmp_path: Path) -> None:
    assert main(["decode", str(new[1]), "-o", str(tmp_path / "decoded"), "-np", "1"]) == 0
    with pytest.raises(ValueError, match=r"to segmentations that are not decoded, and these are decoded \(dice\)"):
        review_folder(tmp_path / "decoded", fit=fitted)
    recall = ["--alpha", "0.2", "--fit", str(fitted)]  # thresholds are of the same probabilities
    assert main(["decode", str(tmp_path / "decoded"), "-o", str(tmp_path / "again"), "-np", "1", *recall]) == 0
    assert read_mark(tmp_path / "again")["metric"] == "recall"


def read_mark(folder: Path) -> dict:
    return json.loads((folder / "decoded.json").read_text())


@pytest.fixture
def calibrated_model(tmp_path: Path) -> tuple[Path, Path]:
    """A model with ``fold_X/validation_calibrated``, each fold calibrated by a fit of its own."""
    model, preprocessed = write_model(tmp_path, [NAMES[:12], NAMES[12:]])
    for fold in (0, 1):
        temperature = tmp_path / f"temperature_{fold}.json"
        calibrate_folder(Predictions.of_validation(model, preprocessed, [fold]), temperature, method="temperature")
        apply_folder(temperature, model / f"fold_{fold}" / "validation", tmp_path / f"made_{fold}" / "out", force=True)
        shutil.move(tmp_path / f"made_{fold}" / "out", model / f"fold_{fold}" / "validation_calibrated")
    return model, preprocessed


def test_folds_calibrated_each_by_its_own_fit(
    calibrated_model: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path
) -> None:
    predictions = Predictions.of_validation(*calibrated_model, [0, 1], validation="validation_calibrated")
    found = fit_review(predictions, coverage=0.8, output=tmp_path / "fit.json")
    assert found.calibration == "temperature, each fold by its own fit"
    assert [part.part for part in found.held_out.parts] == ["fold 0", "fold 1"]
    one = Predictions.of_validation(*calibrated_model, [0], validation="validation_calibrated")
    assert (
        fit_review(one, coverage=0.8, output=tmp_path / "one.json").calibration
        == "temperature, each fold by its own fit"
    )
    assert not review_folder(new[1], fit=tmp_path / "one.json", output=tmp_path / "list_one.csv").skipped
    same = calibrated_model[0] / "fold_0" / "validation_calibrated"
    assert not review_folder(same, fit=tmp_path / "fit.json", force=True, output=tmp_path / "a.csv").skipped
    unmarked = review_folder(new[1], fit=tmp_path / "fit.json")  # as nnUNetv2_predict leaves those of a checkpoint
    assert "has no mark of one: it must come from the calibrated checkpoints" in unmarked.notes[-1]
    (same / "posthoc_applied.json").unlink()
    with pytest.raises(ValueError, match="Some of the folders are calibrated, and some are not"):
        fit_review(predictions, coverage=0.8, output=tmp_path / "mixed.json")
