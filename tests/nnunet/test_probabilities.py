import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnunet_nacl.nnunet import BLOCK, NpzChannels, _inflate
from tests.evaluation.generated import random_case


@pytest.fixture(params=["isal", "zlib"])
def inflate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the extra ``fast``."""
    if request.param == "isal":
        pytest.importorskip("isal", reason="the extra fast is not installed")
    else:
        monkeypatch.setattr(_inflate, "library", zlib)


def read(file: Path) -> np.ndarray:
    channels = NpzChannels(file)
    return np.concatenate(list(channels.blocks())).reshape(channels.shape)


def example(shape: tuple[int, ...] = (3, 5, 70, 200)) -> np.ndarray:
    p = np.random.default_rng(0).random(shape, dtype=np.float32)
    p[:, 1:3] = 1
    return p


@pytest.mark.usefixtures("inflate")
def test_equals_numpy(tmp_path: Path) -> None:
    p = example()
    assert p[0].size > BLOCK
    np.savez_compressed(tmp_path / "a.npz", other=np.zeros(3), probabilities=p)
    assert np.array_equal(read(tmp_path / "a.npz"), p)


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dtypes_and_orders(tmp_path: Path, dtype: object, order: str) -> None:
    p = np.asarray(example(), dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "a.npz", probabilities=p)
    found = read(tmp_path / "a.npz")
    assert np.array_equal(found, p)
    assert found.dtype == p.dtype.newbyteorder("=")


def write(file: Path, p: np.ndarray, *, compression: int = zipfile.ZIP_DEFLATED, zip64: bool = False) -> None:
    data = io.BytesIO()
    np.save(data, p)
    with (
        zipfile.ZipFile(file, "w", compression) as archive,
        archive.open("probabilities.npy", "w", force_zip64=zip64) as out,
    ):
        out.write(data.getvalue())


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_zip64(tmp_path: Path, compression: int, zip64: bool) -> None:
    write(tmp_path / "a.npz", example(), compression=compression, zip64=zip64)
    assert np.array_equal(read(tmp_path / "a.npz"), example())


def test_a_stream_can_be_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", example())
    channels = NpzChannels(tmp_path / "a.npz")
    first, second = (np.concatenate(list(channels.blocks())) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.usefixtures("inflate")
def test_hugely_compressible(tmp_path: Path) -> None:
    p = np.zeros((2, 1, 3000, 1000), np.float32)
    write(tmp_path / "a.npz", p)
    assert (tmp_path / "a.npz").stat().st_size < p.nbytes / 900
    assert np.array_equal(read(tmp_path / "a.npz"), p)


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


def flipped(position: float) -> bytes:
    data = bytearray(whole())
    data[int(position * len(data))] ^= 0x10
    return bytes(data)


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"cannot be read: it is damaged or incomplete \(File is not a zip file\)\."),
        (b"not a zip archive", r"cannot be read: it is damaged or incomplete \(File is not a zip file\)\."),
        (whole()[:5000], r"cannot be read: it is damaged or incomplete \(File is not a zip file\)\."),
        (flipped(0.5), "cannot be read: "),
        (zip_of(header("(3, 4, 5)"), "softmax.npy"), "expected the key 'probabilities'; it holds softmax"),
        (zip_of(b"x", "../../x"), "expected the key 'probabilities'; it holds ../../x"),
        (zip_of(b""), "cannot be read: it ends after 0 bytes of data"),
        (zip_of(b"no array"), "cannot be read: the magic string is not correct"),
        (
            zip_of(header("(2, 2)", "'|O'") + bytes(32)),
            "expected an array of dtype float16, float32 or float64; got obj",
        ),
        (zip_of(header("(2, 2)", "'<i4'") + bytes(16)), "expected an array of dtype .*; got int32"),
        (
            zip_of(header("(2, 2)") + bytes(12)),
            r"cannot be right: shape \(2, 2\) and dtype float32 take \d+ bytes, but ",
        ),
        (
            zip_of(header("(1000000, 1000000)") + bytes(64)),
            r"cannot be right: shape \(1000000, 1000000\) and dtype flo",
        ),
        (zip_of(header("(-1, 4)") + bytes(64)), "cannot be right: shape"),
        (zip_of(header("(__import__('os'), 4)") + bytes(64)), "cannot be read: malformed node or string"),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "case_7.npz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"case_7.npz.*{message}"):
        read(file)


def test_a_declared_size_that_is_absurd(tmp_path: Path) -> None:
    """Shape, zip directory and all say a terabyte, with 100 bytes of data: refused before anything is allocated."""
    data = bytearray(zip_of(header("(1000, 1000, 1000, 250)") + bytes(4096)))
    size = len(header("(1000, 1000, 1000, 250)")) + 10**12
    directory = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, directory + 24, 0xFFFFFFFF)
    extra = struct.pack("<HHQ", 1, 8, size)
    name_length = struct.unpack_from("<H", data, directory + 28)[0]
    struct.pack_into("<H", data, directory + 30, len(extra))
    end = data.index(b"PK\x05\x06")
    data[directory + 46 + name_length : directory + 46 + name_length] = extra
    struct.pack_into("<I", data, end + len(extra) + 12, end + len(extra) - directory)
    file = tmp_path / "bomb.npz"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"bomb\.npz cannot be right: .* take 1000000000\d+ bytes, but"):
        NpzChannels(file)


def test_encrypted_and_unknown_compression(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    data = bytearray(whole())
    directory = data.index(b"PK\x01\x02")
    for offset, value, message in ((8, 1, "it is encrypted"), (10, 93, "zip compression method 93")):
        changed = bytearray(data)
        struct.pack_into("<H", changed, directory + offset, value)
        file.write_bytes(changed)
        with pytest.raises(ValueError, match=f"a.npz cannot be read: {message}"):
            read(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        NpzChannels(tmp_path / "nowhere.npz")


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(ValueError, match=r"a\.npz cannot be read: .*[Dd]irectory"):
        NpzChannels(tmp_path / "a.npz")


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_archives_give_the_right_numbers_or_an_error_with_the_name(tmp_path: Path, data: st.DataObject) -> None:
    p, _ = random_case(0)
    content = io.BytesIO()
    save = np.savez_compressed if data.draw(st.booleans()) else np.savez
    save(content, probabilities=p)
    mutated = bytearray(content.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        # Headers and directory, which are few bytes, as often as the data.
        where = data.draw(st.one_of(st.integers(0, 200), st.integers(-150, -1), st.integers(0, len(mutated) - 1)))
        where %= len(mutated)
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if kind == "flip":
            mutated[where] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del mutated[where:]
        elif kind == "insert":
            mutated[where:where] = data.draw(st.binary(min_size=1, max_size=20))
        else:
            del mutated[where : where + data.draw(st.integers(1, 20))]
        if not mutated:
            break
    file = tmp_path / "mutated.npz"
    file.write_bytes(mutated)
    try:
        found = read(file)
    except ValueError as error:
        assert "mutated.npz" in str(error)  # noqa: PT017 - either is fine
    else:
        assert np.array_equal(found, p)
