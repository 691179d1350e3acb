import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.nibabel_reader_writer import NibabelIO, NibabelIOWithReorient
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO, SimpleITKIOWithReorient
from nnunetv2.imageio.tif_reader_writer import Tiff3DIO
from scipy.spatial.transform import Rotation
from skimage import io

from nnunet_nacl.nnunet import Geometry, check_geometry, read_image, read_labels, write_image, write_labels

LABELS = np.random.default_rng(0).integers(0, 3, (5, 8, 12), np.uint8).repeat(2, 1)
FILE = Path("a.nii.gz")


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


FORMATS: dict[str, tuple[str, Callable[[Path], object], type]] = {
    "nii": (".nii", placed, SimpleITKIO),
    "nii.gz": (".nii.gz", placed, SimpleITKIO),
    "nii.gz, reoriented": (".nii.gz", placed, SimpleITKIOWithReorient),
    "nii.gz, nibabel": (".nii.gz", placed, NibabelIO),
    "nii.gz, nibabel, reoriented": (".nii.gz", placed, NibabelIOWithReorient),
    "nii.gz, NIfTI-2": (".nii.gz", nifti2, NibabelIO),
    "mha": (".mha", placed, SimpleITKIO),
    "nrrd": (".nrrd", placed, SimpleITKIO),
    "png": (".png", flat, NaturalImage2DIO),
    "bmp": (".bmp", flat, NaturalImage2DIO),
    "tif": (".tif", tiff, Tiff3DIO),
}


@pytest.mark.parametrize("name", FORMATS)
def test_files_are_read_as_nnunet_reads_them_and_written_so_that_they_are_read(tmp_path: Path, name: str) -> None:
    """Labels as nnU-Net writes them, over what is there; other numbers where the same label map lies."""
    ending, write, reader_class = FORMATS[name]
    like, reader = tmp_path / f"a{ending}", reader_class()
    write(like)
    expected, properties = reader.read_seg(str(like))
    found = read_labels(like, reader)
    assert np.array_equal(found.labels, expected[0])
    if not ending.startswith(".tif"):  # whose images carry the number of a channel
        image, geometry = read_image([like, like], reader)
        assert np.array_equal(image, [found.labels, found.labels])
        assert geometry == found.geometry
    assert found.labels.dtype.kind in "iu"
    assert found.geometry.spacing == pytest.approx(properties["spacing"])
    for _ in range(2):
        write_labels(found.labels[:, ::-1], like, reader, tmp_path / f"b{ending}")
    again = read_labels(tmp_path / f"b{ending}", reader)
    assert np.array_equal(again.labels, found.labels[:, ::-1])
    check_geometry(like, again.geometry, like, found.geometry)
    values = np.random.default_rng(0).random(found.labels.shape, np.float32)
    values = (200 * values).astype(np.uint8) if ending in {".png", ".bmp"} else values
    write_image(values, like, reader, tmp_path / f"c{ending}")
    assert np.array_equal(reader.read_seg(str(tmp_path / f"c{ending}"))[0][0], values)
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == set("abc")
    with pytest.raises(ValueError, match=r"the shape .* is not that of the probabilities"):
        write_labels(found.labels[:, 1:], like, reader, tmp_path / f"b{ending}")


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_short_is_named(tmp_path: Path, name: str) -> None:
    """NIfTI files wherever they are cut: SimpleITK fills what they lack with zeros."""
    ending, write, reader = FORMATS[name]
    file = tmp_path / f"a{ending}"
    write(file)
    whole = file.read_bytes()
    ends = [60] if "nii" not in name else [0, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1]
    for end in ends:
        file.write_bytes(whole[:end])
        for read, what in ((read_labels, file), (read_image, [file])):
            with pytest.raises(ValueError, match=f"{file} cannot be read: "):
                read(what, reader())  # type: ignore[operator]
    if "nii" in name:
        file.write_bytes(whole + bytes(100) if ending == ".nii" else whole + gzip.compress(bytes(100)))
        with pytest.raises(ValueError, match=f"{file} cannot be read: it holds .* bytes, and its header declares"):
            read_labels(file, reader())


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".mha"])
def test_labels_that_are_no_whole_numbers(tmp_path: Path, ending: str, value: float) -> None:
    """SimpleITK reads NaN of NIfTI as 0."""
    labels = LABELS.astype(np.float32)
    labels[4, 5, 6] = value
    file = placed(tmp_path / f"a{ending}", labels=labels)
    with pytest.raises(ValueError, match=f"{file}.* holds (NaN or infinite values|labels that are not whole numbers)"):
        read_labels(file, SimpleITKIO())


