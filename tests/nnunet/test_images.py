import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from scipy.spatial.transform import Rotation
from skimage import io

from nnunet_nacl.nnunet import Reader
from nnunet_nacl.nnunet._geometry import Geometry

LABELS = np.random.default_rng(0).integers(0, 3, (5, 8, 12), np.uint8).repeat(2, 1)
SITK = Reader("SimpleITKIO")
Write = Callable[[Path], object]


def placed(file: Path, *, spacing: tuple[float, ...] = (1, 2, 3), origin: tuple[float, ...] = (10, -20, 30.5),
           direction: np.ndarray | None = None, labels: np.ndarray = LABELS) -> Path:  # fmt: skip
    image = sitk.GetImageFromArray(labels)
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    if direction is not None:
        image.SetDirection(direction.reshape(-1).tolist())
    sitk.WriteImage(image, str(file), file.suffix != ".nii")
    return file


def nifti2(file: Path) -> None:
    nibabel.save(nibabel.Nifti2Image(LABELS.T, np.diag([1, 2, 3, 1])), file)


def tiff(file: Path) -> None:
    tifffile.imwrite(file, LABELS, compression="zlib")


def flat(file: Path) -> None:
    io.imsave(file, LABELS[0], check_contrast=False)


def placed_like(file: Path) -> Path:
    """A label map of zeros where a file of numbers lies."""
    if file.suffix in {".png", ".bmp"}:
        return file
    if file.suffix == ".tif":
        tifffile.imwrite(file, np.zeros_like(LABELS))
        return file
    stored = sitk.ReadImage(str(file))
    zeros = sitk.Image(stored.GetSize(), sitk.sitkUInt8)
    zeros.CopyInformation(stored)
    sitk.WriteImage(zeros, str(file))
    return file


each_format = pytest.mark.parametrize(("ending", "write", "name"), [
    (".nii", placed, "SimpleITKIO"), (".nii.gz", placed, "SimpleITKIO"), (".nii.gz", placed, "SimpleITKIOWithReorient"),
    (".nii.gz", placed, "NibabelIO"), (".nii.gz", placed, "NibabelIOWithReorient"), (".nii.gz", nifti2, "NibabelIO"),
    (".mha", placed, "SimpleITKIO"), (".nrrd", placed, "SimpleITKIO"), (".gipl", placed, "SimpleITKIO"),
    (".tif", tiff, "Tiff3DIO"), (".png", flat, "NaturalImage2DIO"), (".bmp", flat, "NaturalImage2DIO"),
])  # fmt: skip


@each_format
def test_files_are_read_and_written_as_by_nnunet(tmp_path: Path, ending: str, write: Write, name: str) -> None:
    """Labels as nnU-Net writes them, over what is there; other numbers where the same label map lies."""
    like, peer, reader = tmp_path / f"a{ending}", recursive_find_reader_writer_by_name(name)(), Reader(name)
    write(like)
    expected, properties = peer.read_seg(str(like))
    found = reader.read_labels(like)
    assert np.array_equal(found.labels, expected[0])
    if not ending.startswith(".tif"):  # whose images carry the number of a channel
        assert np.array_equal(reader.read_gray(like, found.geometry), found.labels)
        with pytest.raises(ValueError, match=f"{like} has the shape .*; {like} has"):
            reader.read_gray(like, replace(found.geometry, shape=(1, 2, 3)))
    assert found.labels.dtype.kind in "iu"
    assert found.geometry.spacing == pytest.approx(properties["spacing"])
    for _ in range(2):
        reader.write_labels(found.labels[:, ::-1], like, tmp_path / f"b{ending}")
    again = reader.read_labels(tmp_path / f"b{ending}")
    assert np.array_equal(again.labels, found.labels[:, ::-1])
    again.geometry.check_same(found.geometry)
    values = np.random.default_rng(0).random(found.labels.shape, np.float32)
    values = (200 * values).astype(np.uint8) if ending in {".png", ".bmp"} else values
    reader.write_image(values, found.geometry, tmp_path / f"c{ending}")
    assert np.array_equal(peer.read_seg(str(tmp_path / f"c{ending}"))[0][0], values)
    reader.read_labels(placed_like(tmp_path / f"c{ending}")).geometry.check_same(found.geometry)
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == set("abc")


