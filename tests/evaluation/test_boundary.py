import numpy as np
from scipy.spatial.distance import cdist

from nnunet_nacl.evaluation._near import near_boundary

SPACING = (2.0, 1.0, 0.5)


def by_loops(labels: np.ndarray, width_mm: float, ignored: int) -> np.ndarray:
    edge = np.zeros(labels.shape, bool)
    for index in np.ndindex(labels.shape):
        for axis in range(labels.ndim):
            for step in (-1, 1):
                other = list(index)
                other[axis] += step
                if 0 <= other[axis] < labels.shape[axis]:
                    pair = {int(labels[index]), int(labels[tuple(other)])}
                    edge[index] |= len(pair) == 2 and ignored not in pair
    points = np.argwhere(np.ones(labels.shape, bool)) * SPACING
    near = cdist(points, np.argwhere(edge) * SPACING).min(1) <= width_mm
    return near.reshape(labels.shape) & (labels != ignored)


def test_equals_loops() -> None:
    generator = np.random.default_rng(0)
    for _ in range(5):
        labels = np.zeros((7, 12, 14), int)
        labels[2:4, 3:7, 4:9] = generator.integers(1, 3)
        labels[5, 9:, :3] = 3
        for width in (0, 0.5, 1.5, 3):
            assert np.array_equal(near_boundary(labels, SPACING, width, 3), by_loops(labels, width, 3))


def test_no_boundary() -> None:
    assert not near_boundary(np.ones((3, 4, 5), int), SPACING, 10, 9).any()


def test_a_spacing_in_float32_does_not_break_the_width() -> None:
    labels = np.array([[0] * 10 + [1] * 10])
    step = float(np.float32(0.2))
    assert near_boundary(labels, (step, step), 1, 9).sum() == 12
