import json
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

from nnunet_nacl.nnunet import Geometry, read_image, read_labels
from tests.nnunet.image_files import LABELS, flat


def placed(file: Path, *, spacing: tuple[float, ...] = (1, 2, 3), origin: tuple[float, ...] = (10, -20, 30.5),
           direction: np.ndarray | None = None) -> Path:  # fmt: skip
    image = sitk.GetImageFromArray(LABELS)
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    if direction is not None:
        image.SetDirection(direction.reshape(-1).tolist())
    sitk.WriteImage(image, str(file))
    return file


@pytest.mark.parametrize("reader", [SimpleITKIO, NibabelIO])
def test_what_differs(tmp_path: Path, reader: type) -> None:
    mine = read_labels(placed(tmp_path / "a.nii.gz"), reader()).geometry
    assert mine.difference(mine) is None
    for changed, expected in (
        ({"spacing": (1, 2, 30)}, "spacing (30, 2, 1) mm, not (3, 2, 1) mm"),
        ({"origin": (10, -20, 31)}, "origin "),
        ({"direction": np.diag([-1, -1, 1])}, "direction ("),
        ({"direction": Rotation.from_rotvec([0, 0, 0.01]).as_matrix()}, "direction ("),
    ):
        other = read_labels(placed(tmp_path / "b.nii.gz", **changed), reader()).geometry
        assert (other.difference(mine) or "").startswith(expected)


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
    assert [first.difference(other) for other in others] == [None] * 3


@pytest.mark.parametrize("reader", [SimpleITKIOWithReorient, NibabelIOWithReorient])
def test_readers_that_reorient_see_no_difference_in_orientation(tmp_path: Path, reader: type) -> None:
    image = sitk.ReadImage(str(placed(tmp_path / "a.nii.gz")))
    sitk.WriteImage(sitk.DICOMOrient(image, "LPI"), str(tmp_path / "b.nii.gz"))
    a, b = (read_labels(tmp_path / name, reader()) for name in ("a.nii.gz", "b.nii.gz"))
    assert np.array_equal(a.labels, b.labels)
    assert a.geometry.difference(b.geometry) is None
    a, b = (read_labels(tmp_path / name, SimpleITKIO()) for name in ("a.nii.gz", "b.nii.gz"))
    assert a.geometry.difference(b.geometry) is not None


def test_formats_without_geometry_agree_with_all(tmp_path: Path) -> None:
    flat(tmp_path / "a.png")
    image = read_labels(tmp_path / "a.png", NaturalImage2DIO()).geometry
    assert not image.known
    assert image.difference(Geometry((999, 5, 5))) is None
    for name, spacing in (("a", None), ("b", [1, 1, 1]), ("c", [3, 1, 1])):
        tifffile.imwrite(tmp_path / f"{name}.tif", LABELS)
        if spacing:
            (tmp_path / f"{name}.json").write_text(json.dumps({"spacing": spacing}))
    a, b, c = (read_labels(tmp_path / f"{name}.tif", Tiff3DIO()).geometry for name in "abc")
    assert a.difference(c) is None
    assert c.difference(b) == "spacing (3, 1, 1) mm, not (1, 1, 1) mm"


def test_images(tmp_path: Path) -> None:
    files = [placed(tmp_path / f"x_000{number}.nii.gz") for number in range(2)]
    image, geometry = read_image(files, SimpleITKIO())
    assert np.array_equal(image, [LABELS, LABELS])
    assert geometry == read_labels(files[0], SimpleITKIO()).geometry
    files[1].write_bytes(files[1].read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"x_0001.nii.gz cannot be read: its compressed stream ends too early"):
        read_image(files, SimpleITKIO())


def test_an_impossible_spacing(tmp_path: Path) -> None:
    content = bytearray(placed(tmp_path / "a.nii").read_bytes())
    content[80:84] = np.float32(np.nan).tobytes()  # pixdim[1]
    (tmp_path / "a.nii").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.nii has the impossible spacing|a.nii cannot be read"):
        read_labels(tmp_path / "a.nii", NibabelIO())
