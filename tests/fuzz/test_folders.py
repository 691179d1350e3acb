"""Folders of predictions in which files are damaged, exchanged or put elsewhere, through the whole of ``evaluate``.

The law: a case has the very numbers that it had, to the last bit, or is skipped with a reason that names one of its
files; the other case has its numbers; every file is what it was before the evaluation.
"""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st
from nnunetv2.utilities.label_handling import label_handling  # noqa: F401 - PyTorch with it, before memory is limited
from scipy.ndimage import gaussian_filter, label

from nnunet_nacl.evaluation import VOXEL_SETS, Settings, evaluate
from nnunet_nacl.nnunet import Predictions
from tests.fuzz.damage import EXAMPLES, FUZZ, bits, damaged_bytes, files_in, limited_memory

FEWER = settings(FUZZ, max_examples=max(EXAMPLES // 4, 1))
"""An evaluation takes as long as reading ten files."""

SHAPE = (4, 9, 10)
SPACING = (1.0, 1.5, 2.0)
RAS = (-1, 0, 0, 0, -1, 0, 0, 0, 1)
DATASETS: dict[str, dict[str, Any]] = {
    "classes": {"labels": {"background": 0, "one": 1, "two": 2}},
    "regions": {"labels": {"background": 0, "whole": [1, 2], "core": 2}, "regions_class_order": [1, 2]},
}
CHOICES = [("foreground",), ("union",), ("near",), ("image",), ("boundary",), VOXEL_SETS]
ROLES = ("ground truth", "segmentation", "probabilities")


@dataclass
class Folder:
    """Two cases, and what is right for them."""

    path: Path
    regions: bool

    def __post_init__(self) -> None:
        self.right: dict[Any, Any] = {}
        self.before: dict[str, bytes] = {}

    def file(self, case: str, role: str) -> Path:
        folder = "labels" if role == ROLES[0] else "predictions"
        return self.path / folder / f"{case}{'.npz' if role == ROLES[2] else '.nii.gz'}"

    def names(self, case: str) -> list[str]:
        return [str(self.file(case, role)) for role in ROLES]

    def evaluate(self, voxels: tuple[Any, ...]) -> dict[str, Any]:
        """The bits of each case's result, or the reason why there is none; checks that nothing else has changed."""
        before = files_in(self.path)
        output = self.path.parent / "output"
        output.mkdir()
        (output / "notes.txt").write_text("mine")
        predictions = Predictions.of_folder(self.path / "labels", self.path / "predictions")
        with limited_memory():
            result = evaluate(predictions, Settings(voxels=voxels), output=output / "x_summary.json")
        written = {file.name for file in output.iterdir()}
        assert written <= {"notes.txt", "x_summary.json", "x_cases.csv", "x_bins.zip"}, written
        assert (output / "notes.txt").read_text() == "mine"
        shutil.rmtree(output)
        assert files_in(self.path) == before
        found = {case.name: bits(case.result) for case in result.cases}
        return found | {entry.case: entry.reason for entry in result.skipped}

    def restore(self) -> None:
        for name, content in self.before.items():
            if (self.path / name).read_bytes() != content:
                (self.path / name).write_bytes(content)

    def check(self, voxels: tuple[Any, ...], changed: str, *, refused: bool | None = None) -> dict[str, Any]:
        """Evaluate; cases that are not in ``changed`` have their numbers, the others those or a reason."""
        found = self.evaluate(voxels)
        for case in "ab":
            if case in changed and refused is not False and isinstance(found[case], str):
                assert any(name in found[case] for name in self.names(case)), found[case]
                assert "emory" not in found[case]
                assert "Error:" not in found[case], found[case]
            else:
                assert found[case] == self.right[voxels][case]
                assert not (case in changed and refused), f"case {case} should have been refused"
        return found


def probabilities(seed: int, *, regions: bool) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(2 if regions else 3, *SHAPE))
    logits = 12 * gaussian_filter(noise, (0, 0.7, 1.2, 1.2))
    if regions:
        return (1 / (1 + np.exp(1 - logits))).astype(np.float32)
    powers = np.exp(logits - logits.max(0))
    return (powers / powers.sum(0)).astype(np.float32)


def nnunets(p: np.ndarray, *, regions: bool) -> np.ndarray:
    if not regions:
        return p.argmax(0).astype(np.uint8)
    labels = np.zeros(p.shape[1:], np.uint8)
    for number, channel in enumerate(p):
        labels[channel > 0.5] = number + 1
    return labels


def write(labels: np.ndarray, file: Path, number: int) -> None:
    image = sitk.GetImageFromArray(labels)
    image.SetSpacing(SPACING)
    image.SetOrigin((-10.0 * number, 5.0, 2.5))
    image.SetDirection(RAS)
    sitk.WriteImage(image, str(file), True)


Make = Callable[[str, str], Folder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(dataset: str, reader: str) -> Folder:
        folder = Folder(tmp_path / "study", dataset == "regions")
        for part in ("labels", "predictions"):
            (folder.path / part).mkdir(parents=True)
        described = json.dumps({**DATASETS[dataset], "file_ending": ".nii.gz"})
        (folder.path / "predictions" / "dataset.json").write_text(described)
        (folder.path / "predictions" / "plans.json").write_text(json.dumps({"image_reader_writer": reader}))
        for number, case in enumerate("ab"):
            p = probabilities(number, regions=folder.regions)
            truth = nnunets(probabilities(number + 7, regions=folder.regions), regions=folder.regions)
            write(truth, folder.file(case, ROLES[0]), number)
            write(nnunets(p, regions=folder.regions), folder.file(case, ROLES[1]), number)
            np.savez_compressed(folder.file(case, ROLES[2]), probabilities=p)
        folder.before = files_in(folder.path)
        for voxels in CHOICES:
            folder.right[voxels] = folder.evaluate(voxels)
            assert not any(isinstance(one, str) for one in folder.right[voxels].values()), folder.right[voxels]
        return folder

    return made


@pytest.mark.parametrize("dataset", DATASETS)
def test_damaged_files(dataset: str, make: Make) -> None:
    folder = make(dataset, "SimpleITKIO")
    contents = {role: folder.file("a", role).read_bytes() for role in ROLES}
    damage = st.sampled_from(ROLES).flatmap(lambda role: st.tuples(st.just(role), damaged_bytes(contents[role])))

    @FEWER
    @given(damage, st.sampled_from(CHOICES))
    def law(damaged: tuple[str, bytes], voxels: tuple[Any, ...]) -> None:
        folder.restore()
        folder.file("a", damaged[0]).write_bytes(damaged[1])
        folder.check(voxels, "a")

    law()


def stored_otherwise(file: Path, change: str, amount: float) -> None:
    """Put an image elsewhere in space; the array stays, but for ``orient``, which keeps the place of each voxel."""
    image = sitk.ReadImage(str(file))
    if change == "spacing":
        image.SetSpacing([SPACING[0] * (1 + amount), *SPACING[1:]])
    elif change == "origin":
        image.SetOrigin([step + amount for step in image.GetOrigin()])
    elif change == "direction":
        c, s = np.cos(amount), np.sin(amount)
        image.SetDirection((np.reshape(RAS, (3, 3)) @ [[c, -s, 0], [s, c, 0], [0, 0, 1]]).reshape(-1).tolist())
    elif change == "orient":
        image = sitk.DICOMOrient(image, ("LPS", "RSA", "AIL", "LAS", "SPR")[int(amount * 1e3) % 5])
    sitk.WriteImage(image, str(file), True)


@pytest.mark.parametrize("reader", ["SimpleITKIO", "NibabelIO", "SimpleITKIOWithReorient", "NibabelIOWithReorient"])
def test_other_places(reader: str, make: Make) -> None:
    """A segmentation or ground truth that lies elsewhere is refused; readers that reorient undo an orientation."""
    folder = make("classes", reader)

    @FEWER
    @given(
        st.sampled_from(ROLES[:2]), st.sampled_from(["spacing", "origin", "direction", "orient"]),
        st.floats(0.002, 0.7), st.sampled_from(CHOICES),
    )  # fmt: skip
    def law(role: str, change: str, amount: float, voxels: tuple[Any, ...]) -> None:
        folder.restore()
        stored_otherwise(folder.file("a", role), change, amount)
        folder.check(voxels, "a", refused=not (change == "orient" and reader.endswith("Reorient")))

    law()


def other_array(array: np.ndarray, change: str) -> np.ndarray:
    """Its last three axes flipped or in another order."""
    kind, axes = change.split()
    spatial = [int(axis) - 3 for axis in axes]
    if kind == "flip":
        return np.flip(array, spatial)
    return np.moveaxis(array, [-3, -2, -1], spatial)


CHANGES = [
    "flip 0",
    "flip 1",
    "flip 2",
    "flip 01",
    "flip 12",
    "flip 012",
    "order 021",
    "order 102",
    "order 210",
    "order 120",
]


@pytest.mark.parametrize("dataset", DATASETS)
def test_other_arrays(dataset: str, make: Make) -> None:
    """Arrays flipped or permuted, and files exchanged: refused wherever they can be told from the right ones."""
    folder = make(dataset, "SimpleITKIO")

    @FEWER
    @given(
        st.sampled_from(CHANGES), st.sets(st.sampled_from(ROLES[1:]), min_size=1),
        st.one_of(st.just(set()), st.sets(st.sampled_from(ROLES), min_size=1, max_size=2)), st.sampled_from(CHOICES),
    )  # fmt: skip
    def law(change: str, roles: set[str], exchanged: set[str], voxels: tuple[Any, ...]) -> None:
        folder.restore()
        if exchanged:
            for role in exchanged:
                first, second = folder.file("a", role), folder.file("b", role)
                content = first.read_bytes()
                first.write_bytes(second.read_bytes())
                second.write_bytes(content)
            # Ground truth and segmentation say where they lie; probabilities must give the segmentation.
            folder.check(voxels, "ab", refused=True)
            return
        if len(roles) == 2 and change.startswith("flip"):
            roles = {ROLES[2]}  # both flipped alike are another prediction, which nobody can tell
        if ROLES[1] in roles:
            file = folder.file("a", ROLES[1])
            write(np.ascontiguousarray(other_array(sitk.GetArrayFromImage(sitk.ReadImage(str(file))), change)), file, 0)
        if ROLES[2] in roles:
            file = folder.file("a", ROLES[2])
            with np.load(file) as archive:
                p = archive["probabilities"]
            np.savez_compressed(file, probabilities=other_array(p, change))
        folder.check(voxels, "a", refused=True)

    law()


def is_postprocessed(given_labels: np.ndarray, saved: np.ndarray) -> bool:
    """Whether whole components of a label were set to background, and not all there are."""
    if (saved[saved > 0] != given_labels[saved > 0]).any() or (given_labels.any() and not saved.any()):
        return False
    for value in (1, 2):
        components, number = label(given_labels == value)
        for component in range(1, number + 1):
            if len(np.unique(saved[components == component])) > 1:
                return False
    return True


@pytest.mark.parametrize("dataset", DATASETS)
def test_edited_segmentations(dataset: str, make: Make) -> None:
    """What postprocessing can leave is evaluated, with the calibration unchanged; anything else is refused."""
    folder = make(dataset, "SimpleITKIO")
    file = folder.file("a", ROLES[1])
    whole = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
    parts = [label(whole == value)[0] + 1000 * value for value in (1, 2)]
    components = [part == number for part in parts for number in np.unique(part) if number % 1000]
    voxel = st.tuples(*(st.integers(0, size - 1) for size in SHAPE), st.integers(0, 2))

    @FEWER
    @given(
        st.lists(st.integers(0, len(components) - 1), max_size=4), st.lists(voxel, max_size=2), st.sampled_from(CHOICES)
    )
    def law(removed: list[int], voxels_set: list[tuple[int, ...]], voxels: tuple[Any, ...]) -> None:
        folder.restore()
        edited = whole.copy()
        for number in removed:
            edited[components[number]] = 0
        for z, y, x, value in voxels_set:
            edited[z, y, x] = value
        write(edited, file, 0)
        found = folder.evaluate(voxels)
        assert found["b"] == folder.right[voxels]["b"]
        if is_postprocessed(whole, edited):
            assert not isinstance(found["a"], str), found["a"]
            assert found["a"]["calibration"] == folder.right[voxels]["a"]["calibration"]
            check_dice(found["a"]["segmentation"], edited)
        else:
            assert isinstance(found["a"], str)
            assert str(folder.file("a", ROLES[2])) in found["a"]

    truth = sitk.GetArrayFromImage(sitk.ReadImage(str(folder.file("a", ROLES[0]))))

    def check_dice(metrics: dict[Any, dict[str, Any]], edited: np.ndarray) -> None:
        for structure, values in metrics.items():
            masks = [np.isin(array, structure) for array in (truth, edited)]
            expected = 2 * (masks[0] & masks[1]).sum() / (masks[0].sum() + masks[1].sum())
            assert float.fromhex(values["Dice"]) == pytest.approx(float(expected), abs=1e-12)

    law()


FIELDS = ["dim", "datatype", "scl_slope", "scl_inter", "pixdim", "qform_code", "sform_code", "srow_x", "srow_z",
          "qoffset_x", "quatern_b", "xyzt_units", "vox_offset", "intent_code", "descrip"]  # fmt: skip


@pytest.mark.parametrize("reader", ["SimpleITKIO", "NibabelIO"])
def test_changed_headers(reader: str, make: Make) -> None:
    """A field of one label map's header, with the right checksum.

    Changes of labels in the ground truth (``scl_slope``, ``scl_inter``, ``datatype``) cannot be told from others.
    """
    folder = make("classes", reader)

    @FEWER
    @given(
        st.sampled_from(ROLES[:2]), st.sampled_from(FIELDS), st.integers(0, 7),
        st.one_of(st.integers(-3, 40), st.integers(-32768, 32767), st.floats(-3, 3), st.floats(width=32)),
        st.sampled_from(CHOICES),
    )  # fmt: skip
    def law(role: str, name: str, place: int, value: float, voxels: tuple[Any, ...]) -> None:
        folder.restore()
        file = folder.file("a", role)
        image = nibabel.load(file)
        stream = bytearray(image.file_map["image"].get_prepare_fileobj("rb").read())
        header = np.frombuffer(bytes(stream[:348]), nibabel.nifti1.header_dtype.newbyteorder("<")).copy()
        field = header[name].reshape(-1)
        if field.dtype.kind == "S":
            field[0] = str(value).encode()
        elif field.dtype.kind in "iu":
            limits = np.iinfo(field.dtype)
            number = 0 if not np.isfinite(value) else int(max(min(value, limits.max), limits.min))
            field[place % len(field)] = number
        else:
            with np.errstate(all="ignore"):
                field[place % len(field)] = value
        header[name] = field.reshape(header[name].shape)
        stream[:348] = header.tobytes()
        file.write_bytes(gzip.compress(bytes(stream), 1))
        if role == ROLES[0] and name in {"scl_slope", "scl_inter", "datatype"}:
            found = folder.evaluate(voxels)
            assert found["b"] == folder.right[voxels]["b"]
            assert not isinstance(found["a"], str) or any(text in found["a"] for text in folder.names("a"))
        else:
            folder.check(voxels, "a")

    law()
