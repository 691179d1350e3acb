"""Local temperature scaling."""

import base64
import json
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.nibabel_reader_writer import NibabelIO
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from scipy.special import expit, logit
from skimage import io

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.posthoc import Fit, Link, LocalTemperature, Predictions, Sample, Temperature, apply_folder, fit
from nnunet_nacl.posthoc import _local as local
from nnunet_nacl.posthoc._surroundings import Images, around, scaled_logits
from tests.posthoc.generated import (
    ENDING,
    description,
    fit_folder,
    near_by_scipy,
    plans,
    probabilities,
    softmax,
    write_case,
    write_folder,
)

IMAGE = Settings(voxels=("image",))
NEAR_AND_IMAGE = Settings(voxels=("near", "image"))


def encode(*parts: np.ndarray) -> str:
    return base64.b64encode(np.concatenate([part.reshape(-1) for part in parts]).astype("<f4").tobytes()).decode()


LINK = {False: Link.SOFTMAX, True: Link.SIGMOID}


def random_network(channels: int, image_channels: int, link: Link, size: float = 0.1) -> LocalTemperature:
    generator = np.random.default_rng(0)
    outputs = 7 + (image_channels > 0)
    parts = [
        generator.normal(0, size, (outputs, channels, 125)), generator.normal(0, 1, outputs),
        generator.normal(0, size, (int(image_channels > 0), image_channels, 125)),
        generator.normal(0, 1, int(image_channels > 0)),
    ]  # fmt: skip
    return LocalTemperature(1.5, image_channels, encode(*parts), link=link)


def random_case(channels: int, shape: tuple[int, ...], regions: bool = False) -> np.ndarray:
    values = np.random.default_rng(1).normal(0, 4, (channels, *shape))
    return (expit(values) if regions else softmax(values)).astype(np.float32)


def test_by_hand() -> None:
    """Weights of 0: the leaves and gates are their biases."""
    biases = np.array([np.log(2), np.log(8), 0.3, 0.7, logit(0.25), logit(0.5), logit(0.8)])
    fitted = LocalTemperature(3.0, 0, encode(np.zeros((7, 2, 125)), biases), link=Link.SOFTMAX)
    t = 0.8 * (0.25 * np.log(2) + 0.75 * np.log(8)) + 0.2 * (0.5 * 0.3 + 0.5 * 0.7)
    temperature = 3 * 10 ** np.tanh(t / np.log(10))
    assert fitted.temperatures_of_case(random_case(2, (3, 4, 5)), None) == pytest.approx(
        np.full((3, 4, 5), temperature), rel=1e-5
    )
    p = np.array([[0.9, 0.2], [0.1, 0.8]])
    calibrated = fitted.apply(p, np.zeros((2, 2, 125), np.float16))
    assert calibrated[0, 0] == pytest.approx(expit(logit(0.9) / temperature), rel=1e-5)


@pytest.mark.parametrize("regions", [False, True])
def test_against_torch_convolutions(regions: bool) -> None:
    fitted = random_network(3, 2, LINK[regions])
    p = random_case(3, (9, 11, 6), regions)
    image = np.random.default_rng(2).normal(0, 1, (2, 9, 11, 6)).astype(np.float32)
    values = np.frombuffer(base64.b64decode(fitted.weights), "<f4").copy()
    layers = []
    for outputs, inputs in ((8, 3), (1, 2)):
        layer = torch.nn.Conv3d(inputs, outputs, 5, padding=4, dilation=2, padding_mode="replicate")
        weights, biases, values = np.split(values, [outputs * inputs * 125, outputs * (inputs * 125 + 1)])
        layer.weight.data = torch.from_numpy(weights.reshape(outputs, inputs, 5, 5, 5))
        layer.bias.data = torch.from_numpy(biases)
        layers.append(layer)
    z = np.log(p) - np.log(1 - p) if regions else np.log(p)
    with torch.no_grad():
        a, b, c, d, u, v, w, x = layers[0](torch.from_numpy(z / 10).float()[None])[0].numpy()
        e = layers[1](torch.from_numpy(image)[None])[0, 0].numpy()
    u, v, w, x = (expit(gate) for gate in (u, v, w, x))
    t = w * (u * a + (1 - u) * b) + (1 - w) * (v * c + (1 - v) * d)
    expected = 1.5 * 10 ** np.tanh((x * t + (1 - x) * e) / np.log(10))
    assert expected.max() > 2 * expected.min()
    assert fitted.temperatures_of_case(p, image) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("shape", [(7, 9, 8), (1, 12, 13), (1, 1, 5)])
