import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnunet_nacl.metrics import top_label

few_values = st.integers(0, 3).map(lambda k: k / 3)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3), elements=few_values))
def test_equals_numpy(p: np.ndarray) -> None:
    confidence, label = top_label(p)
    assert np.array_equal(confidence, p.max(0))
    assert np.array_equal(label, p.argmax(0))


def test_more_classes_than_a_byte_holds() -> None:
    p = np.zeros((300, 1))
    p[299] = 1
    assert top_label(p)[1].tolist() == [299]
