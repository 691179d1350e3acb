"""Whole tables of a case against the definition in NumPy: each voxel set, with p on the edges of bins and at 1/2.

So are the tables that are expected under perfect calibration, by the formulas of docs/metrics.md.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree

from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    NLL_CLIP,
    VOXEL_SETS,
    Activation,
    BinCounts,
    CalibrationTables,
    Settings,
    Voxels,
    each_column,
    evaluate_case,
    measure,
)

IGNORED = 9
SPACING = (3.0, 1.0, 2.0)
REGIONS = ((1, 2), (2,))
MARGIN_MM = 2.5
SMALL, SEVERAL_BLOCKS = (4, 8, 7), (2, 190, 190)
each_shape = pytest.mark.parametrize("shape", [SMALL, SEVERAL_BLOCKS, (1, 1, 1)], ids=["small", "blocks", "one voxel"])
each_protocol = pytest.mark.parametrize("protocol", ["standard", "authors"])
each_dtype = pytest.mark.parametrize(
    ("dtype", "num_bins"), [(np.float16, 15), (np.float32, 15), (np.float32, 1000), (np.float64, 15)]
)


def draw_labels(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All labels in one half, only background in the other; some voxels are ignored."""
    y = generator.choice([0, 1, 2, IGNORED], shape, p=[0.5, 0.2, 0.1, 0.2])
    far = y[:, shape[1] // 2 :]
    far[...] = generator.choice([0, IGNORED], far.shape, p=[0.8, 0.2])
    return y


def of_classes(shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """p (3, *shape), p_0 at least 0.95 in one half; some 0 and multiples of 1/15; y, some of it ignored."""
    generator = np.random.default_rng(0)
    y = draw_labels(generator, shape)
    parts = generator.multinomial(15, [0.9, 0.06, 0.04], shape) / 15
    p = np.where(generator.random((*shape, 1)) < 0.5, parts, generator.dirichlet([3, 1, 1], shape))
    p[generator.random(shape) < 0.3] = [1, 0, 0]
    far = p[:, shape[1] // 2 :]
    far[...] = np.array([[1, 0, 0], [0.96, 0.02, 0.02]])[generator.integers(0, 2, far.shape[:-1])]
    return np.moveaxis(p, -1, 0).astype(dtype), y


def of_regions(shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """p (2, *shape), 0.05 or less in one half; some 0, 1/2, 1, multiples of 1/15 and beside them; y, some ignored."""
    generator = np.random.default_rng(1)
    y = draw_labels(generator, shape)
    p = generator.choice([0, 0.01, 0.5, 1, *(np.arange(15) / 15)], (2, *shape))
    p = np.where(generator.random(p.shape) < 0.5, p, generator.random(p.shape))
    far = p[:, :, shape[1] // 2 :]
    far[...] = generator.choice([0, 0.01, 0.05], far.shape)
    p = p.astype(dtype)
    beside = np.nextafter(p, generator.choice([0, 1], p.shape).astype(dtype))
    return np.where(generator.random(p.shape) < 0.3, beside, p), y


def around(core: np.ndarray, width_mm: float) -> np.ndarray:
    """The voxels within a distance of those of a mask."""
    if not core.any():
        return core
    points = np.argwhere(np.ones(core.shape, bool)) * SPACING
    distance = cKDTree(np.argwhere(core) * SPACING).query(points)[0]
    return distance.reshape(core.shape) <= width_mm


def table_of(confidences: np.ndarray, hits: np.ndarray, num_bins: int, *, drop_zeros: bool) -> BinCounts:
    """One table; zeros that are dropped count in N only."""
    if not drop_zeros:
        return BinCounts.fill(confidences, hits, num_bins)
    kept = confidences > 0
    return replace(BinCounts.fill(confidences[kept], hits[kept], num_bins), unbinned=np.array((~kept).sum()))


def expected_table(confidences: np.ndarray, in_set: np.ndarray, hit: np.ndarray, num_bins: int) -> BinCounts:
    """Of voxels that are in the set, and in it and a hit, with these probabilities."""
    of_set, of_hits = (
        BinCounts.fill(confidences, np.ones(hit.shape, bool), num_bins, weights=weights) for weights in (in_set, hit)
    )
    return replace(of_set, count=of_set.count.astype(float), hits=of_hits.count.astype(float))


def stacked(tables: Iterable[BinCounts]) -> BinCounts:
    return each_column(lambda *of_classes: np.stack(of_classes), *tables)


def assert_equal(found: CalibrationTables, expected: CalibrationTables) -> None:
    for field in fields(CalibrationTables):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(other, BinCounts):
            for name in ("count", "hits", "confidence", "unbinned"):
                parts = getattr(one, name), getattr(other, name)
                assert parts[0].dtype.kind == parts[1].dtype.kind
                np.testing.assert_allclose(*parts, rtol=1e-9, atol=1e-9, err_msg=f"{field.name}.{name}")
        elif other is None or isinstance(other, Activation):
            assert one == other, field.name
        else:
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=field.name)


@each_shape
@each_protocol
@each_dtype
@pytest.mark.parametrize("predicted", ["argmax", "other"])
def test_of_classes(shape: tuple[int, ...], protocol: Any, num_bins: int, dtype: Any, predicted: str) -> None:
    p, y = of_classes(shape, dtype)
    label, counts = p.argmax(0), y != IGNORED
    settings = Settings(margin_mm=MARGIN_MM, protocol=protocol, num_bins=num_bins)
    prediction = None if predicted == "argmax" else 2 - label  # of a postprocessing that knows no limits
    result = evaluate_case(p, y, prediction, ignore_label=IGNORED, spacing_mm=SPACING, settings=settings)
    near = around(1 - p[0].astype(float) > 0.05, MARGIN_MM)
    sets = {"foreground": y > 0, "union": (y > 0) | (label > 0), "near": near, "image": counts}
    assert set(result.calibration) == set(sets)
    drop = protocol == "authors"
    stored, exact, structure = p[:, counts], p[:, counts].astype(float), label[counts] > 0
    for voxels, of_set in sets.items():
        chosen = of_set & counts
        of_right = p[:, chosen][y[chosen], np.arange(chosen.sum())].astype(float)
        one_hot = np.eye(3)[y[chosen]].T
        of_hits = label[chosen] == y[chosen]
        expected_top = expected_classwise = None
        if not drop and voxels in BY_LABEL:
            surely = structure & (voxels == "union")
            in_set, hit = np.where(surely, 1, 1 - exact[0]), [exact[0] * surely, *exact[1:]]
            expected_top = expected_table(stored.max(0), in_set, exact.max(0) * structure, num_bins)[None]
            expected_classwise = stacked(expected_table(stored[k], in_set, hit[k], num_bins) for k in range(3))
        expected = CalibrationTables(
            top=table_of(p.max(0)[chosen], of_hits, num_bins, drop_zeros=drop)[None],
            classwise=stacked(table_of(p[k][chosen], y[chosen] == k, num_bins, drop_zeros=drop) for k in range(3)),
            nll=np.array([-np.log(np.maximum(of_right, NLL_CLIP)).sum()]),
            brier=np.array([np.square(p[:, chosen].astype(float) - one_hot).sum()]),
            num_classes=np.array(3 if protocol == "standard" else int(y[counts].max(initial=0)) + 1),
            activation=Activation.SOFTMAX,
            image_voxels=np.array([counts.sum()]),
            expected_top=expected_top,
            expected_classwise=expected_classwise,
        )
        assert_equal(result[voxels], expected)


@each_shape
@each_protocol
@each_dtype
def test_of_regions(shape: tuple[int, ...], protocol: Any, num_bins: int, dtype: Any) -> None:
    p, y = of_regions(shape, dtype)
    counts = y != IGNORED
    settings = Settings(margin_mm=MARGIN_MM, protocol=protocol, num_bins=num_bins)
    result = evaluate_case(
        p, y, np.zeros_like(y), regions=REGIONS, ignore_label=IGNORED, spacing_mm=SPACING, settings=settings
    )
    for voxels in VOXEL_SETS:
        of_set = result[voxels]
        for r, region in enumerate(REGIONS):
            inside, exact = np.isin(y, region), p[r].astype(float)
            near = around(exact > 0.05, MARGIN_MM)
            sets = {"foreground": inside, "union": inside | (exact > 0.5), "near": near, "image": counts}
            chosen = sets[voxels] & counts
            confidence, right = np.maximum(exact, 1 - exact), (exact > 0.5) == inside
            of_right = np.where(inside, exact, 1 - exact)[chosen]
            # 1 − p is not rounded to half precision, so its bins have the edges of single precision
            rows = [
                np.searchsorted((np.arange(1, num_bins) / num_bins).astype(of_edges), confidence.astype(of_edges))
                for of_edges in (dtype, np.result_type(dtype, np.float32))
            ]
            row = np.where(exact > 0.5, *rows)
            count, hits, sums = (
                np.bincount(row[chosen], weights, num_bins) for weights in (None, right[chosen], confidence[chosen])
            )
            expected_top = expected_classwise = None
            if protocol == "standard" and voxels in BY_LABEL:
                surely = (exact > 0.5) & (voxels == "union")
                in_set, hit = np.where(surely, 1, exact), exact * (exact > 0.5)
                columns = (
                    np.bincount(row[counts], weights[counts], num_bins).astype(float)
                    for weights in (in_set, hit, in_set * confidence)
                )
                expected_top = BinCounts(*columns, np.array(0))
                expected_classwise = expected_table(p[r][counts], in_set[counts], exact[counts], num_bins)
            expected = CalibrationTables(
                top=BinCounts(count, hits.astype(np.int64), sums.astype(float), np.array(0)),
                classwise=table_of(p[r][chosen], inside[chosen], num_bins, drop_zeros=protocol == "authors"),
                nll=np.array(-np.log(np.maximum(of_right, NLL_CLIP)).sum()),
                brier=np.array(np.square(exact - inside)[chosen].sum()),
                num_classes=np.array(len(REGIONS)),
                activation=Activation.SIGMOID,
                image_voxels=np.array(counts.sum()),
                expected_top=expected_top,
                expected_classwise=expected_classwise,
            )
            assert_equal(of_region(of_set, r), expected)


def of_region(tables: CalibrationTables, r: int | slice) -> CalibrationTables:
    """The tables of one region, or of some."""
    values = {field.name: getattr(tables, field.name) for field in fields(CalibrationTables)}
    return CalibrationTables(
        **{
            name: value[r] if isinstance(value, BinCounts) or np.ndim(value) else value
            for name, value in values.items()
        }
    )


def test_metrics_of_regions_are_means_over_them() -> None:
    p, y = of_regions(SMALL, np.float64)
    settings = Settings(margin_mm=MARGIN_MM, num_bins=4)
    result = evaluate_case(
        p, y, np.zeros_like(y), regions=REGIONS, ignore_label=IGNORED, spacing_mm=SPACING, settings=settings
    )
    for voxels in VOXEL_SETS:
        tables = result[voxels]
        alone = [measure(of_region(tables, slice(r, r + 1))) for r in range(len(REGIONS))]
        expected = {name: np.mean([metrics[name] for metrics in alone]) for name in alone[0]}
        expected["CECE_sum"] *= len(REGIONS)  # another metric that is no mean needs its line here
        assert measure(tables) == pytest.approx(expected, rel=1e-12)


def of_equal_voxels(count: int, label: int) -> dict[Voxels, CalibrationTables]:
    """Tables of voxels that have p = (1/4, 3/4, 0) and one label, and of one that is surely background."""
    p = np.array([[0.25] * count + [1], [0.75] * count + [0], [0] * count + [0]])
    result = evaluate_case(p, np.array([label] * count + [0]), ignore_label=IGNORED)
    return {voxels: result[voxels] for voxels in result.calibration}


@pytest.mark.parametrize("count", [1, 2])
def test_every_metric_by_hand(count: int) -> None:
    tables = of_equal_voxels(count, 1)
    expected = {
        "ECE": 0.25, "CECE": 0.5 / 3, "CECE_fg": 0.25 / 2, "CECE_sum": 0.5, "MCE": 0.25, "ACE": 0.25,
        "CACE_fg": 0.25 / 2, "NLL": np.log(4 / 3), "Brier": 0.125, "over_confidence": -0.25, "ECE_expected": 0.25,
        "CECE_expected": 0.5 / 3, "share": count / (count + 1),
    }  # fmt: skip
    assert set(measure(tables["foreground"])) == set(expected)
    assert measure(tables["foreground"]) == pytest.approx(expected, rel=1e-12)
    of_image = measure(tables["image"], scores=True)
    assert set(of_image) - set(measure(tables["image"])) == {"NLL_per_foreground", "Brier_per_foreground"}
    assert of_image["NLL_per_foreground"] == pytest.approx(np.log(4 / 3)) == tables["image"].NLL_per_foreground
    assert of_image["Brier_per_foreground"] == pytest.approx(0.125)
    of_class = [metric.from_bins for metric in CALIBRATION_METRICS.values() if metric.from_bins]
    assert [error(tables["foreground"].classwise).tolist() for error in of_class] == [[0.25, 0.25, 0]] * 3


def test_in_the_union_what_is_predicted_is_expected_for_sure() -> None:
    assert measure(of_equal_voxels(1, 1)["union"])["ECE_expected"] == 0


@pytest.mark.parametrize("label", [0, IGNORED])
def test_an_empty_set_has_no_metrics(label: int) -> None:
    tables = of_equal_voxels(2, label)
    found = measure(tables["foreground"])
    assert set(found) == set(measure(of_equal_voxels(2, 1)["foreground"]))
    assert found.pop("share") == 0
    assert np.isnan(list(found.values())).all()
    assert np.isnan(measure(tables["image"], scores=True)["NLL_per_foreground"])