def test_files_that_hold_no_label_map(tmp_path: Path) -> None:
    io.imsave(tmp_path / "a.png", np.stack([LABELS[0]] * 3, -1), check_contrast=False)
    with pytest.raises(ValueError, match=r"a\.png cannot be read: expected one label for each voxel; got 3 values"):
        read_labels(tmp_path / "a.png", NaturalImage2DIO())
    content = placed(tmp_path / "a.nii").read_bytes()
    file = tmp_path / os.fsdecode(b"caf\xe9.nii")  # over whose name SimpleITK would end the process
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"caf\\udce9\.nii' cannot be read: its name is not in UTF-8"):
        read_labels(file, SimpleITKIO())
    (tmp_path / "a.nii").write_bytes(content[:80] + np.float32(np.nan).tobytes() + content[84:])  # pixdim[1]
    with pytest.raises(ValueError, match=r"a\.nii cannot be read"):
        read_labels(tmp_path / "a.nii", NibabelIO())


@pytest.mark.parametrize("reader", [SimpleITKIO, NibabelIO])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"spacing": (1, 2, 30)}, r"spacing \(30, 2, 1\) mm, not \(3, 2, 1\) mm as a.nii.gz has"),
        ({"origin": (10, -20, 31)}, "origin "),
        ({"direction": np.diag([-1, -1, 1])}, r"direction \("),
        ({"direction": Rotation.from_rotvec([0, 0, 0.01]).as_matrix()}, r"direction \("),
    ],
)
def test_what_differs(tmp_path: Path, reader: type, changed: dict[str, object], expected: str) -> None:
    mine = read_labels(placed(tmp_path / "a.nii.gz"), reader()).geometry
    other = read_labels(placed(tmp_path / "b.nii.gz", **changed), reader()).geometry  # type: ignore[arg-type]
    check_geometry(FILE, mine, FILE, mine)
    with pytest.raises(ValueError, match=rf"^b.nii.gz has the {expected}"):
        check_geometry(Path("b.nii.gz"), other, FILE, mine)


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
    placed(tmp_path / "c.mha", spacing=spacing, origin=origin, direction=direction)
    first, *others = (read_labels(file, SimpleITKIO()).geometry for file in sorted(tmp_path.iterdir()))
    assert len(others) == 3
    for other in others:
        check_geometry(FILE, first, FILE, other)


@pytest.mark.parametrize("reader", [SimpleITKIOWithReorient, NibabelIOWithReorient])
def test_readers_that_reorient_see_no_difference_in_orientation(tmp_path: Path, reader: type) -> None:
    image = sitk.ReadImage(str(placed(tmp_path / "a.nii.gz")))
    sitk.WriteImage(sitk.DICOMOrient(image, "LPI"), str(tmp_path / "b.nii.gz"))
    a, b = (read_labels(tmp_path / name, reader()) for name in ("a.nii.gz", "b.nii.gz"))
    assert np.array_equal(a.labels, b.labels)
    check_geometry(FILE, a.geometry, FILE, b.geometry)
    a, b = (read_labels(tmp_path / name, SimpleITKIO()) for name in ("a.nii.gz", "b.nii.gz"))
    with pytest.raises(ValueError, match="another orientation"):
        check_geometry(FILE, a.geometry, FILE, b.geometry)


def test_formats_without_geometry_agree_with_all(tmp_path: Path) -> None:
    flat(tmp_path / "a.png")
    image = read_labels(tmp_path / "a.png", NaturalImage2DIO()).geometry
    assert not image.known
    check_geometry(FILE, image, FILE, Geometry((999, 5, 5)))
    for name, spacing in (("a", None), ("b", [1, 1, 1]), ("c", [3, 1, 1])):
        tiff(tmp_path / f"{name}.tif")
        if spacing:
            (tmp_path / f"{name}.json").write_text(json.dumps({"spacing": spacing}))
    a, b, c = (read_labels(tmp_path / f"{name}.tif", Tiff3DIO()).geometry for name in "abc")
    check_geometry(FILE, a, FILE, c)
    with pytest.raises(ValueError, match=r"spacing \(3, 1, 1\) mm, not \(1, 1, 1\) mm"):
        check_geometry(FILE, c, FILE, b)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ITK says nothing then; its file lacks voxels."""
    like = placed(tmp_path / "a.nii.gz")
    write = sitk.WriteImage

    def cut_short(image: sitk.Image, name: str, *options: bool) -> None:
        write(image, name, *options)
        Path(name).write_bytes(Path(name).read_bytes()[:-20])

    monkeypatch.setattr(sitk, "WriteImage", cut_short)
    with pytest.raises(OSError, match=rf"cannot be written whole; .*'{tmp_path / 'b.nii.gz'}'"):
        write_labels(LABELS, like, SimpleITKIO(), tmp_path / "b.nii.gz")
    assert list(tmp_path.iterdir()) == [like]
