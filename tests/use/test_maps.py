"""Images of what predictions are sure of."""

import json
import math
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from skimage.io import imread, imsave

from nnunet_nacl.use import write_maps
from tests.generated import description, geometry, names, plans, random_case, random_folder, read, write_predictions


def entropy_of(p: np.ndarray) -> np.ndarray:
    p = p.astype(np.float64)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(0)


@pytest.mark.parametrize("regions", [False, True])
def test_values_and_place(tmp_path: Path, regions: bool) -> None:
    """Of regions, the least sure one is shown."""
    folder, out = random_folder(tmp_path / "in", "ab", regions), tmp_path / "out"
    last = "core" if regions else "two"
    done = write_maps(folder, out, what=["confidence", "entropy", f"structure:{last}"])
    assert "Mapped 2 of 2 cases into" in done.summary()
    shown = ("confidence", "entropy", f"structure_{last}")
    assert names(out) == {*(f"{case}_{one}.nii.gz" for case in "ab" for one in shown), "maps.json"}
    for seed, name in enumerate("ab"):
        p = random_case(seed, regions)
        expected = (p.max(0), entropy_of(p), p[-1])
        if regions:
            of_regions = [entropy_of(np.stack([region, 1 - region])) for region in p]
            expected = (np.maximum(p, 1 - p).min(0), np.max(of_regions, axis=0), p[-1])
        for one, values in zip(shown, expected, strict=True):
            file = out / f"{name}_{one}.nii.gz"
            assert read(file).dtype == np.float32
            np.testing.assert_allclose(read(file), values, atol=1e-6)
            np.testing.assert_allclose(geometry(file), geometry(folder / f"{name}.nii.gz"), atol=1e-6)


STEPS = {"uint8": 1 / 255, "uint16": 1 / 65535, "float32": 1e-6}


@pytest.mark.parametrize("dtype", [None, *STEPS])
@pytest.mark.parametrize("as_one", [False, True])
@pytest.mark.parametrize("regions", [False, True])
def test_probability_maps(dtype: Any, as_one: bool, regions: bool, tmp_path: Path) -> None:
    """Two readers show p in [0, 1] in the segmentation's place; in 4-D, structures are in the order of dataset.json."""
    folder = random_folder(tmp_path / "in", "a", regions)
    out = tmp_path / "out"
    write_maps(folder, out, what=["structures"], as_one=as_one, dtype=dtype)
    structures = ["whole", "core"] if regions else ["one", "two"]
    expected = dict(zip(structures, random_case(0, regions)[-2:], strict=True))
    if as_one:
        expected = {"structures": np.stack(list(expected.values()))}
    mark = json.loads((out / "maps.json").read_text())
    assert mark["structures"] == structures
    assert names(out) == {"maps.json", *(f"a_{name}.nii.gz" for name in expected)}
    for name, p in expected.items():
        file, step = out / f"a_{name}.nii.gz", STEPS[dtype or "uint8"]
        stored: Any = nibabel.load(file)  # type: ignore[attr-defined]
        assert stored.get_data_dtype() == (dtype or "uint8")
        np.testing.assert_allclose(read(file), p, atol=0.51 * step)
        np.testing.assert_allclose(stored.get_fdata().T, p, atol=0.51 * step)
        like = nibabel.load(folder / "a.nii.gz")  # type: ignore[attr-defined]
        np.testing.assert_allclose(stored.affine, like.affine, atol=1e-6)


def test_scaled_where_the_format_has_no_fractions(tmp_path: Path) -> None:
    p, folder = random_case(0, shape=(1, 12, 14)), tmp_path / "in"
    write_predictions(folder, {})
    (folder / "dataset.json").write_text(description().replace(".nii.gz", ".png"))
    (folder / "plans.json").write_text(plans().replace("SimpleITKIO", "NaturalImage2DIO"))
    np.savez_compressed(folder / "a.npz", probabilities=p)
    imsave(folder / "a.png", p.argmax(0)[0].astype(np.uint8), check_contrast=False)
    said = write_maps(folder, tmp_path / "out", what=["confidence", "entropy"]).summary()
    confidence, entropy = (imread(tmp_path / "out" / f"a_{one}.png") for one in ("confidence", "entropy"))
    assert confidence.dtype == entropy.dtype == np.uint16
    np.testing.assert_array_equal(confidence, np.rint(p.max(0)[0].astype(float) * 65535))
    assert np.abs(entropy - entropy_of(p)[0] / math.log(3) * 65535).max() < 0.51
    assert "Scaled to uint16: 65535 stands for entropy 1.09861." in said
    with pytest.raises(ValueError, match=r"\.png files have no fourth axis; omit --as_one"):
        write_maps(folder, tmp_path / "one", what=["structures"], as_one=True)
    mark = json.loads((tmp_path / "out" / "maps.json").read_text())
    assert mark["largest_stands_for"] == {"confidence": 1.0, "entropy": math.log(3)}


def test_maps_that_there_are_not_or_that_would_replace_each_other(tmp_path: Path) -> None:
    folder, out = random_folder(tmp_path / "in", "a"), tmp_path / "out"
    with pytest.raises(ValueError, match=r"There is no map structure:spleen; .* with one of the names one, two"):
        write_maps(folder, out, what=["structure:spleen"])
    content = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps({**content, "labels": {"background": 0, "a b": 1, "a_b": 2}}))
    with pytest.raises(ValueError, match=r"Two maps would be a_a_b\.nii\.gz; rename a structure"):
        write_maps(folder, out, what=["structures"])
    write_maps(folder, out, what=["structures", "structure:a b"], as_one=True, dtype="float32")
    p = np.load(folder / "a.npz")["probabilities"][1:]
    np.testing.assert_array_equal(read(out / "a_structures.nii.gz"), p)  # both, though their names clash as files
    np.testing.assert_array_equal(read(out / "a_structure_a_b.nii.gz"), p[0])


def test_a_case_that_fails_keeps_no_earlier_map(tmp_path: Path) -> None:
    folder, out = random_folder(tmp_path / "in", "ab"), tmp_path / "out"
    write_maps(folder, out)
    (folder / "a.npz").write_bytes(b"damaged")
    done = write_maps(folder, out, overwrite=True)
    assert [entry.case for entry in done.skipped] == ["a"]
    assert names(out) == {"b_confidence.nii.gz", "maps.json"}
