"""Images of what predictions are sure of."""

import json
import math
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import tifffile
from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name
from scipy.stats import entropy as scipy_entropy
from skimage.io import imread

from nnunet_nacl.cli import main
from nnunet_nacl.use import write_maps
from tests.use.generated import (
    LABELS,
    REGIONS,
    SHAPE,
    geometry,
    names,
    random_probabilities,
    random_regions,
    read,
    write_folder,
)


def maps(folder: Path, output: Path, *options: object) -> int:
    return main(["maps", str(folder), "-o", str(output), "-np", "1", *map(str, options)])


def entropy_of(p: np.ndarray) -> np.ndarray:
    p = p.astype(np.float64)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(0)


def test_values_and_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {name: random_probabilities(seed) for seed, name in enumerate("ab")}
    folder = write_folder(tmp_path / "in", cases)
    what = ["confidence", "entropy", "structure:left kidney", "structure:1"]
    assert maps(folder, tmp_path / "out", "--what", *what) == 0
    assert "Mapped 2 of 2 cases into" in capsys.readouterr().out
    shown = ("confidence", "entropy", "structure_left_kidney", "structure_liver")
    files = {f"{case}_{one}.nii.gz" for case in "ab" for one in shown}
    assert names(tmp_path / "out") == {*files, "maps.json"}
    for name, p in cases.items():
        expected = dict(zip(shown, (p.max(0), entropy_of(p), p[2], p[1]), strict=True))
        for one, values in expected.items():
            file = tmp_path / "out" / f"{name}_{one}.nii.gz"
            assert read(file).dtype == np.float32
            np.testing.assert_allclose(read(file), values, atol=1e-6)
            np.testing.assert_allclose(geometry(file), geometry(folder / f"{name}.nii.gz"), atol=1e-6)
    np.testing.assert_array_equal(read(tmp_path / "out" / "a_confidence.nii.gz"), cases["a"].max(0))


def test_regions_show_the_least_sure_region(tmp_path: Path) -> None:
    p = random_regions(0)
    folder = write_folder(tmp_path / "in", {"a": p}, labels=REGIONS)
    assert maps(folder, tmp_path / "out", "--what", "confidence", "entropy", "structure:core") == 0
    of_regions = np.stack([entropy_of(np.stack([region, 1 - region])) for region in p])
    expected = {"confidence": np.maximum(p, 1 - p).min(0), "entropy": of_regions.max(0), "structure_core": p[1]}
    for one, values in expected.items():
        np.testing.assert_allclose(read(tmp_path / "out" / f"a_{one}.nii.gz"), values, atol=1e-6)


