import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.nnunet import BLOCK, Channels, NpzChannels


def example(shape: tuple[int, ...] = (3, 5, 70, 200)) -> np.ndarray:
    p = np.random.default_rng(0).random(shape, dtype=np.float32)
    p[:, 1:3] = 1
    return p


def read(file: Path) -> np.ndarray:
    channels = NpzChannels(file)
    found = np.concatenate(list(channels.blocks()))
    assert np.array_equal(np.concatenate(list(channels.blocks())), found)  # it can be read again
    return found.reshape(channels.shape)


def write(file: Path, p: np.ndarray, *, compression: int = zipfile.ZIP_DEFLATED, zip64: bool = False) -> None:
    data = io.BytesIO()
    np.save(data, p)
    with (
        zipfile.ZipFile(file, "w", compression) as archive,
        archive.open("probabilities.npy", "w", force_zip64=zip64) as out,
    ):
        out.write(data.getvalue())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_wrote(tmp_path: Path, dtype: object, order: str) -> None:
    p = np.asarray(example(), dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "a.npz", other=np.zeros(3), probabilities=p)
    found = read(tmp_path / "a.npz")
    assert np.array_equal(found, p)
    assert found.dtype == p.dtype.newbyteorder("=")
    assert np.array_equal(np.concatenate(list(Channels(p).blocks())), p.reshape(-1))


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_zip64(tmp_path: Path, compression: int, zip64: bool) -> None:
    write(tmp_path / "a.npz", example(), compression=compression, zip64=zip64)
    assert np.array_equal(read(tmp_path / "a.npz"), example())


def test_blocks_are_of_one_channel(tmp_path: Path) -> None:
    p = example((2, 1, 700, 200))
    write(tmp_path / "a.npz", p)
    sizes = [BLOCK, BLOCK, 140_000 - 2 * BLOCK] * 2
    assert [block.size for block in NpzChannels(tmp_path / "a.npz").blocks()] == sizes
    assert [block.size for block in Channels(p).blocks()] == sizes


def test_reading_may_stop_early(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", example())
    assert np.array_equal(next(NpzChannels(tmp_path / "a.npz").blocks()), example()[0].reshape(-1)[:BLOCK])


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def zip_of(member: bytes, name: str = "probabilities.npy") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, member)
    return data.getvalue()


def whole() -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, probabilities=example())
    return data.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"cannot be read: it is damaged or incomplete \(File is not a zip file\)\."),
        (whole()[:5000], r"cannot be read: it is damaged or incomplete \(File is not a zip file\)\."),
        (zip_of(header("(3, 4, 5)"), "softmax.npy"), "expected the key 'probabilities'; it holds softmax"),
        (zip_of(b""), "cannot be read: EOF: reading magic string"),
        (zip_of(b"no array"), "cannot be read: the magic string is not correct"),
        (zip_of(header("(2, 2)", "'<i4'") + bytes(16)), "expected an array of dtype .*; got int32"),
        (zip_of(header("(2, 2)", "'|O'") + bytes(32)), "expected an array of dtype .*; got object"),
        (zip_of(header("(2, 2)") + bytes(12)), r"cannot be right: shape \(2, 2\) and dtype float32 take \d+ bytes, "),
        (zip_of(header("(-1, 4)") + bytes(64)), "cannot be right: shape"),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "case_7.npz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"case_7.npz.*{message}"):
        read(file)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("position", np.linspace(0.01, 0.99, 25))
def test_a_flipped_bit_is_found(tmp_path: Path, position: float, compression: int) -> None:
    file = tmp_path / "case_7.npz"
    write(file, example(), compression=compression)
    data = bytearray(file.read_bytes())
    data[int(position * len(data))] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"case_7\.npz cannot be read: "):
        read(file)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        NpzChannels(tmp_path / "nowhere.npz")
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(ValueError, match=r"a\.npz cannot be read: .*[Dd]irectory"):
        NpzChannels(tmp_path / "a.npz")
