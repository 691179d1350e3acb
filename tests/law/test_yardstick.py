"""The law of a proper yardstick: on labels drawn from a known posterior, no distortion of it scores better.

Proper scores over the image obey it, and ECE pooled over cases, over near and image. Foreground and union, whose voxels
are chosen by their label, do not, nor does ECE averaged over cases. Nor does the mean of NLL over near: a softer
prediction has a larger near, and the voxels that it adds are easy.
"""

import numpy as np
import pytest

from nnunet_nacl.evaluation import Settings
from tests.law.posteriors import (
    DISTORTIONS,
    SETS,
    TRUTH,
    UNCERTAIN,
    Uncertain,
    capped,
    distort,
    draw_volume,
    evaluate,
    figures,
    mixed_with_marginal,
    with_temperature,
)

IMAGES = {2: ((48, 64), (1.5, 1.0)), 3: ((10, 24, 28), (4.0, 2.0, 2.0))}
PROPER = [
    ("ECE, pooled", "near"),
    ("ECE, pooled", "image"),
    ("NLL_per_foreground", "image"),
    ("Brier_per_foreground", "image"),
]
LAYOUTS = [  # what is uncertain, axes, classes, with regions
    ("voxels", 2, 2, False),
    ("voxels", 3, 4, False),
    ("voxels", 2, 4, True),
    ("structures", 3, 2, False),
    ("structures", 2, 5, False),
    ("structures", 2, 3, True),
    ("outlines", 2, 3, False),
    ("outlines", 3, 5, False),
    ("outlines", 3, 3, True),
]


def check_law(uncertain: Uncertain, axes: int, classes: int, regions: bool, *, volumes: int, draws: int) -> None:
    generator = np.random.default_rng([axes, classes])
    shape, spacing = IMAGES[axes]
    drawn = [
        draw_volume(uncertain, generator, classes=classes, shape=shape, spacing_mm=spacing, draws=draws)
        for _ in range(volumes)
    ]
    scores = {}
    for name in DISTORTIONS:
        predictions = distort(drawn, name, regions=regions)
        scores[name] = figures(evaluate(drawn, predictions, settings=Settings(voxels=SETS), regions=regions))
    truth = scores.pop(TRUTH)
    # All label maps of a volume together have exactly its posterior's frequencies: no sampling noise, only rounding.
    for key in PROPER:
        for name, found in scores.items():
            assert found[key] >= truth[key] - 1e-9, (name, key)
            if not key[0].startswith("ECE"):  # strictly proper
                assert found[key] > truth[key] * 1.00001, (name, key)
    assert truth["ECE, pooled", "near"] < 1e-9
    assert truth["ECE, pooled", "image"] < 1e-9

    def falls(figure: str, voxels: str) -> bool:
        return min(found[figure, voxels] for found in scores.values()) < 0.999 * truth[figure, voxels]

    for voxels in ("foreground", "union"):  # which figures fall depends on the structures
        falling = [falls(figure, voxels) for figure in ("ECE, mean over cases", "ECE, pooled", "NLL", "Brier")]
        assert sum(falling) > 1, voxels
    if uncertain != "voxels":  # doubt that is shared within a case
        assert falls("ECE, mean over cases", "near") or falls("ECE, mean over cases", "image")
    assert falls("Brier", "near")  # the softer, the larger is near


@pytest.mark.parametrize(("uncertain", "axes", "classes", "regions"), LAYOUTS)
def test_no_distortion_beats_the_truth(uncertain: Uncertain, axes: int, classes: int, regions: bool) -> None:
    check_law(uncertain, axes, classes, regions, volumes=2, draws=10)


