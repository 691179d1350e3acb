"""Damaged archives of probabilities: the right numbers, or an error that names the file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy

from nnunet_nacl.nnunet import NpzChannels
from tests.fuzz.damage import FUZZ, damaged_bytes, outcome

P = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5, 6)).transpose(3, 0, 1, 2).astype(np.float32)


def archive(array: bytes, compression: int = zipfile.ZIP_DEFLATED, name: str = "probabilities.npy") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as opened:
        opened.writestr(name, array)
    return stream.getvalue()


def array_file(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def read_whole(file: Path) -> np.ndarray | None:
    def read() -> np.ndarray:
        channels = NpzChannels(file)
        blocks = list(channels.blocks())
        return np.concatenate(blocks).reshape(channels.shape) if blocks else np.empty(channels.shape, channels.dtype)

    return outcome(read, file)


@pytest.mark.parametrize("kind", ["compressed", "stored", "fortran", "half"])
def test_damaged_archives(kind: str, tmp_path: Path) -> None:
    p = {"fortran": np.asfortranarray(P), "half": P.astype(np.float16)}.get(kind, P)
    content = archive(array_file(p), zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    file = tmp_path / "case.npz"
    file.write_bytes(content)
    assert np.array_equal(read_whole(file), p)

    @FUZZ
    @given(st.one_of(damaged_bytes(content), damaged_bytes(content, len(content) - 120)))
    def law(damaged: bytes) -> None:
        file.write_bytes(damaged)
        read = read_whole(file)
        assert read is None or (read.dtype == p.dtype and np.array_equal(read, p))
        assert file.read_bytes() == damaged

    law()


SIZE = st.one_of(st.integers(-1, 8), st.sampled_from([10**5, 10**9, 2**31, 2**63, 10**30]))
SHAPE = st.one_of(
    st.sampled_from([(3, 4, 5, 6), (3, 4, 6, 5), (6, 5, 4, 3), (3, 120), (360,), (), (0,), (3, 4, 5, 7), (3, 0, 5, 6)]),
    st.lists(SIZE, max_size=5).map(tuple),
)
DTYPE = st.sampled_from(["<f4", ">f4", "<f2", "<f8", "<i4", "|u1", "|O", "<c8", "|S4", "<f16", "<U1", "|V4", "junk"])


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_that_declare_something_else(compression: int, tmp_path: Path) -> None:
    """With checksums that are right: what is read is what NumPy reads."""
    file = tmp_path / "case.npz"

    @FUZZ
    @given(st.booleans(), SHAPE, st.one_of(st.just("<f4"), DTYPE), st.integers(-64, 64), st.integers(0, 9))
    def law(fortran: bool, shape: tuple[int, ...], dtype: str, longer: int, length: int) -> None:
        stream = io.BytesIO()
        npy.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": fortran, "shape": shape})
        header = bytearray(stream.getvalue())
        if length == 0:
            header[8:10] = b"\xff\xff"
        values = P.tobytes() + bytes(64)
        file.write_bytes(archive(bytes(header) + values[: P.nbytes + longer], compression))
        read = read_whole(file)
        if read is not None:
            with np.load(file, allow_pickle=False) as opened:
                expected = opened["probabilities"]
            assert read.shape == expected.shape
            assert np.array_equal(read, expected, equal_nan=True)

    law()


@pytest.mark.parametrize("factor", [1, 2000])
def test_archives_that_inflate_to_gigabytes(factor: int, tmp_path: Path) -> None:
    """A run of zeros that is as large as it says: read in blocks, whatever its size."""
    file = tmp_path / "case.npz"
    shape = (3, factor, 64, 64)
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as opened,
        opened.open("probabilities.npy", "w", force_zip64=True) as stream,
    ):
        npy.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
        for _ in range(3 * factor):
            stream.write(bytes(8 * 64 * 64))

    def read() -> int:
        channels = NpzChannels(file)
        return sum(block.size for block in channels.blocks())

    assert outcome(read, file) == 3 * factor * 64 * 64
