import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnunet_nacl.metrics import BinCounts


def test_by_hand() -> None:
    table = BinCounts.fill(np.array([0.0, 0.5, 0.51, 1.0]), np.array([True, False, True, True]), num_bins=2)
    assert table.count.tolist() == [2, 2]
    assert table.hits.tolist() == [1, 2]
    assert table.confidence.tolist() == [0.5, 1.51]


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, np.inf])
def test_values_that_are_no_confidence(bad: float) -> None:
    with pytest.raises(ValueError, match=r"^confidences must be in \[0, 1\]; got values from "):
        BinCounts.fill(np.array([0.5, bad]), np.array([True, True]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(st.data(), st.integers(1, 60))
def test_bins_equal_a_search_among_the_edges(dtype: type[np.floating], data: st.DataObject, num_bins: int) -> None:
    """They are open below and closed above; 0 is in the first."""
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    near = np.unique(np.concatenate([edges, np.nextafter(edges, dtype(0)), np.nextafter(edges, dtype(1))]))
    random = data.draw(hnp.arrays(np.float64, 20, elements=st.floats(0, 1))).astype(dtype)
    values = np.concatenate([near, random])
    expected = np.bincount(np.searchsorted(edges[1:-1], values, side="left"), minlength=num_bins)
    assert BinCounts.fill(values, values > 0, num_bins).count.tolist() == expected.tolist()