@pytest.mark.parametrize(("uncertain", "axes", "classes", "regions"), LAYOUTS)
def test_the_truth_is_at_its_expected_value(uncertain: Uncertain, axes: int, classes: int, regions: bool) -> None:
    """All bins of foreground and union hold what is expected under perfect calibration, whatever is uncertain."""
    shape, spacing = IMAGES[axes]
    options = {"classes": classes, "shape": shape, "spacing_mm": spacing, "draws": 10}
    volumes = [draw_volume(uncertain, np.random.default_rng(0), **options)]
    predictions = distort(volumes, TRUTH, regions=regions)
    cases = evaluate(volumes, predictions, settings=Settings(voxels=("foreground", "union")), regions=regions)
    for voxels in ("foreground", "union"):
        tables = sum((case[voxels] for case in cases[1:]), cases[0][voxels])
        for found, wanted in ((tables.top, tables.expected_top), (tables.classwise, tables.expected_classwise)):
            for column in ("count", "hits", "confidence"):
                np.testing.assert_allclose(getattr(wanted, column), getattr(found, column), atol=1e-9)
        metrics = tables.metrics()
        assert metrics["ECE"] > 0.01
        assert metrics["ECE_expected"] == pytest.approx(metrics["ECE"])
        assert metrics["CECE_expected"] == pytest.approx(metrics["CECE"])


@pytest.mark.parametrize("regions", [False, True])
def test_scores_of_the_truth(regions: bool) -> None:
    """NLL and Brier per foreground voxel are the posterior's entropy and variance over its expected foreground."""
    shape, spacing = IMAGES[2]
    options = {"classes": 3, "shape": shape, "spacing_mm": spacing, "draws": 10}
    volumes = [draw_volume("outlines", np.random.default_rng(seed), **options) for seed in (0, 1)]
    cases = evaluate(volumes, distort(volumes, TRUTH, regions=regions), settings=Settings(voxels=SETS), regions=regions)
    entropy = variance = foreground = 0.0
    for volume in volumes:
        events = [volume.tails, 1 - volume.tails] if regions else [volume.posterior]
        entropy -= sum(float((p * np.log(np.where(p > 0, p, 1))).sum()) for p in events)
        q = volume.tails if regions else volume.posterior
        variance += float((q * (1 - q)).sum())
        foreground += float(volume.tails.sum() if regions else volume.tails[0].sum())
    found = figures(cases)
    assert found["NLL_per_foreground", "image"] == pytest.approx(entropy / foreground)
    assert found["Brier_per_foreground", "image"] == pytest.approx(variance / foreground)


@pytest.mark.slow
@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 4, 5])
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("uncertain", UNCERTAIN)
def test_no_distortion_beats_the_truth_at_length(uncertain: Uncertain, axes: int, classes: int, regions: bool) -> None:
    check_law(uncertain, axes, classes, regions, volumes=4, draws=40)


# The generator, without which the law would show nothing


@pytest.mark.parametrize("uncertain", UNCERTAIN)
def test_labels_have_the_posteriors_frequencies(uncertain: Uncertain) -> None:
    shape, spacing = IMAGES[3]
    options = {"classes": 4, "shape": shape, "spacing_mm": spacing, "draws": 10}
    volume = draw_volume(uncertain, np.random.default_rng(0), **options)
    p, y = volume.posterior, volume.labels
    assert p.shape == (4, *shape)
    np.testing.assert_allclose(p.sum(0), 1)
    for k in range(4):
        np.testing.assert_allclose((y == k).mean(0), p[k], atol=1e-12)
    volume = draw_volume(uncertain, np.random.default_rng(0), **{**options, "draws": 400}, exact=False)
    error = (volume.labels[:, None] == np.arange(4).reshape(4, 1, 1, 1)).mean(0) - volume.posterior
    assert 1e-3 < np.abs(error).max() < 5 * np.sqrt(0.25 / 400)


def test_distortions_by_hand() -> None:
    p = np.array([[0.8], [0.2], [0.0]])
    marginal = np.array([[0.5], [0.25], [0.25]])
    np.testing.assert_allclose(with_temperature(p, marginal, temperature=0.5)[:, 0], [16 / 17, 1 / 17, 0])
    np.testing.assert_allclose(mixed_with_marginal(p, marginal, share=0.2)[:, 0], [0.74, 0.21, 0.05])
    np.testing.assert_allclose(capped(p, marginal, weight=0.3)[:, 0], p[:, 0])
    np.testing.assert_allclose(capped(np.eye(3)[:, :1], marginal, weight=0.3)[:, 0], [0.9, 0.05, 0.05])
