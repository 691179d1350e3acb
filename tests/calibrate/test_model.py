"""Real nnU-Net models: what nnUNetv2_predict does with the calibrated checkpoint."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2

from nnunet_nacl.calibrate import AS_TRAINED, Fit, Score, apply_folder, calibrate_model
from nnunet_nacl.calibrate._features import FeatureReader
from nnunet_nacl.cli import main
from nnunet_nacl.export import export_model
from nnunet_nacl.nnunet import Predictions
from tests.calibrate.conftest import CASES, Copy, forward, open_fold, rewrite
from tests.conftest import TRAINER, TRAINER_OF_REGIONS, write_summary

pytestmark = pytest.mark.usefixtures("few_voxels")


def calibrate(model: Path, *folds: int | str, **options: object) -> list[tuple[Fit, Path]]:
    return list(calibrate_model(model, folds, use_mirroring=False, **options))


@pytest.mark.parametrize(("kind", "configuration"), [
    ("labels", "2d_small"),
    pytest.param("regions", "3d_small", marks=pytest.mark.slow),
    pytest.param("regions_ignore", "2d_small", marks=pytest.mark.slow),
])  # fmt: skip
def test_logits_are_the_affine_map(copy_of: Callable[..., Copy], kind: str, configuration: str) -> None:
    copy = copy_of(kind, configuration, TRAINER_OF_REGIONS if "3d" in configuration else TRAINER)
    image = torch.from_numpy(
        np.random.default_rng(0).normal(size=(1, 1, *[16] * int(configuration[0]))).astype(np.float32)
    )
    trained = forward(copy.model, "checkpoint_final.pth", image)
    flat = trained.reshape(len(trained), -1)
    kept = {name: content for name, content in files_of(copy.model).items() if "checkpoint_" in name}
    for method in ("temperature", "head"):
        ((fit, _),) = calibrate(copy.model, 0, method=method, overwrite=True)
        calibrated = forward(copy.model, "checkpoint_calibrated.pth", image).reshape(flat.shape)
        assert fit == Fit.read(copy.model / "fold_0" / "calibration.json")
        its = {name: np.array(value) for name, value in vars(fit.calibration).items()}
        if method == "head":
            reader = open_fold(copy.model).reader
            reader.convolution.forward = lambda features: features
            with torch.no_grad():
                features = reader.predictor.network(image)[0].numpy().astype(float)
            expected = its["weight"] @ features.reshape(len(features), -1) + its["bias"][:, None]
        else:
            expected = flat / its["temperature"]
        assert calibrated == pytest.approx(expected, abs=1e-5 * max(1, np.abs(expected).max()))
    assert kept.items() <= files_of(copy.model).items()


def test_a_stock_nnunet_predicts_with_it(copy: Copy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = export_model(copy.model).rename(copy.model.with_name("nnUNetTrainer__nnUNetPlans__2d_small"))
    before = {file for file in model.rglob("*") if file.is_file()}
    command = ["calibrate", "-d", "901", "-c", "2d_small", "-device", "cpu", "-f", "0"]
    assert main([*command, "--method", "temperature", "--npz"]) == 0
    printed = capfd.readouterr().out
    assert "as trained" in printed
    assert "nnUNetv2_predict -d 901 -c 2d_small -tr nnUNetTrainer -p nnUNetPlans -f 0 -chk checkpoint_cal" in printed
    assert "nnunet_nacl evaluate -d 901 -c 2d_small -tr nnUNetTrainer -p nnUNetPlans -f 0 --calibrated" in printed
    assert "review fit" not in printed  # of five cases
    fold = model / "fold_0"
    written = {file for file in model.rglob("*") if file.is_file()} - before
    folder = fold / "validation_calibrated"
    validation = {folder / f"{case}{ending}" for case in CASES[:5] for ending in (".npz", ".pkl", ".nii.gz")}
    mark = folder / "calibration_applied.json"
    assert written == {fold / "checkpoint_calibrated.pth", fold / "calibration.json", mark, *validation}

    assert main(["evaluate", "-d", "901", "-c", "2d_small", "-f", "0", "--calibrated"]) == 0
    capfd.readouterr()

    shutil.copytree(fold, model / "fold_1")
    (model / "fold_1" / "checkpoint_calibrated.pth").unlink()
    assert main([*command, "1"]) == 1  # before any work
    assert (
        "fold_0/checkpoint_calibrated.pth exists. Choose another name, or replace it with --" in capfd.readouterr().err
    )
    assert not (model / "fold_1" / "checkpoint_calibrated.pth").exists()

    for name, checkpoint in (("trained", "checkpoint_final.pth"), ("calibrated", "checkpoint_calibrated.pth")):
        copy.nnunet.run(
            "nnUNetv2_predict", "-d", 901, "-c", "2d_small", "-i", copy.raw / "imagesTr", "-o", tmp_path / name,
            "-f", 0, "-chk", checkpoint, "-device", "cpu", "--save_probabilities", "-npp", 0, "-nps", 0,
            nnUNet_extTrainer="",
        )  # fmt: skip
    fit = json.loads((fold / "calibration.json").read_text())
    fit["provenance"]["cases"] = []  # else apply refuses cases of the fit
    (tmp_path / "fit.json").write_text(json.dumps(fit))
    apply_folder(tmp_path / "fit.json", tmp_path / "trained", tmp_path / "applied")
    for case in CASES:
        predicted, applied = (
            np.load(tmp_path / name / f"{case}.npz")["probabilities"] for name in ("calibrated", "applied")
        )
        gap = float(np.abs(predicted - applied)[:, :, 4:-4, 4:-4].max())
        assert gap < 0.02, gap  # nnU-Net averages logits in half precision


def files_of(model: Path) -> dict[str, bytes]:
    return {str(file.relative_to(model)): file.read_bytes() for file in model.rglob("*") if file.is_file()}


def test_each_run_leaves_its_own_files(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = copy.model / "fold_0"
    calibrate(copy.model, 0, method="temperature", save_probabilities=True)
    assert (fold / "validation_calibrated").is_dir()
    calibrate(copy.model, 0, method="head", overwrite=True)
    assert Fit.read(fold / "calibration.json").calibration.method == "head"
    assert not (fold / "validation_calibrated").exists()

    # Where nothing improves for certain, there is a checkpoint all the same, of the layer as trained.
    monkeypatch.setattr(Score, "shortcomings", lambda *_: ["does not improve"])
    ((fit, written),) = calibrate(copy.model, 0, overwrite=True)
    assert fit.calibration == AS_TRAINED
    assert written == fold / "checkpoint_calibrated.pth"
    image = torch.zeros(1, 1, 16, 16)
    as_trained = forward(copy.model, "checkpoint_final.pth", image)
    assert (forward(copy.model, "checkpoint_calibrated.pth", image) == as_trained).all()

    (fold / "checkpoint_calibrated.pth").rename(fold / "checkpoint_mine.pth")
    with pytest.raises(ValueError, match=r"checkpoint_mine\.pth is calibrated already"):
        calibrate(copy.model, 0, checkpoint="checkpoint_mine.pth")


def test_a_fold_that_was_trained_again(copy: Copy, tmp_path: Path) -> None:
    calibrate(copy.model, 0, method="temperature", save_probabilities=True)
    preprocessed = copy.preprocessed
    moved = shutil.copytree(copy.model, tmp_path / copy.model.name, copy_function=shutil.copyfile)
    for model in (copy.model, moved):  # a copy's files have other times
        Predictions.of_model(model, [0], validation="validation_calibrated", preprocessed=preprocessed)
        trained = torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)
        trained["network_weights"] = {key: value + 1 for key, value in trained["network_weights"].items()}
        torch.save(trained, model / "fold_0" / "checkpoint_final.pth")
        with pytest.raises(
            ValueError, match=r"calibrated before checkpoint_final\.pth changed: .* trained again since"
        ):
            Predictions.of_model(model, [0], validation="validation_calibrated", preprocessed=preprocessed)


def test_a_run_that_is_stopped_leaves_the_earlier_calibration(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = copy.model / "fold_0"
    calibrate(copy.model, 0, method="head", save_probabilities=True)
    earlier = files_of(copy.model)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("_model.save_prediction", "_fold.TrainedFold.write"):  # the latter writes the checkpoint
        with monkeypatch.context() as patch:
            patch.setattr(f"nnunet_nacl.calibrate.{step}", stopped)
            with pytest.raises(KeyboardInterrupt):
                calibrate(copy.model, 0, method="temperature", save_probabilities=True, overwrite=True)
        assert files_of(copy.model) == earlier
    with monkeypatch.context() as patch:  # while it is replaced, there is no checkpoint, which comes last
        patch.setattr(Path, "rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            calibrate(copy.model, 0, method="temperature", save_probabilities=True, overwrite=True)
    assert not (fold / "checkpoint_calibrated.pth").exists()
    calibrate(copy.model, 0, method="temperature", save_probabilities=True)
    assert Fit.read(fold / "calibration.json").calibration.method == "temperature"
    assert len(list((fold / "validation_calibrated").glob("*.npz"))) == 5


def test_a_fold_that_fails_does_not_keep_the_next_from_being_calibrated(
    copy: Copy, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model = copy.model.rename(copy.model.with_name("nnUNetTrainer__nnUNetPlans__2d_small"))
    shutil.copytree(model / "fold_0", model / "fold_1")
    rewrite(model, lambda weights: {key: value * torch.nan for key, value in weights.items()})
    command = ["calibrate", "-d", "901", "-c", "2d_small", "-device", "cpu", "--disable_tta", "-f", "0", "1", "1"]
    command += ["--method", "temperature"]
    with monkeypatch.context() as patch:
        patch.setattr("nnunet_nacl.calibrate._model.try_methods", out_of_memory)
        assert main(command) == 1
    assert "fold 1 was not calibrated: CUDA out of memory" in capfd.readouterr().err
    assert main(command) == 1
    printed, told = capfd.readouterr()
    assert "fold 0 was not calibrated: a calibration needs at least 5 cases" in told
    assert "0 of 5 have one. These cannot be used:\n  toy_0: the network's output is not finite." in told
    assert "-f 1 -chk checkpoint_calibrated.pth" in printed
    assert not (model / "fold_0" / "checkpoint_calibrated.pth").exists()
    assert (model / "fold_1" / "checkpoint_calibrated.pth").exists()


def spoil(copy: Copy, case: str) -> None:
    """Put a NaN into a preprocessed image."""
    folder = copy.preprocessed / "nnUNetPlans_2d"
    stored = nnUNetDatasetBlosc2(str(folder), [case])
    data, labels, _, properties = stored.load_case(case)
    image = np.array(data[:])
    image[0, 3, 3, 3] = np.nan
    written, shape = np.array(labels[:]), image.shape
    for file in (folder / f"{case}.b2nd", folder / f"{case}_seg.b2nd"):
        file.unlink()
    nnUNetDatasetBlosc2.save_case(image, written, properties, str(folder / case), shape, shape, shape, shape)


def test_a_bad_image_is_skipped_and_no_case_predicted_twice(
    copy: Copy, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy.preprocessed / "splits_final.json").write_text(json.dumps([{"train": [], "val": CASES}]))
    spoil(copy, "toy_0")
    predicted: list[object] = []
    features = FeatureReader.features
    monkeypatch.setattr(FeatureReader, "features", lambda self, image: predicted.append(0) or features(self, image))
    command = ["calibrate", "-d", "901", "-c", "2d_small", "-tr", TRAINER, "-device", "cpu", "-f", "0"]
    command += ["--method", "head", "--npz", "--disable_tta", "--overwrite"]
    assert main(command) == 1
    assert "skipped toy_0: the network's output is not finite." in capfd.readouterr().err
    fold = copy.model / "fold_0"
    fit = Fit.read(fold / "calibration.json")
    assert fit.provenance.cases == CASES[1:]
    assert [skipped.case for skipped in fit.skipped] == ["toy_0"]
    files = {file.stem: np.load(file)["probabilities"] for file in (fold / "validation_calibrated").glob("*.npz")}
    assert sorted(files) == CASES[1:]
    assert len(predicted) == 6
    assert not list(fold.glob(".features_*"))

    # Features of two cases take half of the disk: the others are predicted again.
    image = open_fold(copy.model).cases.load("toy_1")[0]
    size = 1.1 * features(open_fold(copy.model).reader, image).nbytes
    free = {0: 4 * size, 1: 3 * size, 2: 2 * size}
    monkeypatch.setattr(
        "shutil.disk_usage", lambda folder: SimpleNamespace(free=free[len(list(Path(folder).iterdir()))])
    )
    main(command)
    assert len(predicted) == 6 + 6 + 3
    for case, expected in files.items():
        again = np.load(fold / "validation_calibrated" / f"{case}.npz")["probabilities"]
        assert np.array_equal(again, expected)


def test_unseen_cases(copy: Copy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (copy.model / "fold_0").rename(copy.model / "fold_all")
    with pytest.raises(ValueError, match=r"with -i IMAGES -gt LABELS, or .* calibrate LABELS PREDICTIONS -o FIT\.json"):
        calibrate(copy.model, "all")
    images, labels = unseen_cases(copy, tmp_path)
    with pytest.raises(ValueError, match="--npz predicts validation cases: expected no -i IMAGES -gt LABELS"):
        calibrate(copy.model, "all", images=images, gt_folder=labels, save_probabilities=True)
    ((fit, written),) = calibrate(copy.model, "all", images=images, gt_folder=labels, method="head")
    assert written == copy.model / "fold_all" / "checkpoint_calibrated.pth"
    assert written.is_file()
    assert fit.provenance.cases == [f"new_{case}" for case in CASES]
    assert (fit.settings["fold"], fit.settings["images"]) == ("all", str(images))
    image = sitk.ReadImage(str(labels / "new_toy_1.nii.gz"))
    image[0, 0, 0] = 3  # would be the ignore label, if there were one
    for wrong, reason in (
        (image, "labels that are not in the data set: 3; known are 0, 1, 2"),
        (sitk.DICOMOrient(image, "RAS"), "does not lie where"),
    ):
        sitk.WriteImage(wrong, str(labels / "new_toy_1.nii.gz"))
        options = {"images": images, "gt_folder": labels, "method": "temperature", "overwrite": True}
        ((fit, _),) = calibrate(copy.model, "all", **options)
        assert [(one.case, reason in one.reason) for one in fit.skipped] == [("new_toy_1", True)]
        assert fit.provenance.cases == [f"new_{case}" for case in CASES if case != "toy_1"]
    shutil.copytree(copy.model / "fold_all", copy.model / "fold_0")  # of an ensemble of seeds
    (copy.preprocessed / "splits_final.json").write_text(json.dumps([{"train": CASES, "val": CASES}]))
    with pytest.raises(ValueError, match="trains on 6 of its validation cases"):
        calibrate(copy.model, 0, overwrite=True)
    calibrate(copy.model, 0, **options)
    shutil.move(images / "new_toy_0_0000.nii.gz", images / "toy_5_0000.nii.gz")
    shutil.move(labels / "new_toy_0.nii.gz", labels / "toy_5.nii.gz")
    with pytest.raises(ValueError, match="has toy_5, which folds were trained on"):
        calibrate(copy.model, "all", images=images, gt_folder=labels, overwrite=True)
    monkeypatch.delenv("nnUNet_preprocessed")  # where the model came from elsewhere, its cases are not known
    calibrate_model(copy.model, ["all"], images=images, gt_folder=labels, overwrite=True)


def test_folds_of_few_cases_share_a_temperature(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted to the cases of all folds, each as the fold predicts it that has not seen it."""
    shutil.copytree(copy.model / "fold_0", copy.model / "fold_1")
    splits = [{"train": CASES[3:], "val": CASES[:3]}, {"train": CASES[:3], "val": CASES[3:]}]
    (copy.preprocessed / "splits_final.json").write_text(json.dumps(splits))
    for folds, options in (([0], {}), ([0, 1], {"method": "head"})):
        with pytest.raises(ValueError, match=r"fold_0: .*; 3 of 3 have one\.\nGive several folds"):
            calibrate(copy.model, *folds, **options)
    with pytest.raises(ValueError, match=r"by_patient: .* expected a regular expression") as invalid:
        calibrate(copy.model, 0, by_patient="(")
    assert "several folds" not in str(invalid.value)
    (first, _), (second, written) = calibrate(copy.model, 0, 1, save_probabilities=True)
    assert first.calibration == second.calibration
    assert list(first.tried) == ["as trained", "temperature"]
    assert first.provenance.cases == CASES
    assert written == copy.model / "fold_1" / "checkpoint_calibrated.pth"
    for number, names in ((0, CASES[:3]), (1, CASES[3:])):
        folder = copy.model / f"fold_{number}" / "validation_calibrated"
        assert sorted(file.stem for file in folder.glob("*.npz")) == names
    splits = [{"train": CASES[4:], "val": CASES[:2]}, {"train": CASES[4:], "val": CASES[2:4]}]
    (copy.preprocessed / "splits_final.json").write_text(json.dumps(splits))
    monkeypatch.setattr(FeatureReader, "features", lambda *_: pytest.fail("before any work"))
    for by_patient, message in (
        (False, "^a calibration needs at least 5 cases .*; 4 of 4 have one"),
        ("x", "by_patient"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(copy.model, 0, 1, by_patient=by_patient, overwrite=True)


def unseen_cases(copy: Copy, folder: Path) -> tuple[Path, Path]:
    images, labels = folder / "images", folder / "labels"
    images.mkdir()
    labels.mkdir()
    for case in CASES:
        shutil.copy(copy.raw / "imagesTr" / f"{case}_0000.nii.gz", images / f"new_{case}_0000.nii.gz")
        shutil.copy(copy.raw / "labelsTr" / f"{case}.nii.gz", labels / f"new_{case}.nii.gz")
    return images, labels


@pytest.mark.slow
def test_nnunets_own_commands_in_a_calibrated_model(copy: Copy, tmp_path: Path) -> None:
    calibrate(copy.model, 0, method="temperature")
    ours = {name: data for name, data in files_of(copy.model).items() if "calibrat" in name}
    run = copy.nnunet.run

    def predict(name: str, configuration: str, checkpoint: str, **changed: str) -> Path:
        run("nnUNetv2_predict", "-d", 901, "-c", configuration, "-tr", TRAINER, "-f", 0, "-chk", checkpoint,
            "-i", copy.raw / "imagesTr", "-o", tmp_path / name, "-device", "cpu", "-npp", 1, "-nps", 1,
            "--save_probabilities", **changed)  # fmt: skip
        return tmp_path / name

    train = "nnUNetv2_train", 901, "2d_small", 0, "-tr", TRAINER, "-device", "cpu", "--npz"
    run(*train, "--val")
    before = predict("before", "2d_small", "checkpoint_final.pth")
    run(*train, "--c")
    run("nnUNetv2_find_best_configuration", 901, "-c", "2d_small", "-tr", TRAINER, "-f", 0, "-np", 1)
    after = predict("after", "2d_small", "checkpoint_final.pth")
    calibrated = predict("calibrated", "2d_small", "checkpoint_calibrated.pth")
    assert ours.items() <= files_of(copy.model).items()

    export_model(copy.model)
    checkpoints = "checkpoint_final.pth", "checkpoint_calibrated.pth"
    run("nnUNetv2_export_model_to_zip", "-d", 901, "-o", tmp_path / "model.zip", "-c", "2d_small_stock", "-f", 0,
        "-tr", TRAINER, "-chk", *checkpoints)  # fmt: skip
    elsewhere = {"nnUNet_results": str(tmp_path / "installed"), "nnUNet_extTrainer": ""}
    (tmp_path / "installed").mkdir()
    run("nnUNetv2_install_pretrained_model_from_zip", tmp_path / "model.zip", **elsewhere)
    for name, expected, checkpoint in zip(("a", "b"), (before, calibrated), checkpoints, strict=True):
        stock = predict(name, "2d_small_stock", checkpoint, **elsewhere)
        for case in CASES:
            saved = [np.load(folder / f"{case}.npz")["probabilities"] for folder in (expected, stock)]
            assert np.array_equal(*saved)
    for case in CASES:
        saved = [np.load(folder / f"{case}.npz")["probabilities"] for folder in (before, after)]
        assert np.array_equal(*saved)


def test_data_that_changed_since_the_training(copy: Copy) -> None:
    write_summary(copy.model / "fold_0", CASES[1:5])
    with pytest.raises(ValueError, match=r"s_final\.json has changed since fold 0 was trained: toy_0 is a validat"):
        calibrate(copy.model, 0)
    write_summary(copy.model / "fold_0", CASES[:5])  # its segmentations are not exported with a model
    plans = copy.preprocessed / "nnUNetPlans.json"
    content = json.loads(plans.read_text())
    content["foreground_intensity_properties_per_channel"]["0"]["std"] = float("nan")  # which differs from itself
    for file in (copy.model / "plans.json", plans):
        file.write_text(json.dumps(content))
    calibrate(copy.model, 0, method="temperature")
    content["configurations"]["2d"]["spacing"] = [3.0, 3.0]
    plans.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"nnUNetPlans\.json has changed since .* spacing is \[3\.0, 3\.0\], and \[1"):
        calibrate(copy.model, 0, overwrite=True)