@each_format
def test_a_file_cut_short_is_named(tmp_path: Path, ending: str, write: Write, name: str) -> None:
    """NIfTI files wherever they are cut: SimpleITK fills what they lack with zeros."""
    file, reader = tmp_path / f"a{ending}", Reader(name)
    write(file)
    intact = reader.read_labels(file)
    whole = file.read_bytes()
    for end in [0, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1] if "nii" in ending else [60]:
        file.write_bytes(whole[:end])
        for read in (reader.read_labels, lambda one: reader.read_gray(one, intact.geometry)):
            with pytest.raises(ValueError, match=f"{file} cannot be read: "):
                read(file)


@pytest.mark.parametrize(("ending", "value"), [(".nii.gz", 0.5), (".mha", 0.5), (".mha", np.nan), (".mha", np.inf)])
def test_labels_that_are_no_whole_numbers(tmp_path: Path, ending: str, value: float) -> None:
    labels = LABELS.astype(np.float32)
    labels[4, 5, 6] = value
    file = placed(tmp_path / f"a{ending}", labels=labels)
    with pytest.raises(ValueError, match=f"{file}: expected labels, which are whole numbers; got "):
        SITK.read_labels(file)


@pytest.mark.parametrize("version", [1, 2])
def test_the_reader_decides_whether_a_file_must_be_compressed(tmp_path: Path, version: int) -> None:
    """SimpleITK goes by the content, nibabel by the name."""
    if version == 1:
        placed(tmp_path / "a.nii")
    else:
        nifti2(tmp_path / "a.nii")
    file = (tmp_path / "a.nii").rename(tmp_path / "a.nii.gz")
    peer = recursive_find_reader_writer_by_name("NibabelIO")()
    with pytest.raises(nibabel.filebasedimages.ImageFileError):
        peer.read_seg(str(file))
    with pytest.raises(ValueError, match=f"{file} cannot be read: .*is not a gzip file"):
        Reader("NibabelIO").read_labels(file)
    if version == 1:  # which SimpleITK reads
        found = SITK.read_labels(file)
        assert np.array_equal(found.labels, LABELS)
        assert np.array_equal(SITK.read_gray(file, found.geometry), LABELS)
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(ValueError, match=f"{file} cannot be read: it holds .* bytes, and its header declares"):
            SITK.read_labels(file)


