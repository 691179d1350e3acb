"""A label map in every format that nnU-Net reads."""

from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import SimpleITK as sitk
import tifffile
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.nibabel_reader_writer import NibabelIO, NibabelIOWithReorient
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO, SimpleITKIOWithReorient
from nnunetv2.imageio.tif_reader_writer import Tiff3DIO
from skimage import io

LABELS = np.random.default_rng(0).integers(0, 3, (5, 8, 12), np.uint8).repeat(2, 1)


def with_simpleitk(file: Path, *, compressed: bool = True, labels: np.ndarray = LABELS) -> None:
    image = sitk.GetImageFromArray(labels)
    image.SetSpacing((1, 2, 3)[: labels.ndim])
    sitk.WriteImage(image, str(file), compressed)


def plain(file: Path) -> None:
    with_simpleitk(file, compressed=False)


def big_endian(file: Path) -> None:
    header = nibabel.Nifti1Header(endianness=">")
    header.set_data_dtype(np.int16)
    nibabel.save(nibabel.Nifti1Image(LABELS.astype(np.int16).T, np.eye(4), header), file)


def nifti2(file: Path) -> None:
    nibabel.save(nibabel.Nifti2Image(LABELS.T, np.diag([1, 2, 3, 1])), file)


def scaled(file: Path) -> None:
    image = nibabel.Nifti1Image(LABELS.T, np.eye(4))
    image.header.set_slope_inter(2, 0)
    nibabel.save(image, file)


def tiff(file: Path) -> None:
    tifffile.imwrite(file, LABELS, compression="zlib")


def flat(file: Path) -> None:
    io.imsave(file, LABELS[0], check_contrast=False)


Format = tuple[str, Callable[[Path], None], type]
FORMATS: dict[str, Format] = {
    "nii": (".nii", plain, SimpleITKIO),
    "nii.gz": (".nii.gz", with_simpleitk, SimpleITKIO),
    "nii.gz, reoriented": (".nii.gz", with_simpleitk, SimpleITKIOWithReorient),
    "nii, nibabel": (".nii", plain, NibabelIO),
    "nii.gz, nibabel": (".nii.gz", with_simpleitk, NibabelIO),
    "nii.gz, nibabel, reoriented": (".nii.gz", with_simpleitk, NibabelIOWithReorient),
    "nii.gz, big-endian": (".nii.gz", big_endian, SimpleITKIO),
    "nii, big-endian": (".nii", big_endian, NibabelIO),
    "nii.gz, NIfTI-2": (".nii.gz", nifti2, NibabelIO),
    "nii.gz, scaled": (".nii.gz", scaled, SimpleITKIO),
    "mha": (".mha", plain, SimpleITKIO),
    "mha, compressed": (".mha", with_simpleitk, SimpleITKIO),
    "nrrd": (".nrrd", plain, SimpleITKIO),
    "nrrd, compressed": (".nrrd", with_simpleitk, SimpleITKIO),
    "gipl": (".gipl", plain, SimpleITKIO),
    "png": (".png", flat, NaturalImage2DIO),
    "bmp": (".bmp", flat, NaturalImage2DIO),
    "tif": (".tif", tiff, Tiff3DIO),
}
CHECKSUMS = [name for name in FORMATS if "nii.gz" in name or "compressed" in name or name == "png"]
