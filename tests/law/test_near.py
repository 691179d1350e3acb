"""The voxel set near, against SciPy's distance transform."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from nnunet_nacl.evaluation import CORE_PROBABILITY, VOXEL_SETS, CalibrationTables, Settings, evaluate_case, near_core

SETS = Settings(voxels=("near", "image"))


def scipy_near(core: np.ndarray, spacing: tuple[float, ...], margin: float) -> np.ndarray:
    if not core.any():  # of which SciPy's distances mean nothing
        return np.zeros_like(core)
    return distance_transform_edt(~core, sampling=spacing) <= margin * (1 + 1e-6)


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, tuple[float, ...], float]:
    shape = draw(st.lists(st.integers(1, 14), min_size=2, max_size=3))
    # Round ones, whose multiples are the margin, and any.
    steps = st.one_of(st.sampled_from([0.1, 0.2, 0.5, 1.0, 2.5, 999.0]), st.floats(0.05, 8))
    spacing = draw(st.tuples(*[steps] * len(shape)))
    if draw(st.booleans()):  # as files store them
        spacing = tuple(float(np.float32(step)) for step in spacing)
    margin = draw(st.one_of(st.sampled_from([0.0, 1.0, 2.0, 5.0, 50.0, 2000.0]), st.floats(0, 20)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    return generator.random(shape) < draw(st.sampled_from([0.0, 0.005, 0.05, 0.5, 1.0])), spacing, margin


@given(images())
@settings(max_examples=300, deadline=None)
def test_against_scipy(image: tuple[np.ndarray, tuple[float, ...], float]) -> None:
    core, spacing, margin = image
    before = core.copy()
    np.testing.assert_array_equal(near_core(core, spacing, margin), scipy_near(core, spacing, margin))
    np.testing.assert_array_equal(core, before)


@pytest.mark.parametrize("step", [0.2, float(np.float32(0.2)), 0.1, float(np.float32(0.1)), 1 / 3])
def test_margin_of_whole_voxels(step: float) -> None:
    """5 × 0.2 mm are within 1 mm, even if 0.2 is a float32 a little above."""
    core = np.zeros((1, 25), bool)
    core[0, 0] = True
    for shape in ((1, 25), (25, 1), (25, 1, 1)):
        assert near_core(core.reshape(shape), (step,) * len(shape), 1.0).sum() == round(1 / step) + 1


# The set in an evaluation: the image's tables where everything else is ignored


def random_case(seed: int, channels: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Sure background but for a few voxels, whose values are far from 0.05; labels, some of them ignored."""
    generator = np.random.default_rng(seed)
    p = np.zeros((channels, *shape))
    p[0] = 1
    unsure = generator.random(shape) < 0.02
    p[:, unsure] = generator.dirichlet(np.ones(channels), np.count_nonzero(unsure)).T
    p[:, generator.random(shape) < 0.2] = np.eye(channels)[:, :1] * 0.97 + 0.03 / channels
    assert not ((1 - p[0] > 0.049) & (1 - p[0] < 0.051)).any()
    y = generator.integers(0, channels, shape)
    y[generator.random(shape) < 0.2] = 9
    return p, y


def assert_same_tables(found: CalibrationTables, wanted: CalibrationTables, row: int | None = None) -> None:
    part = slice(None) if row is None else slice(row, row + 1)
    for name in ("top", "classwise", "fine"):
        for column in ("count", "hits"):
            np.testing.assert_array_equal(
                getattr(getattr(found, name), column)[part], getattr(getattr(wanted, name), column)[part]
            )
        np.testing.assert_allclose(getattr(found, name).confidence[part], getattr(wanted, name).confidence[part])
    np.testing.assert_allclose(found.nll[part], wanted.nll[part])
    np.testing.assert_allclose(found.brier[part], wanted.brier[part])


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("margin", [0.0, 2.0, 5.0, 1000.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "spacing"), [((9, 30, 40), (3.0, 0.8, 1.2)), ((40, 60), (2.0, 0.5)), ((1, 40, 60), (999.0, 0.7, 0.7))]
)
def test_of_classes(shape: tuple[int, ...], spacing: tuple[float, ...], dtype: type, margin: float, seen: bool) -> None:
    """Whether the model sees all of the foreground or not, and whichever sets are asked for."""
    p, y = random_case(0, 3, shape)
    p = p.astype(dtype)
    near = scipy_near(1 - p[0].astype(np.float64) > 0.05, spacing, margin)
    if seen:
        y[~near & (y != 9)] = 0
    options = {"ignore_label": 9, "spacing_mm": spacing}
    found = evaluate_case(p, y, settings=Settings(voxels=("near", "image"), margin_mm=margin), **options).calibration
    of_all = evaluate_case(p, y, settings=Settings(voxels=VOXEL_SETS, margin_mm=margin), **options).calibration
    cut = evaluate_case(p, np.where(near, y, 9), settings=Settings(voxels=("image",)), **options).calibration
    for one in (found, of_all):
        assert_same_tables(one["near"], cut["image"])
        np.testing.assert_array_equal(one["near"].image_voxels, one["image"].top.total)
    counted = y != 9
    assert found["near"].metrics()["share"] == pytest.approx((near & counted).sum() / counted.sum())
    assert found["image"].metrics()["share"] == 1


@pytest.mark.parametrize("margin", [0.0, 2.0, 1000.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_of_regions(dtype: type, margin: float) -> None:
    shape, spacing, regions = (9, 30, 40), (3.0, 0.8, 1.2), [(1, 2), (2,)]
    p, y = random_case(1, 3, shape)
    p = p[1:].astype(dtype)
    options = {"ignore_label": 9, "spacing_mm": spacing, "regions": regions, "prediction": np.zeros(shape, int)}
    found = evaluate_case(p, y, settings=Settings(voxels=("near", "image"), margin_mm=margin), **options).calibration
    shares = []
    for r in range(2):
        near = scipy_near(p[r].astype(np.float64) > 0.05, spacing, margin)
        cut = evaluate_case(p, np.where(near, y, 9), settings=Settings(voxels=("image",)), **options).calibration
        assert_same_tables(found["near"], cut["image"], row=r)
        shares.append((near & (y != 9)).sum() / (y != 9).sum())
    assert found["near"].metrics()["share"] == pytest.approx(np.mean(shares))


def test_ignored_voxels_can_be_its_core() -> None:
    """What the model sees in an ignored voxel is still a prediction: voxels around it are near."""
    p1 = np.zeros((1, 9))
    p1[0, 4] = 0.5
    y = np.zeros((1, 9), int)
    y[0, 4] = 9
    found = evaluate_case(np.stack([1 - p1, p1]), y, ignore_label=9, settings=Settings(voxels=("near",), margin_mm=2))
    assert found.calibration["near"].top.total.tolist() == [4]
    assert found.calibration["near"].metrics()["share"] == 0.5


def test_core_is_above_the_threshold() -> None:
    assert CORE_PROBABILITY == 0.05
    y, settings = np.zeros((1, 2), int), Settings(voxels=("near",), margin_mm=0)
    p1 = np.array([[0.04, 0.06]], np.float32)
    found = evaluate_case(np.stack([1 - p1, p1]), y, settings=settings).calibration["near"]
    assert found.top.total.tolist() == [1]
    p1 = np.array([[0.05, 0.0625]])
    found = evaluate_case(p1[None], y, y, regions=[(1,)], settings=settings).calibration["near"]
    assert found.top.total.tolist() == [1]
