"""The law of a proper yardstick: on labels drawn from a known posterior, no distortion of it scores better.

Proper scores over the image obey it, and ECE pooled over cases, over near and image. Foreground and union, whose voxels
are chosen by their label, do not, nor does ECE averaged over cases. Nor does the mean of NLL over near: a softer
prediction has a larger near, and the voxels that it adds are easy.
"""

import numpy as np
import pytest

from nnunet_nacl.metrics import Counts, measure
from tests.law.posteriors import (
    DISTORTIONS,
    TRUTH,
    UNCERTAIN,
    Uncertain,
    Volume,
    distort,
    draw_volume,
    evaluate,
    figures,
)

IMAGES = {2: ((48, 64), (1.5, 1.0)), 3: ((10, 24, 28), (4.0, 2.0, 2.0))}
PROPER = [("ECE, pooled", "near")]
PROPER += [(figure, "image") for figure in ("ECE, pooled", "NLL_per_foreground", "Brier_per_foreground")]
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


def draw(uncertain: Uncertain, axes: int, classes: int, *, volumes: int = 1, draws: int = 10) -> list[Volume]:
    generator = np.random.default_rng([axes, classes])
    shape, spacing = IMAGES[axes]
    options = {"classes": classes, "shape": shape, "spacing_mm": spacing, "draws": draws}
    return [draw_volume(uncertain, generator, **options) for _ in range(volumes)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("uncertain", "axes", "classes", "regions"), LAYOUTS)
def test_no_distortion_beats_the_truth(uncertain: Uncertain, axes: int, classes: int, regions: bool) -> None:
    drawn = draw(uncertain, axes, classes, volumes=2, draws=5)
    records = {name: evaluate(drawn, distort(drawn, name, regions=regions), regions=regions) for name in DISTORTIONS}
    check_expected(Counts.joined(records[TRUTH]))
    scores = {name: figures(cases) for name, cases in records.items()}
    truth = scores.pop(TRUTH)
    # All label maps of a volume together have exactly its posterior's frequencies: no sampling noise, only rounding.
    for key in PROPER:
        for name, found in scores.items():
            assert found[key] >= truth[key] - 1e-9, (name, key)
            if not key[0].startswith("ECE"):  # strictly proper
                assert found[key] > truth[key] * 1.00001, (name, key)
    assert max(truth["ECE, pooled", voxels] for voxels in ("near", "image")) < 1e-9

    def falls(figure: str, voxels: str) -> bool:
        return min(found[figure, voxels] for found in scores.values()) < 0.999 * truth[figure, voxels]

    for voxels in ("foreground", "union"):  # which figures fall depends on the structures
        falling = [falls(figure, voxels) for figure in ("ECE, mean over cases", "ECE, pooled", "NLL", "Brier")]
        assert any(falling), voxels
    if uncertain != "voxels":  # doubt that is shared within a case
        assert falls("ECE, mean over cases", "near") or falls("ECE, mean over cases", "image")
    assert falls("Brier", "near")  # the softer, the larger is near


def check_expected(of_truth: Counts) -> None:
    """All bins of foreground and union hold what is expected under perfect calibration, whatever is uncertain."""
    for voxels in ("foreground", "union"):
        tables = of_truth[voxels]
        for found, wanted in ((tables.top, tables.expected_top), (tables.classwise, tables.expected_classwise)):
            for column in ("count", "hits", "confidence"):
                np.testing.assert_allclose(getattr(wanted, column), getattr(found, column), atol=1e-9)
        assert measure(tables)["ECE"] > 0.001


# The generator, without which the law would show nothing


@pytest.mark.parametrize("uncertain", UNCERTAIN)
def test_labels_have_the_posteriors_frequencies(uncertain: Uncertain) -> None:
    (volume,) = draw(uncertain, 3, 4)
    p, y = volume.posterior, volume.labels
    np.testing.assert_allclose(p.sum(0), 1)
    for k in range(4):
        np.testing.assert_allclose((y == k).mean(0), p[k], atol=1e-12)