@pytest.mark.parametrize("name", ["SimpleITKIO", "NibabelIO"])
@pytest.mark.parametrize(("changed", "expected"), [
    ({"spacing": (1, 2, 30)}, "36"),
    ({"origin": (10, -20, 31)}, "0.17"),
    ({"origin": (10.0101, -20, 30.5)}, "0.01"),
    ({"origin": (10, -20.0202, 30.5)}, "0.01"),
    ({"origin": (10.0099, -20, 30.5)}, None),
    ({"origin": (10, -20, 30.5297)}, None),
    ({"direction": np.diag([-1, -1, 1])}, "30"),
    ({"direction": Rotation.from_rotvec([0, 0, 1e-3]).as_matrix()}, "0.03"),
    ({"direction": Rotation.from_rotvec([0, 0, 8e-5]).as_matrix()}, None),  # 11 mm of 1 mm, 15 of 2 mm from its axis
])  # fmt: skip
def test_what_differs(tmp_path: Path, name: str, changed: dict[str, object], expected: str | None) -> None:
    """By more than 1 % of a voxel, at the farthest corner."""
    reader = Reader(name)
    mine = reader.read_labels(placed(tmp_path / "a.nii.gz", origin=(10, -20, 30.5))).geometry
    other = reader.read_labels(placed(tmp_path / "b.nii.gz", **changed)).geometry  # type: ignore[arg-type]
    mine.check_same(mine)
    other.check_same(mine, ignore_geometry=True)
    message = f"does not lie where .* does: voxels are up to {expected} voxels apart; spacing"
    with pytest.raises(ValueError, match=message) if expected else nullcontext():
        other.check_same(mine)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_is_no_difference(tmp_path: Path, seed: int) -> None:
    """What nnU-Net writes for an image in single precision, and what nibabel writes for the same."""
    generator = np.random.default_rng(seed)
    direction = Rotation.from_rotvec(generator.normal(0, 0.1, 3)).as_matrix()
    spacing, origin = tuple(generator.uniform(0.3, 5, 3).tolist()), tuple(generator.uniform(-300, 300, 3).tolist())
    image = placed(tmp_path / "a.nii.gz", spacing=spacing, origin=origin, direction=direction)
    labels, properties = SimpleITKIO().read_seg(str(image))
    SimpleITKIO().write_seg(labels[0], str(tmp_path / "predicted.nii.gz"), properties)
    stored = nibabel.load(image)
    nibabel.save(nibabel.Nifti1Image(np.asarray(stored.dataobj), stored.affine), tmp_path / "b.nii.gz")
    first, *others = (SITK.read_labels(file).geometry for file in sorted(tmp_path.iterdir()))
    assert len(others) == 2
    for other in others:
        first.check_same(other)


@pytest.mark.parametrize("name", ["SimpleITKIOWithReorient", "NibabelIOWithReorient"])
def test_readers_that_reorient_see_no_difference_in_orientation(tmp_path: Path, name: str) -> None:
    image = sitk.ReadImage(str(placed(tmp_path / "a.nii.gz")))
    sitk.WriteImage(sitk.DICOMOrient(image, "LPI"), str(tmp_path / "b.nii.gz"))
    (mine, here), (other, there) = (Reader(name).read_labels(tmp_path / f"{one}.nii.gz") for one in "ab")
    assert np.array_equal(mine, other)
    here.check_same(there)
    here, there = (SITK.read_labels(tmp_path / f"{one}.nii.gz").geometry for one in "ab")
    with pytest.raises(ValueError, match=r"does not lie where .* direction"):
        here.check_same(there)


def test_formats_without_geometry_agree_with_all(tmp_path: Path) -> None:
    flat(tmp_path / "a.png")
    image = Reader("NaturalImage2DIO").read_labels(tmp_path / "a.png").geometry
    assert not image.known
    image.check_same(Geometry(tmp_path, (1, *LABELS.shape[1:]), (999, 5, 5)))
    for name, spacing in (("a", None), ("b", [1, 1, 1]), ("c", [3, 1, 1])):
        tiff(tmp_path / f"{name}.tif")
        if spacing:
            (tmp_path / f"{name}.json").write_text(json.dumps({"spacing": spacing}))
    a, b, c = (Reader("Tiff3DIO").read_labels(tmp_path / f"{name}.tif").geometry for name in "abc")
    a.check_same(c)
    with pytest.raises(ValueError, match=r"spacing \(3, 1, 1\), .*, not spacing \(1, 1, 1\)"):
        c.check_same(b)


def test_an_image_of_two_dimensions_is_one_mm_thick(tmp_path: Path) -> None:
    flat(tmp_path / "a.png")
    placed(tmp_path / "b.nii.gz", spacing=(0.5, 0.25), origin=(0, 0), labels=LABELS[0])
    placed(tmp_path / "c.nii.gz", spacing=(0.5, 0.25, 4), labels=LABELS[:1])
    assert Reader("NaturalImage2DIO").read_labels(tmp_path / "a.png").geometry.voxel_ml == 0.001
    assert SITK.read_labels(tmp_path / "b.nii.gz").geometry.voxel_ml == 0.000125
    assert SITK.read_labels(tmp_path / "c.nii.gz").geometry.voxel_ml == 0.0005