@pytest.mark.parametrize("image_channels", [0, 2])
@pytest.mark.parametrize("regions", [False, True])
def test_the_case_is_the_voxels(
    shape: tuple[int, ...], image_channels: int, regions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fitted to, voxels and what is around them, is what a case gives, whatever the slabs."""
    fitted = random_network(3, image_channels, LINK[regions])
    p = random_case(3, shape, regions)
    image = np.random.default_rng(2).normal(0, 1, (image_channels, *shape)).astype(np.float32)
    voxels = np.arange(p[0].size)
    seen = [scaled_logits(around(channel, voxels), fitted.link) for channel in p]
    seen += [around(channel, voxels) for channel in image]
    of_voxels = fitted.temperatures(np.stack(seen).astype(np.float16)).reshape(shape)
    of_case = fitted.temperatures_of_case(p, image if image_channels else None)
    assert of_case == pytest.approx(of_voxels, rel=0.02)  # surroundings are kept in half precision
    monkeypatch.setattr(local, "_SLAB", 2 * p[:, 0].size)
    assert fitted.temperatures_of_case(p, image if image_channels else None) == pytest.approx(of_case, rel=1e-5)


def half_case(seed: int, regions: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p, y and an image: where it is bright, logits are 3 (regions) or 4 times what they should be."""
    generator = np.random.default_rng(seed)
    shape, factor = (8, 20, 20), 3.0 if regions else 4.0
    bright = np.broadcast_to(np.arange(20) < 10, shape)
    right = generator.normal(0, 1.5 if regions else 2, (2 if regions else 3, *shape))
    z = np.where(bright, factor, 1.0) * right
    if regions:
        right[0] = np.logaddexp(right[0], right[1])  # the whole is likelier than its core
        z = np.where(bright, factor, 1.0) * right
        draw = generator.random(shape)
        y = (draw < expit(right[0])).astype(int) + (draw < expit(right[1]))
        return expit(z).astype(np.float32), y, bright + generator.normal(0, 0.1, shape)
    y = (right + generator.gumbel(size=right.shape)).argmax(0)
    return softmax(z).astype(np.float32), y, bright + generator.normal(0, 0.1, shape)


def make(folder: Path, names: str, first: int, *, regions: bool = False) -> tuple[Path, Path, Path]:
    ground_truth, predictions, images = folder / "labels", folder / "predictions", folder / "images"
    for part in (ground_truth, predictions, images):
        part.mkdir(parents=True)
    (predictions / "dataset.json").write_text(description(regions))
    (predictions / "plans.json").write_text(plans())
    for number, name in enumerate(names):
        p, y, image = half_case(first + number, regions)
        write_case(ground_truth, predictions, name, p, y, regions)
        written = sitk.GetImageFromArray(image.astype(np.float32))
        written.CopyInformation(sitk.ReadImage(str(ground_truth / f"{name}{ENDING}")))
        sitk.WriteImage(written, str(images / f"{name}_0000{ENDING}"))
    return ground_truth, predictions, images


@pytest.mark.parametrize("regions", [False, True])
def test_where_the_image_tells_the_temperature(tmp_path: Path, regions: bool) -> None:
    ground_truth, predictions, images = make(tmp_path / "train", "abcd", 0, regions=regions)
    fit = fit_folder((ground_truth, predictions), method="local", images=images, num_voxels=4000)
    one = fit_folder((ground_truth, predictions))
    assert fit.improves
    gain = 0.002 if regions else 0.02
    assert one.held_out.change.after.NLL - gain > fit.held_out.change.after.NLL
    assert "local: temperature" in fit.summary()
    assert Fit.read(predictions / "posthoc_local.json") == fit

    test = make(tmp_path / "test", "xy", 10, regions=regions)
    file, output = predictions / "posthoc_local.json", tmp_path / "out"
    assert main(["calibrate", "apply", str(file), str(test[1]), "-i", str(test[2]), "-o", str(output)]) == 0
    apply_folder(predictions / "posthoc_temperature.json", test[1], tmp_path / "one")
    before, scaled, local_scaled = (
        evaluate(Predictions.of_folder(test[0], folder), settings=IMAGE).mean("image", "NLL")
        for folder in (test[1], tmp_path / "one", output)
    )
    assert local_scaled < scaled - gain
    assert scaled < before - gain
    for name in "xy":
        p, q = (np.load(folder / f"{name}.npz")["probabilities"] for folder in (test[1], output))
        assert np.array_equal(p > 0.5, q > 0.5) if regions else np.array_equal(p.argmax(0), q.argmax(0))
        ratio = ratio_of_logits(*(np.stack([x[0], 1 - x[0]]) for x in (p, q))) if regions else ratio_of_logits(p, q)
        left, right = ratio[:, :, 2:8], ratio[:, :, 12:18]
        assert np.nanmedian(left) == pytest.approx(3 if regions else 4, rel=0.2)
        assert np.nanmedian(right) == pytest.approx(1, rel=0.15)


def ratio_of_logits(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    before, after = (np.log(np.maximum(x[0].astype(float), 1e-30) / np.maximum(x[1], 1e-30)) for x in (p, q))
    return np.where((abs(after) > 0.5) & (abs(before) < 12), before / np.where(after, after, 1), np.nan)


def test_without_an_image_the_logits_tell(tmp_path: Path) -> None:
    """Where neighbours are unsure, they are what they should be: the logits around a voxel tell its temperature."""
    ground_truth, predictions, _ = make(tmp_path, "abcd", 0)
    fit = fit_folder((ground_truth, predictions), method="local", num_voxels=4000)
    one = fit_folder((ground_truth, predictions))
    assert fit.held_out.change.after.NLL < one.held_out.change.after.NLL - 0.02


def test_a_fit_can_be_repeated(tmp_path: Path) -> None:
    ground_truth, predictions, images = make(tmp_path, "a", 0)
    options = {"method": "local", "images": images, "num_voxels": 600}
    one, other = (fit_folder((ground_truth, predictions), **options) for _ in range(2))
    assert pytest.approx(one.fitted.after.NLL, abs=1e-4) == other.fitted.after.NLL


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit's file. Leave it as it is."""
    ground_truth, predictions, images = make(tmp_path_factory.mktemp("fitted"), "abc", 0)
    fit_folder((ground_truth, predictions), method="local", images=images, num_voxels=600)
    return predictions / "posthoc_local.json"


def test_channels_in_several_files_or_in_one(tmp_path: Path) -> None:
    """Each with mean 0 and standard deviation 1; one that is the same everywhere is 0."""
    generator = np.random.default_rng(0)
    for case in ("a", "a[1]"):
        for number, image in enumerate((generator.normal(100, 7, (3, 9, 9)), np.full((3, 9, 9), 1000.1))):
            sitk.WriteImage(
                sitk.GetImageFromArray(image.astype(np.float32)), str(tmp_path / f"{case}_000{number}.nii.gz")
            )
        read = Images(tmp_path, 2, ".nii.gz", SimpleITKIO()).read(case, (5, 3, 9, 9))
        assert read.mean((1, 2, 3)) == pytest.approx([0, 0], abs=1e-5)
        assert read.std((1, 2, 3)) == pytest.approx([1, 0], abs=1e-2)
        with pytest.raises(ValueError, match=r"_0001\.nii\.gz: expected 1 channels, as dataset\.json names; got 2"):
            Images(tmp_path, 1, ".nii.gz", SimpleITKIO()).read(case, (5, 3, 9, 9))
    io.imsave(tmp_path / "photo_0000.png", generator.integers(0, 255, (8, 9, 3), np.uint8))
    assert Images(tmp_path, 3, ".png", NaturalImage2DIO()).read("photo", (5, 1, 8, 9)).shape == (3, 1, 8, 9)


def test_many_confident_classes() -> None:
    """Whatever comes of so little, it is not worse than one temperature where that was fitted, and never NaN."""
    generator = np.random.default_rng(0)
    z = generator.normal(0, 2, (30, 600)) - 10
    truth = np.where(generator.random(600) < 0.9, 0, generator.integers(0, 30, 600))
    z[np.where(generator.random(600) < 0.8, truth, 0), np.arange(600)] += generator.choice([3, 90], 600)
    p = softmax(z).astype(np.float32)
    around_each = np.repeat(scaled_logits(p, Link.SOFTMAX)[:, :, None], 125, 2).astype(np.float16)
    sample = Sample(p, truth, Link.SOFTMAX, surroundings=around_each)
    after = LocalTemperature.fit(sample).apply(p, around_each)
    one = Temperature.fit(sample).apply(p)
    nll = [-np.log(q[truth, np.arange(600)].astype(float) + 1e-30).mean() for q in (after, one)]
    assert nll[0] < nll[1] + 0.01


def test_ignored_voxels_and_images_of_folds(tmp_path: Path) -> None:
    made = [make(tmp_path / str(fold), names, 2 * fold) for fold, names in enumerate(("ab", "cd"))]
    model = tmp_path / "nnUNetTrainerNACL__nnUNetPlans__2d"
    for fold, (ground_truth, predictions, images) in enumerate(made):
        for case in "abcd"[2 * fold : 2 * fold + 2]:
            image = sitk.ReadImage(str(ground_truth / f"{case}{ENDING}"))
            labels = sitk.GetArrayFromImage(image)
            labels[0] = 3
            written = sitk.GetImageFromArray(labels)
            written.CopyInformation(image)
            sitk.WriteImage(written, str(ground_truth / f"{case}{ENDING}"))
        shutil.copytree(ground_truth, tmp_path / "data" / "gt_segmentations", dirs_exist_ok=True)
        shutil.copytree(images, tmp_path / "imagesTr", dirs_exist_ok=True)
        shutil.copytree(predictions, model / f"fold_{fold}" / "validation")
    content = json.loads((made[0][1] / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (model / "dataset.json").write_text(json.dumps(content))
    (model / "plans.json").write_text(plans())
    result = fit(
        Predictions.of_validation(model, tmp_path / "data", [0, 1]),
        method="local",
        images=tmp_path / "imagesTr",
        num_voxels=4000,
    )
    assert result.cases == list("abcd")
    assert result.sample.available == 4 * 7 * 400
    assert [part.part for part in result.held_out.parts] == ["fold 0", "fold 1"]
    assert result.settings.images == str(tmp_path / "imagesTr")


def test_images_that_do_not_fit(fitted: Path, tmp_path: Path) -> None:
    file = fitted
    _, predictions, images = make(tmp_path / "test", "xy", 10)
    with pytest.raises(ValueError, match="was fitted with the images of the cases, so it needs their folder, too"):
        apply_folder(file, predictions, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        apply_folder(file, predictions, tmp_path / "out", images=tmp_path / "nowhere")
    content = json.loads((predictions / "dataset.json").read_text())
    two = tmp_path / "dataset.json"
    two.write_text(json.dumps(content | {"channel_names": {"0": "T1", "1": "T2"}}))
    with pytest.raises(ValueError, match=r"was fitted to images of 1 channels; .* has 2"):
        apply_folder(file, predictions, tmp_path / "out", images=images, dataset_json=two)
    for number, reason in enumerate(
        ("the shape (8, 20, 21) is not that of the probabilities, (8, 20, 20)", "does not exist: no image")
    ):
        if number:
            (images / f"x_0000{ENDING}").unlink()
        else:
            sitk.WriteImage(sitk.GetImageFromArray(np.zeros((8, 20, 21), np.float32)), str(images / f"x_0000{ENDING}"))
        done = apply_folder(file, predictions, tmp_path / f"out_{number}", images=images)
        assert done.cases == ["y"]
        assert str(images / "x_0000") in done.skipped[0].reason
        assert reason in done.skipped[0].reason


def test_an_image_that_lies_elsewhere(fitted: Path, tmp_path: Path) -> None:
    ground_truth, predictions, images = make(tmp_path / "test", "xy", 10)
    file = images / f"x_0000{ENDING}"
    image = sitk.ReadImage(str(file))
    image.SetOrigin((3, -4, 7))
    sitk.WriteImage(image, str(file))
    done = apply_folder(fitted, predictions, tmp_path / "out", images=images)
    assert done.cases == ["y"]
    assert f"{file} has the origin (3, -4, 7) mm, not (3, -4, 5) mm as " in done.skipped[0].reason
    assert apply_folder(fitted, predictions, tmp_path / "all", images=images, ignore_geometry=True).skipped == []
    result = fit_folder((ground_truth, predictions), method="local", images=images)
    assert [entry.case for entry in result.skipped] == ["x"]
    result = fit_folder((ground_truth, predictions), method="local", images=images, ignore_geometry=True)
    assert result.skipped == []
    file.write_bytes(file.read_bytes()[:-1])
    done = apply_folder(fitted, predictions, tmp_path / "cut", images=images)
    assert f"{file} cannot be read: its compressed stream ends too early" in done.skipped[0].reason


def test_an_image_with_values_that_are_no_numbers(tmp_path: Path) -> None:
    image = np.zeros((4, 4, 4), np.float32)
    image[1, 2, 3] = np.nan
    nibabel.save(nibabel.Nifti1Image(image, np.eye(4)), tmp_path / f"x_0000{ENDING}")  # SimpleITK reads such as 0
    with pytest.raises(ValueError, match="channel 0 has values that are no numbers"):
        Images(tmp_path, 1, ENDING, NibabelIO()).read("x", (3, 4, 4, 4))


@pytest.mark.parametrize("voxels", ["foreground", "union"])
def test_what_it_sees_must_not_depend_on_labels(tmp_path: Path, voxels: str) -> None:
    ground_truth, predictions, _ = make(tmp_path, "ab", 0)
    with pytest.raises(ValueError, match=f"must not depend on labels; voxels must be near or image; got {voxels}"):
        fit_folder((ground_truth, predictions), method="local", voxels=voxels)


def test_images_where_none_are_looked_at(tmp_path: Path) -> None:
    ground_truth, predictions, images = make(tmp_path / "train", "abc", 0)
    with pytest.raises(ValueError, match="the method temperature does not look at images; got"):
        fit_folder((ground_truth, predictions), images=images)
    fit_folder((ground_truth, predictions))
    with pytest.raises(ValueError, match="was fitted without images"):
        apply_folder(predictions / "posthoc_temperature.json", predictions, tmp_path / "out", images=images)
    (images / f"b_0000{ENDING}").unlink()
    fit = fit_folder((ground_truth, predictions), method="local", images=images, num_voxels=600)
    assert fit.cases == ["a", "c"]
    assert "no image" in fit.skipped[0].reason
    with pytest.raises(ValueError, match="the method local needs the surroundings of voxels"):
        LocalTemperature.fit(Sample(np.array([[0.8, 0.3, 0.6], [0.2, 0.7, 0.4]]), np.array([0, 1, 1]), Link.SOFTMAX))


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "AAAA"},
        {"weights": "?"},
        {"image_channels": 2},
        {"image_channels": -1},
        {"temperature": "x"},
        {"temperature": -3},
    ],
)
def test_a_damaged_fit(fitted: Path, tmp_path: Path, change: dict[str, object]) -> None:
    file = tmp_path / fitted.name
    file.write_text(json.dumps(json.loads(fitted.read_text()) | change))
    with pytest.raises(ValueError, match=r"posthoc_local\.json is no fit of nnunet_nacl"):
        Fit.read(file)


def nll_of(p: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Of each voxel, whether p are classes or regions: what is true has p, what is not has 1 - p (regions)."""
    if len(truth) == 3:
        return -np.log(np.maximum((p * truth).sum(0), 1e-30))
    return -np.log(np.maximum(np.where(truth, p, 1 - p), 1e-30)).mean(0)


@pytest.mark.parametrize("regions", [False, True])
def test_local_temperatures_reach_as_far_as_near(tmp_path: Path, regions: bool) -> None:
    """Beyond, where the network has seen nothing, it is one temperature; nothing gets worse, near gets better."""
    train = write_folder(tmp_path / "train", "abc", regions=regions, structure=True, temperature=2)
    test = write_folder(tmp_path / "test", "xy", first=20, regions=regions, structure=True, temperature=2)
    fits = {method: fit_folder(train, method=method, num_voxels=3_000) for method in ("local", "temperature")}
    local = fits["local"].calibrator
    assert isinstance(local, LocalTemperature)
    assert local.margin_mm == 5.0
    assert fits["local"].settings.voxels == "near"
    assert "margin_mm 5" in fits["local"].summary()
    assert Fit.read(train[1] / "posthoc_local.json") == fits["local"]
    results = {"before": evaluate(Predictions.of_folder(*test), settings=NEAR_AND_IMAGE)}
    for method in fits:
        apply_folder(train[1] / f"posthoc_{method}.json", test[1], tmp_path / method)
        results[method] = evaluate(Predictions.of_folder(test[0], tmp_path / method), settings=NEAR_AND_IMAGE)
    for name in "xy":
        p = probabilities(test[1], name)
        near = near_by_scipy(p.max(0) if regions else 1 - p[0])
        assert 0.1 < near.mean() < 0.8
        by_place, by_one = (probabilities(tmp_path / method, name) for method in fits)
        assert by_place[:, ~near] == pytest.approx(by_one[:, ~near], rel=1e-5)
        assert abs(by_place - by_one)[:, near].max() > 1e-3
        labels = sitk.GetArrayFromImage(sitk.ReadImage(str(test[0] / f"{name}{ENDING}")))
        truth = np.stack([labels > 0, labels > 1]) if regions else np.arange(3)[:, None, None, None] == labels
        before, after = (nll_of(q, truth)[~near].mean() for q in (p, by_place))
        assert after < before + 1e-5
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    assert nll["local"] < nll["before"] - 0.05
    # One temperature is right everywhere: all that thousands of weights can find in 3,000 voxels is noise.
    assert nll["local"] < 1.03 * nll["temperature"]
