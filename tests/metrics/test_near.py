"""The voxel set near, against SciPy's distance transform."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from nnunet_nacl.metrics import CORE_PROBABILITY, CalibrationTables, Settings, evaluate_case, measure, near_core


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


def near_of(p: list[list[float]], y: list[int], margin_mm: float, **more: object) -> CalibrationTables:
    settings = Settings(margin_mm=margin_mm)
    arguments = np.array(p)[:, None], np.array([y])
    return evaluate_case(*arguments, settings=settings, **more)["near"]  # type: ignore[arg-type]


def test_ignored_voxels_can_be_its_core() -> None:
    """What the model sees in an ignored voxel is still a prediction: voxels around it are near."""
    p1 = [0.0] * 4 + [0.5] + [0.0] * 4
    found = near_of([[1 - p for p in p1], p1], [0] * 4 + [9] + [0] * 4, 2, ignore_label=9)
    assert found.top.total.tolist() == [4]
    assert measure(found)["share"] == 0.5


def test_core_is_above_the_threshold() -> None:
    assert CORE_PROBABILITY == 0.05
    assert near_of([[0.96, 0.94], [0.04, 0.06]], [0, 0], 0).top.total.tolist() == [1]
    of_region = near_of([[0.05, 0.0625]], [0, 0], 0, prediction=np.zeros((1, 2), int), regions=[(1,)])
    assert of_region.top.total.tolist() == [1]


@pytest.mark.parametrize("spacing", [(0, 1), (np.nan, 1), (1, 1, 1)])
def test_spacings_that_are_no_distances(spacing: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="spacing_mm: expected 2 distances above 0"):
        near_core(np.ones((3, 4), bool), spacing, 5)
