import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from isal import isal_zlib

from nnunet_nacl.metrics import BLOCK, Channels
from nnunet_nacl.nnunet import NpzChannels

P = np.random.default_rng(0).random((3, 5, 70, 200), dtype=np.float32)
P[:, 1:3] = 1


def read(file: Path) -> np.ndarray:
    channels = NpzChannels(file)
    found = values_of(channels)
    assert np.array_equal(values_of(channels), found)  # it can be read again
    return found


def values_of(channels: Channels) -> np.ndarray:
    found = np.full((channels.shape[0], math.prod(channels.shape[1:])), np.nan, channels.dtype)
    for channel, part, block in channels.blocks():
        found[channel, part] = block
    return found.reshape(channels.shape)


def npy(p: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, p)
    return data.getvalue()


def zip_of(member: bytes, name: str = "probabilities.npy", compression: int = 8, zip64: bool = False) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive, archive.open(name, "w", force_zip64=zip64) as out:
        out.write(member)
    return data.getvalue()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_wrote(tmp_path: Path, dtype: object, order: str) -> None:
    p = np.asarray(P, dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "a.npz", other=np.zeros(3), probabilities=p)
    found = read(tmp_path / "a.npz")
    assert np.array_equal(found, p)
    assert found.dtype == p.dtype.newbyteorder("=")
    assert np.array_equal(values_of(Channels(p)), p)


def test_stored_and_zip64(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    file.write_bytes(zip_of(npy(P), compression=zipfile.ZIP_STORED, zip64=True))
    assert np.array_equal(read(file), P)
    assert np.array_equal(next(NpzChannels(file).blocks())[2], P[0].reshape(-1)[:BLOCK])  # reading may stop early


def test_isal_inflates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", probabilities=P)
    started = []
    monkeypatch.setattr(
        isal_zlib, "decompressobj", lambda bits, make=isal_zlib.decompressobj: started.append(bits) or make(bits)
    )
    assert np.array_equal(values_of(NpzChannels(tmp_path / "a.npz")), P)
    assert len(started) == 2  # for the header and for the array
    with zipfile.ZipFile(tmp_path / "a.npz") as archive, archive.open("probabilities.npy") as stream:
        assert isinstance(stream._decompressor, type(zlib.decompressobj()))  # which zipfile does not promise to keep


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "File is not a zip file"),
        (zip_of(header("(3, 4, 5)"), "softmax.npy"), "There is no item named 'probabilities.npy'"),
        (zip_of(b"no array"), "the magic string is not correct"),
        (zip_of(header("(2, 2)", "'<i4'") + bytes(16)), "expected an array of dtype .*; got int32"),
        (zip_of(header("(2, 2)") + bytes(12)), r"shape \(2, 2\) and dtype float32 take \d+ bytes; it holds "),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "case_7.npz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} cannot be read: .*{message}"):
        read(file)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("position", np.linspace(0.01, 0.99, 25))
def test_a_flipped_bit_is_found(tmp_path: Path, position: float, compression: int) -> None:
    file = tmp_path / "case_7.npz"
    data = bytearray(zip_of(npy(P), compression=compression))
    data[int(position * len(data))] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"case_7\.npz cannot be read: "):
        read(file)
