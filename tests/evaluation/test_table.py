"""Results as the commands print them."""

from nnunet_nacl.evaluation import format_table
from nnunet_nacl.metrics import Settings
from tests.report.generated import make_result

LARGE = make_result(settings=Settings(surface=True))
SMALL = make_result(settings=Settings(voxels=("near",)))
TITLES = [
    "Dice", "HD95", "NSD", "NLL per foreground voxel", "ECE near", "confidence − accuracy", "ECE foreground",
    "ECE union", "CECE foreground", "CECE union",
]  # fmt: skip


def test_results_of_different_content_are_shown_side_by_side() -> None:
    rows = [row.split() for row in format_table({"small": SMALL, "large": LARGE}).splitlines()[1:-1]]
    small, large = (dict(zip(TITLES, values, strict=True)) for _, *values in rows)
    known = {title: text for title, text in small.items() if text != "–"}
    assert known == {title: large[title] for title in ("Dice", "ECE near", "confidence − accuracy")}
    assert large["Dice"] == f"{LARGE.foreground_mean('Dice'):.3f}"
    assert large["HD95"] == f"{LARGE.foreground_mean('HD95'):.1f}"
    assert large["ECE near"] == f"{LARGE.pooled('near')['ECE']:.3f}"
    assert large["confidence − accuracy"] == f"{LARGE.pooled('near')['over_confidence']:+.3f}"
    assert large["CECE union"] == f"{LARGE.mean('union', 'CECE'):.3f}"
    assert large["Dice"] in repr(LARGE)
