"""Results as the commands print them."""

import pytest

from nnunet_nacl.evaluation import format_table
from nnunet_nacl.metrics import Settings
from tests.report.generated import make_result

TITLES = [
    "Dice", "HD95", "NSD", "NLL per foreground voxel", "ECE near", "confidence − accuracy", "ECE foreground",
    "ECE union", "CECE foreground", "CECE union",
]  # fmt: skip


def test_results_of_different_content_are_shown_side_by_side() -> None:
    evaluated = make_result(settings=Settings(surface=True))
    of_near = make_result(settings=Settings(voxels=("near",)))
    rows = [row.split() for row in format_table({"small": of_near, "large": evaluated}).splitlines()[1:-1]]
    small, large = (dict(zip(TITLES, values, strict=True)) for _, *values in rows)
    known = {title: text for title, text in small.items() if text != "–"}
    assert known == {title: large[title] for title in ("Dice", "ECE near", "confidence − accuracy")}
    assert large["Dice"] == f"{evaluated.estimate('Dice').value:.3f}"
    assert large["HD95"] == f"{evaluated.estimate('HD95').value:.2f}"
    assert large["ECE near"] == f"{evaluated.pooled('near')['ECE']:.3f}"
    assert large["confidence − accuracy"] == f"{evaluated.pooled('near')['over_confidence']:+.3f}"
    assert large["CECE union"] == f"{evaluated.estimate('CECE', 'union').value:.3f}"
    assert large["Dice"] in repr(evaluated)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(), "NLL per foreground voxel, ECE near, confidence − accuracy: all cases pooled"),
        (Settings(protocol="authors"), "ECE near, confidence − accuracy: all cases pooled"),
        (Settings(voxels=("foreground",)), "Means over cases."),
    ],
)
def test_what_is_pooled_is_said_of_the_columns_that_are_shown(settings: Settings, said: str) -> None:
    _, about_pooled = repr(make_result(settings=settings)).rsplit("\n", 1)
    assert about_pooled.partition(";")[0] == said
