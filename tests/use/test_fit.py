import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.calibrate import apply_folder, calibrate_folder
from nnunet_nacl.cli import main
from nnunet_nacl.metrics import RECALL_THRESHOLDS
from nnunet_nacl.nnunet import CALIBRATED_NAME, Predictions, calibration_of
from nnunet_nacl.use import (
    ReviewFit,
    decode_folder,
    fit_dice,
    fit_review,
    fit_volume,
    recall_threshold,
    review_folder,
)  # fmt: skip
from tests.generated import ENDING, VOXEL_ML, probabilities, read, true_dice, write_folder, write_model

NAMES = "abcdefghijklmnopqrstuvwx"  # 24 cases: 19 are needed for intervals of 90 %, 17 for bounds of the Dice


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_folder(tmp_path_factory.mktemp("calibration"), NAMES, first=100, structure=True)


@pytest.fixture(scope="module")
def fitted(calibration: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fit") / "fit.json"
    assert main(["review", "fit", *map(str, calibration)]) == 0
    return (calibration[1] / "review_fit.json").rename(file)


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    """Cases that the fit does not know."""
    return write_folder(tmp_path / "new", ["new_x", "new_y"], structure=True)


@pytest.mark.parametrize("label", [1, 2])
def test_it_is_the_fit_of_what_a_loop_computes(calibration: tuple[Path, Path], fitted: Path, label: int) -> None:
    predicted, dice, expected_ml, true_ml, missed = [], [], [], [], []
    for name in NAMES:
        p = probabilities(calibration[1], name)[label].astype(np.float64)
        truth, saved = (read(folder / f"{name}{ENDING}") for folder in calibration)
        predicted.append(2 * p[saved == label].sum() / (p.sum() + (saved == label).sum()))
        dice.append(true_dice(truth, saved, [label]))
        expected_ml.append(VOXEL_ML * p.sum())
        true_ml.append(VOXEL_ML * (truth == label).sum())
        missed.append([(p[truth == label] < threshold).mean() for threshold in RECALL_THRESHOLDS])
    fit, structure = ReviewFit.read(fitted), ["one", "two"][label - 1]
    found, volume = fit.structures[structure], fit_volume(expected_ml, true_ml, epsilon_ml=10 * VOXEL_ML)
    assert (found.volume.low, found.volume.high) == pytest.approx((volume.low, volume.high))
    of_dice = fit_dice(predicted, dice)
    assert found.dice is not None
    assert found.dice.margin == pytest.approx(of_dice.margin)
    assert found.dice.expected([0.7, 0.9]) == pytest.approx(of_dice.expected([0.7, 0.9]))
    for alpha in (0.05, 0.1, 0.3):
        assert fit.recall_threshold(structure, alpha) == recall_threshold(np.mean(missed, axis=0), 24, alpha)


def test_the_list_has_intervals(new: tuple[Path, Path], fitted: Path, tmp_path: Path) -> None:
    review = review_folder(new[1], fit=fitted, gt_folder=new[0])
    table = review.table
    for row in table.itertuples():
        fit = ReviewFit.read(fitted).structures[row.structure]
        assert (row.volume_low_ml, row.volume_high_ml) == fit.volume.interval_ml(row.volume_ml)
        assert fit.dice is not None
        assert row.fitted_dice == row.trust == float(fit.dice.expected(row.predicted_dice))
        assert row.dice_low == float(fit.dice.lower_bound(row.predicted_dice))
        outside = not row.volume_low_ml <= row.segmented_ml <= row.volume_high_ml
        assert any("the interval of the expected volume" in reason for reason in row.reasons) == outside
    known = ReviewFit.read(fitted).held_out  # the least: 0.9 − 2 √(0.9 · 0.1 / 24) = 0.78
    worse = replace(ReviewFit.read(fitted), held_out=[one | {"bound_coverage": 0.77} for one in known])
    (tmp_path / "worse.json").write_text(json.dumps(asdict(worse), default=str))
    warned = review_folder(new[1], fit=tmp_path / "worse.json").notes
    assert "the Dice of one: it held in 77 % of the held-out cases, not in 90 %." in warned[0]
    assert warned[0] in worse.summary()
    few = [one | {"num_bounds": 20} for one in worse.held_out]  # the least: 0.9 − 2 √(0.9 · 0.1 / 20) = 0.766
    assert "Do not rely on the bound" not in replace(worse, held_out=few).summary()
    assert review.notes == []
    every = review.judgements[-1]
    assert every["interval_coverage"] == table.true_ml.between(table.volume_low_ml, table.volume_high_ml).mean()
    assert every["interval_width_ml"] == pytest.approx((table.volume_high_ml - table.volume_low_ml).mean())
    assert every["fitted_dice_error"] == pytest.approx((table.fitted_dice - table.dice).abs().mean())


def test_a_fit_to_the_working_folder(
    model: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves everywhere, and knows whether the fold has a calibrated checkpoint."""
    folder = Path(shutil.copytree(model[0], tmp_path / model[0].name)) / "fold_0"
    (folder / "checkpoint_calibrated.pth").touch()
    for kind in ("validation", "validation_calibrated"):
        monkeypatch.chdir(folder / kind)
        predictions = Predictions.of_folder(model[1] / "gt_segmentations", ".")
        fit_review(predictions, coverage=0.8, output=tmp_path / f"{kind}.json")
        monkeypatch.chdir(tmp_path)
        notes = review_folder(new[1], fit=f"{kind}.json").notes
        assert "does not say which checkpoint made it" in notes[-1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A trained model of two folds with ``fold_X/validation_calibrated``, each fold calibrated by a fit of its own."""
    folder = tmp_path_factory.mktemp("model")
    model, preprocessed = write_model(folder, [NAMES[:12], NAMES[12:]])
    for fold in (0, 1):
        file, made = folder / f"temperature_{fold}.json", folder / f"calibrated_{fold}"
        calibrate_folder(Predictions.of_model(model, [fold], preprocessed=preprocessed), file, method="temperature")
        content = json.loads(file.read_text())
        content["provenance"]["cases"] = []  # else it is refused cases of the fit
        file.write_text(json.dumps(content))
        apply_folder(file, model / f"fold_{fold}" / "validation", made)
        shutil.move(made, model / f"fold_{fold}" / "validation_calibrated")
        shutil.copy(file, model / f"fold_{fold}" / "calibration.json")
    return model, preprocessed


def validation_of(model: tuple[Path, Path], folds: list[int], validation: str = "validation") -> Predictions:
    return Predictions.of_model(model[0], folds, validation=validation, preprocessed=model[1])


def test_held_out_by_fold(model: tuple[Path, Path], tmp_path: Path) -> None:
    """Each fold is judged with the fit that the other one gives."""
    truth, pooled = model[1] / "gt_segmentations", []
    result = fit_review(validation_of(model, [0, 1]), coverage=0.8, output=tmp_path / "both.json")
    for fold in (0, 1):
        trained = validation_of(model, [1 - fold])
        other = fit_review(trained, coverage=0.8, output=tmp_path / f"{fold}.json")
        assert other.structures != result.structures
        folder = model[0] / f"fold_{fold}" / "validation"
        review = review_folder(folder, fit=other.file, gt_folder=truth, output=tmp_path / f"l{fold}.csv")
        pooled += review.judgements[:-1]
    for number, found in enumerate(result.held_out[:-1]):
        both = (pooled[number], pooled[number + 2])
        assert found["num_cases"] == 24
        for name in ("dice_error", "fitted_dice_error", "bound_coverage", "interval_coverage", "interval_width_ml"):
            assert found[name] == pytest.approx(np.mean([one[name] for one in both]))
        assert 0 < found["missed"] < 0.4
    assert ReviewFit.read(tmp_path / "both.json") == result


def test_calibrated_folds(model: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path) -> None:
    predictions = validation_of(model, [0, 1], validation="validation_calibrated")
    for folds in ([0], [0, 1]):
        of_folds = validation_of(model, folds, validation="validation_calibrated")
        found = fit_review(of_folds, coverage=0.8, output=tmp_path / "fit.json", overwrite=True)
        assert set(found.provenance.calibration) == set(map(calibration_of, of_folds.pred_folders))
        review = review_folder(new[1], fit=found.file)  # as nnUNetv2_predict leaves those of a checkpoint
        assert not review.skipped
        which = "does not say which checkpoint made it: the fit is valid only for the calibrated one"
        assert which in review.notes[-1]
        decoded = decode_folder(new[1], tmp_path / "decoded", fit=found.file, overwrite=True)
        assert which in decoded.summary()
    (predictions.pred_folders[0].parent / "checkpoint_calibrated.pth").touch()
    as_trained = fit_review(validation_of(model, [0, 1]), coverage=0.8, output=tmp_path / "raw.json")
    assert "valid only for the one as trained" in review_folder(new[1], fit=as_trained.file).notes[-1]
    marked = Path(shutil.copytree(new[1], tmp_path / "marked"))
    shutil.copy(predictions.pred_folders[0] / CALIBRATED_NAME, marked)
    uncalibrated = validation_of(model, [0, 1])
    as_trained = fit_review(uncalibrated, coverage=0.8, output=tmp_path / "as_trained.json")
    with pytest.raises(ValueError, match=r"not calibrated; these are predictions that are calibrated \(temper"):
        review_folder(marked, fit=as_trained.file)
    of_one_fit = replace(
        found, pred_folders=[str(new[1])], provenance=replace(found.provenance, calibration=["head@1a"])
    )
    with pytest.raises(ValueError, match=r"calibrated \(head@1a\); these are predictions that are not calib"):
        of_one_fit.check(Predictions.of_folder(None, new[1]).provenance, new[1])
    mixed = replace(predictions, pred_folders=(predictions.pred_folders[0], model[0] / "fold_1" / "validation"))
    with pytest.raises(ValueError, match="The folders are not calibrated and decoded alike"):
        fit_review(mixed, output=tmp_path / "mixed.json")


def test_a_fit_to_folds_that_were_calibrated_otherwise_since(
    model: tuple[Path, Path], new: tuple[Path, Path], tmp_path: Path
) -> None:
    """New predictions of the calibrated checkpoint have no mark."""
    copied = Path(shutil.copytree(model[0], tmp_path / model[0].name)), model[1]
    found = fit_review(validation_of(copied, [0, 1], validation="validation_calibrated"), coverage=0.8)
    earlier = replace(found, provenance=replace(found.provenance, calibration=["temperature"]))
    made, since = Predictions.of_folder(None, new[1]).provenance, "was calibrated otherwise since"
    assert len(found.check(made, new[1])) == 1
    with pytest.raises(ValueError, match=since):
        earlier.check(made, new[1])
    file = copied[0] / "fold_1" / "calibration.json"
    content = json.loads(file.read_text())
    content["calibration"]["temperature"] *= 2
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=since):
        found.check(made, new[1])
    found.check(replace(made, calibration=found.provenance.calibration[:1]), new[1])  # marked as of the same fit
    shutil.rmtree(copied[0])
    for fit in (found, earlier):
        assert "valid only for the calibrated one" in fit.check(made, new[1])[-1]


def test_one_case_of_each_patient_is_fitted(
    calibration: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four patients with five images each are no 20 independent cases."""
    names = [f"patient{number // 5}_{number}" for number in range(20)]
    truth, predictions = write_folder(tmp_path / "few", names, structure=True)
    assert main(["review", "fit", str(truth), str(predictions), "--by_patient"]) == 1
    assert "4 calibration cases are too few: a coverage of 0.9 needs at least 19" in capsys.readouterr().err
    for folder in calibration:  # 24 cases of 12 patients
        shutil.copytree(folder, tmp_path / folder.name)
        for number, name in enumerate(NAMES):
            for file in list((tmp_path / folder.name).glob(f"{name}.*")):
                file.rename(file.with_name(file.name.replace(name, f"p{number // 2}_{number}", 1)))
    twice = Predictions.of_folder(*(tmp_path / folder.name for folder in calibration))
    fit = fit_review(twice, coverage=0.8, by_patient=True, output=tmp_path / "fit.json")
    assert "Fitted to one case of each of 12 patients" in fit.summary()
    assert len(fit.provenance.cases) == 24  # none of them is a new one
    assert len(fit.ignored) == 12
    assert all(structure.num_present == 12 for structure in fit.structures.values())
    assert fit.held_out[0]["num_cases"] == 12
    assert fit == ReviewFit.read(tmp_path / "fit.json")


def test_what_cannot_be_fitted_is_refused(tmp_path: Path) -> None:
    folders = Predictions.of_folder(*write_folder(tmp_path, "abcd", structure=True))
    with pytest.raises(ValueError, match=r"^4 calibration cases are too few: a coverage of 0.9 needs at least 19"):
        fit_review(folders)
    assert not (folders.pred_folders[0] / "review_fit.json").exists()
    trained = Predictions.of_folder(folders.gt_folder, shutil.copytree(folders.home, tmp_path / "fold_all/validation"))
    for fit in (fit_review, lambda given: calibrate_folder(given, tmp_path / "fit.json")):
        with pytest.raises(ValueError, match=r"^fold all is validated on"):
            fit(trained)


def test_bad_cases_are_named(
    calibration: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, predictions = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in calibration)
    (truth / f"a{ENDING}").unlink()
    (predictions / "b.npz").write_bytes(b"PK")
    assert main(["review", "fit", str(truth), str(predictions)]) == 1
    error = capsys.readouterr().err
    assert "skipped b: " in error
    assert "skipped a: " not in error  # it has no ground truth: there is nothing to fit to
    stored = ReviewFit.read(predictions / "review_fit.json")
    assert len(stored.provenance.cases) == 22
    assert [entry.case for entry in stored.skipped] == ["b"]
    assert "the quality of the fit is unknown" in stored.summary()  # 17 or 18 cases are too few


def test_fits_of_others_are_refused(new: tuple[Path, Path], fitted: Path) -> None:
    (new[1] / f"new_x{ENDING}").rename(new[1] / f"c{ENDING}")
    with pytest.raises(
        ValueError, match=r"fit\.json cannot be used for .*: it was fitted to 1 of its cases, such as c, which"
    ):
        review_folder(new[1], fit=fitted)


def test_a_fit_to_argmax_is_not_for_decoded_segmentations(new: tuple[Path, Path], fitted: Path, tmp_path: Path) -> None:
    decode_folder(new[1], tmp_path / "decoded")
    with pytest.raises(ValueError, match=r"that are not decoded; these are predictions that are decoded \(dice\)"):
        review_folder(tmp_path / "decoded", fit=fitted)
    decode_folder(tmp_path / "decoded", tmp_path / "again", fit=fitted, alpha=0.2)  # of the same probabilities
