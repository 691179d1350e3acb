"""Expected bin tables against their definition, in plain Python, and against labels that are drawn."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnunet_nacl.evaluation import CalibrationTables, Settings, evaluate_case
from nnunet_nacl.metrics import BinCounts

SETS = ("foreground", "union")
Rows = list[list[list[float]]]  # [channel][bin] -> count, hits, confidence


def dyadic_case(
    seed: int, channels: int, dtype: type, regions: bool, size: int = 500
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p in multiples of 1/256, exact in every dtype, with ties, zeros and ones; labels, a tenth ignored; the rest."""
    generator = np.random.default_rng(seed)
    sharpness = generator.choice([0.1, 1, 10], size)[:, None]
    if regions:
        p = generator.beta(sharpness, sharpness, (size, channels))
        p[::17] = 0.5
    else:
        p = generator.dirichlet(np.ones(channels), size) ** sharpness
        p = np.array([generator.multinomial(256, row / row.sum()) for row in p]) / 256
        p[::17], p[1::17] = 0, np.eye(channels)[0]
        p[::17, [0, -1]] = 0.5
        p[2::17] = np.eye(channels)[-1]
    p = np.round(p * 256) / 256
    labels = generator.integers(0, channels + regions, size)
    counted = generator.random(size) > 0.1
    labels[~counted] = 9
    return p.T.reshape(channels, 5, -1).astype(dtype), labels.reshape(5, -1), counted.reshape(5, -1)


def tables_of(p: np.ndarray, y: np.ndarray, regions: bool, **options) -> dict[str, CalibrationTables]:
    options = {"voxels": SETS, **options}
    more = {}
    if regions:
        nested = [tuple(range(k, len(p) + 1)) for k in range(1, len(p) + 1)]
        more = {"regions": nested, "prediction": (p > 0.5).sum(0)}
    return evaluate_case(p, y, ignore_label=9, settings=Settings(**options), **more).calibration


# By definition: each voxel's label takes each value with its probability


def bin_of(value: float, dtype: type, num_bins: int) -> int:
    for m in range(num_bins):
        if value <= float(dtype(m + 1) / dtype(num_bins)):
            return m
    raise AssertionError(value)


def empty_rows(channels: int, num_bins: int) -> Rows:
    return [[[0.0, 0.0, 0.0] for _ in range(num_bins)] for _ in range(channels)]


def add(row: list[list[float]], m: int, probability: float, hit: bool, confidence: float) -> None:
    row[m][0] += probability
    row[m][1] += probability * hit
    row[m][2] += probability * confidence


def loop_over_classes(p: np.ndarray, counted: np.ndarray, voxels: str, num_bins: int) -> tuple[Rows, Rows]:
    dtype, channels = p.dtype.type, len(p)
    top, classwise = empty_rows(1, num_bins), empty_rows(channels, num_bins)
    for values in p[:, counted].T.tolist():
        predicted = values.index(max(values))
        for label, probability in enumerate(values):
            if label == 0 and (voxels == "foreground" or predicted == 0):
                continue  # not in the set
            add(top[0], bin_of(max(values), dtype, num_bins), probability, predicted == label, max(values))
            for k in range(channels):
                add(classwise[k], bin_of(values[k], dtype, num_bins), probability, label == k, values[k])
    return top, classwise


def loop_over_regions(p: np.ndarray, counted: np.ndarray, voxels: str, num_bins: int) -> tuple[Rows, Rows]:
    dtype = np.result_type(p.dtype, np.float32).type
    top, classwise = empty_rows(len(p), num_bins), empty_rows(len(p), num_bins)
    for r, channel in enumerate(p):
        for value in channel[counted].tolist():
            for inside, probability in ((True, value), (False, 1 - value)):
                if not inside and (voxels == "foreground" or value <= 0.5):
                    continue
                confidence = max(value, 1 - value)
                add(top[r], bin_of(confidence, dtype, num_bins), probability, (value > 0.5) == inside, confidence)
                add(classwise[r], bin_of(value, p.dtype.type, num_bins), probability, inside, value)
    return top, classwise


def assert_same(found: BinCounts | None, rows: Rows) -> None:
    assert found is not None
    for column, name in enumerate(("count", "hits", "confidence")):
        array = getattr(found, name)
        assert array.dtype == np.float64
        np.testing.assert_allclose(array, np.array(rows)[:, :, column], rtol=1e-12, atol=1e-12, err_msg=name)
    assert found.unbinned.shape == (len(rows),)
    assert not found.unbinned.any()


@pytest.mark.parametrize("num_bins", [15, 16])  # with 16, values lie on edges
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("regions", [False, True])
def test_against_the_definition(regions: bool, channels: int, dtype: type, num_bins: int) -> None:
    p, y, counted = dyadic_case(channels, channels, dtype, regions)
    assert {0.0, 0.5, 1.0} <= set(np.unique(p).tolist())
    found = tables_of(p, y, regions, num_bins=num_bins)
    for voxels in SETS:
        top, classwise = (loop_over_regions if regions else loop_over_classes)(p, counted, voxels, num_bins)
        assert_same(found[voxels].expected_top, top)
        assert_same(found[voxels].expected_classwise, classwise)
        metrics = found[voxels].metrics()
        assert metrics["ECE_expected"] == pytest.approx(np.mean([error(row) for row in top]))
        assert metrics["CECE_expected"] == pytest.approx(np.mean([error(row) for row in classwise]))


def error(row: list[list[float]]) -> float:
    return sum(abs(hits - confidence) for _, hits, confidence in row) / sum(count for count, _, _ in row)


def test_by_hand() -> None:
    # p_1 = 0.4: called background, in the foreground and in the union with probability 0.4, and then wrong.
    # p_1 = 0.9: surely in the union, right with probability 0.9; in the foreground with 0.9, and then right.
    p = np.array([[[0.6, 0.1]], [[0.4, 0.9]]])
    found = tables_of(p, np.array([[0, 1]]), regions=False)
    foreground, union = (found[voxels].expected_top for voxels in SETS)
    bins = [8, 13]  # of 0.6 and 0.9
    np.testing.assert_allclose(foreground.count[0, bins], [0.4, 0.9])
    np.testing.assert_allclose(foreground.hits[0, bins], [0, 0.9])
    np.testing.assert_allclose(foreground.confidence[0, bins], [0.24, 0.81])
    np.testing.assert_allclose(union.count[0, bins], [0.4, 1])
    np.testing.assert_allclose(union.hits[0, bins], [0, 0.9])
    np.testing.assert_allclose(union.confidence[0, bins], [0.24, 0.9])
    assert found["foreground"].metrics()["ECE_expected"] == pytest.approx((0.24 + 0.09) / 1.3)
    assert found["union"].metrics()["ECE_expected"] == pytest.approx(0.24 / 1.4)


@pytest.mark.parametrize("voxels", [("foreground",), ("union",), SETS])
def test_the_segmentation_does_not_matter(voxels: Sequence[str]) -> None:
    """Where a structure is predicted, argmax p decides, whatever was postprocessed."""
    p, y, _ = dyadic_case(3, 3, np.float32, regions=False)
    settings = Settings(voxels=tuple(voxels))
    options = {"ignore_label": 9, "settings": settings}
    found = evaluate_case(p, y, np.zeros_like(y), **options).calibration
    for name, wanted in evaluate_case(p, y, **options).calibration.items():
        np.testing.assert_allclose(found[name].expected_top.hits, wanted.expected_top.hits, rtol=1e-12)
        np.testing.assert_allclose(found[name].expected_classwise.hits, wanted.expected_classwise.hits, rtol=1e-12)
