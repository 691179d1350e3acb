"""Expected bin tables against their definition, in plain Python, and against labels that are drawn."""

import numpy as np
import pytest

from nnunet_nacl.metrics import BinCounts, CalibrationTables, Settings, evaluate_case, measure

SETS = ("foreground", "union")


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
    more = {}
    if regions:
        nested = [tuple(range(k, len(p) + 1)) for k in range(1, len(p) + 1)]
        more = {"regions": nested, "prediction": (p > 0.5).sum(0)}
    result = evaluate_case(p, y, ignore_label=9, settings=Settings(**options), **more)
    return {voxels: result[voxels] for voxels in result.calibration}


# By definition: each voxel's label takes each value with its probability


def bin_of(value: float, dtype: type, num_bins: int) -> int:
    for m in range(num_bins):
        if value <= float(dtype(m + 1) / dtype(num_bins)):
            return m
    raise AssertionError(value)


def loop_over_classes(p: np.ndarray, counted: np.ndarray, voxels: str, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """(channels, bins, 3): count, hits, confidence; of the label, and of each class."""
    dtype, channels = p.dtype.type, len(p)
    top, classwise = np.zeros((1, num_bins, 3)), np.zeros((channels, num_bins, 3))
    for values in p[:, counted].T.tolist():
        predicted = values.index(max(values))
        for label, probability in enumerate(values):
            if label == 0 and (voxels == "foreground" or predicted == 0):
                continue  # not in the set
            hit = predicted == label
            top[0, bin_of(max(values), dtype, num_bins)] += probability * np.array([1, hit, max(values)])
            for k in range(channels):
                row = probability * np.array([1, label == k, values[k]])
                classwise[k, bin_of(values[k], dtype, num_bins)] += row
    return top, classwise


def loop_over_regions(p: np.ndarray, counted: np.ndarray, voxels: str, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.result_type(p.dtype, np.float32).type
    top, classwise = np.zeros((2, len(p), num_bins, 3))
    for r, channel in enumerate(p):
        for value in channel[counted].tolist():
            for inside, probability in ((True, value), (False, 1 - value)):
                if not inside and (voxels == "foreground" or value <= 0.5):
                    continue
                confidence, hit = max(value, 1 - value), (value > 0.5) == inside
                top[r, bin_of(confidence, dtype, num_bins)] += probability * np.array([1, hit, confidence])
                classwise[r, bin_of(value, p.dtype.type, num_bins)] += probability * np.array([1, inside, value])
    return top, classwise


def assert_same(found: BinCounts | None, rows: np.ndarray) -> None:
    assert found is not None
    assert not found.unbinned.any()
    arrays = np.stack([found.count, found.hits, found.confidence], -1)
    np.testing.assert_allclose(arrays, rows, rtol=1e-12, atol=1e-12)


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
        metrics = measure(found[voxels])
        assert metrics["ECE_expected"] == pytest.approx(np.mean([error(row) for row in top]))
        assert metrics["CECE_expected"] == pytest.approx(np.mean([error(row) for row in classwise]))


def error(row: np.ndarray) -> float:
    count, hits, confidence = row.T
    return np.abs(hits - confidence).sum() / count.sum()


def test_the_segmentation_does_not_matter() -> None:
    """Where a structure is predicted, argmax p decides, whatever was postprocessed."""
    p, y, _ = dyadic_case(3, 3, np.float32, regions=False)
    found, wanted = (evaluate_case(p, y, *more, ignore_label=9) for more in ([np.zeros_like(y)], []))
    for voxels in SETS:
        for table in ("expected_top", "expected_classwise"):
            hits = [getattr(one[voxels], table).hits for one in (found, wanted)]
            np.testing.assert_allclose(*hits, rtol=1e-12)