@pytest.mark.parametrize("labels", [LABELS, REGIONS], ids=["classes", "regions"])
def test_mutual_information_of_members(tmp_path: Path, labels: dict[str, object]) -> None:
    made = random_regions if labels is REGIONS else random_probabilities
    members = [write_folder(tmp_path / f"m{seed}", {"a": made(seed)}, labels=labels) for seed in range(3)]
    arguments = ["--what", "mutual_information", "--members", *members]
    assert maps(members[0], tmp_path / "out", *arguments) == 0
    stack = np.stack([made(seed) for seed in range(3)]).astype(np.float64)
    stack = np.stack([stack, 1 - stack], axis=1) if labels is REGIONS else stack[:, :, None]  # (member, outcome, ...)
    expected = scipy_entropy(stack, stack.mean(0)[None], axis=1).mean(0).max(0)  # mean divergence from the mean
    np.testing.assert_allclose(read(tmp_path / "out" / "a_mutual_information.nii.gz"), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_scaled(tmp_path: Path, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    p = random_probabilities(0)
    folder = write_folder(tmp_path / "in", {"a": p})
    print(write_maps(folder, tmp_path / "out", what=["confidence", "entropy"], dtype=dtype, num_processes=1).summary())
    whole = np.iinfo(dtype).max
    confidence, entropy = (read(tmp_path / "out" / f"a_{one}.nii.gz") for one in ("confidence", "entropy"))
    assert confidence.dtype == entropy.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(confidence, np.rint(p.max(0).astype(float) * whole))
    assert np.abs(entropy - entropy_of(p) / math.log(3) * whole).max() < 0.51
    assert f"Scaled to {dtype}: {whole} stands for confidence 1, entropy 1.09861." in capsys.readouterr().out
    mark = json.loads((tmp_path / "out" / "maps.json").read_text())
    assert mark["largest_stands_for"] == {"confidence": 1.0, "entropy": math.log(3)}


READERS = [
    ("SimpleITKIO", ".nii.gz"), ("SimpleITKIO", ".mha"), ("SimpleITKIO", ".nrrd"),
    ("SimpleITKIOWithReorient", ".nii.gz"), ("NibabelIO", ".nii.gz"), ("NibabelIOWithReorient", ".nii.gz"),
    ("Tiff3DIO", ".tif"), ("NaturalImage2DIO", ".png"), ("NaturalImage2DIO", ".bmp"), ("SimpleITKIO 2D", ".nii.gz"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "ending"), READERS)
def test_every_format_lies_where_the_segmentation_lies(tmp_path: Path, reader: str, ending: str) -> None:
    """Read by nnU-Net's own reader the values are right; read by SimpleITK the place is that of the segmentation."""
    is_flat = reader in {"NaturalImage2DIO", "SimpleITKIO 2D"}
    reader = reader.removesuffix(" 2D")
    p = random_probabilities(0, shape=(1, *SHAPE[1:]) if is_flat else SHAPE)
    folder = write_folder(tmp_path / "in", {"a": p}, ending=ending, reader=reader)
    assert maps(folder, tmp_path / "out") == 0
    file = tmp_path / "out" / f"a_confidence{ending}"
    values, properties = recursive_find_reader_writer_by_name(reader)().read_seg(str(file))
    whole = {".png": 65535, ".bmp": 255}.get(ending, 1)
    np.testing.assert_allclose(values[0] / whole, p.max(0), atol=0.51 / whole if whole > 1 else 0)
    _, expected = recursive_find_reader_writer_by_name(reader)().read_seg(str(folder / f"a{ending}"))
    np.testing.assert_allclose(properties["spacing"], expected["spacing"])
    if ending == ".tif":
        assert tifffile.imread(file).dtype == np.float32
        assert json.loads((tmp_path / "out" / "a_confidence.json").read_text()) == {"spacing": [2.0, 0.5, 0.75]}
    elif reader == "NaturalImage2DIO":
        assert imread(file).dtype == (np.uint16 if ending == ".png" else np.uint8)
    else:
        np.testing.assert_allclose(geometry(file), geometry(folder / f"a{ending}"), atol=1e-5)


def test_a_bad_case_is_named_and_the_others_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {name: random_probabilities(seed) for seed, name in enumerate("abcd")}
    folder = write_folder(tmp_path / "in", cases)
    (folder / "a.nii.gz").unlink()
    np.savez_compressed(folder / "b.npz", probabilities=cases["c"])
    (folder / "c.npz").write_bytes((folder / "c.npz").read_bytes()[:500])
    assert maps(folder, tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert "Mapped 1 of 4 cases into" in printed
    assert f"Not mapped: a: {folder / 'a.nii.gz'} does not exist." in printed
    assert "Not mapped: b: " in printed
    assert "the segmentation b.nii.gz" in printed
    assert "Not mapped: c: " in printed
    assert names(tmp_path / "out") == {"d_confidence.nii.gz", "maps.json"}
    assert [entry["case"] for entry in json.loads((tmp_path / "out" / "maps.json").read_text())["skipped"]] == [*"abc"]


WRONG = [
    (["--what", "certainty"], "There is no map certainty; expected confidence, entropy, mutual_information or"),
    (["--what", "structure:spleen"], "with one of the names liver, left kidney."),
    (["--what", "mutual_information"], "shows what 2 members or more disagree on, and only it does; got 0 members"),
    (["--what", "structure:liver", "structure:1"], "would have the same file"),
    (["--what", "mutual_information", "--members", "IN"], "got 1 members"),
    (["--members", "IN", "IN"], "got 2 members for the maps confidence"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    folder = write_folder(tmp_path / "in", {"a": random_probabilities(0)})
    assert maps(folder, tmp_path / "out", *(str(folder) if one == "IN" else one for one in options)) == 1
    assert message in capsys.readouterr().err
    assert names(tmp_path) == {"in"}


def test_overwrite_keeps_the_users_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", {"a": random_probabilities(0)})
    before = names(folder)
    assert maps(folder, tmp_path / "out") == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert maps(folder, tmp_path / "out", "--what", "entropy") == 1
    assert maps(folder, tmp_path / "out", "--what", "entropy", "--overwrite") == 0
    assert names(tmp_path / "out") == {"a_confidence.nii.gz", "a_entropy.nii.gz", "maps.json", "notes.txt"}
    assert maps(folder, folder, "--overwrite") == 1
    assert names(folder) == before


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {"a": random_probabilities(0, shape=(9, 60, 60)), "b": random_probabilities(1)}
    folder, old = write_folder(tmp_path / "in", cases), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        assert maps(folder, tmp_path / "out") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "cannot be written whole; the disk is probably full" in error
    assert "a_confidence.nii.gz" in error
    assert names(tmp_path) == {"in"}
