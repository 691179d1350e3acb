"""Rankings: the paper's own tables, SciPy, hand-computed cases, direct bootstraps."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import VOXEL_SETS, Voxels
from nnunet_nacl.paper.report import PLOTS, TABLES, published
from nnunet_nacl.paper.report._ranks import FIRST, rank_by_paper, rankings
from nnunet_nacl.report import DICE, Comparison, Metric, compare_methods
from nnunet_nacl.report.panels import draw_panels
from tests.report.generated import make_blurred, make_result, placed_in, with_dice

METHODS = ["CE+DSC", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]


def paper_values(metric: str) -> np.ndarray:
    """(data sets, methods): means over structures."""
    rows = published()
    rows = rows[(rows["table"] <= 2) & (rows["structure"] == "") & (rows["metric"] == metric)]
    return rows.pivot(index="dataset", columns="method", values="value")[METHODS].to_numpy()


def ranked(*dice: Sequence[float]) -> Comparison:
    """Methods with these values of Dice: cases of methods."""
    return compare_methods(
        {f"{number}": with_dice(np.array(own)[:, None]) for number, own in enumerate(np.transpose(dice))}
    )


def ranks_by_scipy(values: Sequence[float], higher_is_better: bool) -> np.ndarray:
    return stats.rankdata(-np.array(values) if higher_is_better else values, axis=0)


@pytest.mark.parametrize(
    ("metric", "higher_is_better", "nacl"),
    [("DSC", True, 6), ("HD", False, 9), ("ECE", False, 7.5), ("CECE", False, 10)],
)
def test_the_papers_tables_put_nacl_first(metric: str, higher_is_better: bool, nacl: float) -> None:
    values = paper_values(metric)
    data_sets = [ranked(row if higher_is_better else -row) for row in values]
    sums = rank_by_paper(data_sets, "sum-rank").values()["Dice"].sort_index().to_numpy()
    np.testing.assert_array_equal(sums, np.sum([ranks_by_scipy(row, higher_is_better) for row in values], axis=0))
    assert sums[METHODS.index("NACL")] == nacl == sums.min()
    assert (sums == nacl).sum() == 1


def test_mean_case_rank_by_hand() -> None:
    def ranks(*dice: list[float]) -> list[float]:
        return rank_by_paper([ranked(*dice)], "mean-case-rank").values()["Dice"].sort_index().tolist()

    first, second, lacking, fourth = [0.9, 0.8, 0.7], [0.8, 0.9, 0.7], [0.7, np.nan, 0.9], [0.9, 0.9, 0.8]
    assert ranks(first, second, lacking, fourth) == [1.5, 1.5, 3]  # in the third case one method has no value
    assert ranks(second, second, lacking, lacking) == [2, 1, 3]
    assert ranks([np.nan] * 3, [np.nan] * 3) == [2, 2, 2]


def test_a_whole_ranking(comparison: Comparison) -> None:
    ranks = rank_by_paper([comparison.over("union")], "mean-case-rank").values()
    assert ranks["overall"].is_monotonic_increasing  # the best first
    ranks = ranks.loc[comparison.names]
    assert list(ranks) == ["Dice", "HD95", "ECE union", "CECE union", "overall", FIRST]
    for metric in (DICE, Metric("HD95"), Metric("ECE", "union"), Metric("CECE", "union")):
        values = np.stack([one.by_case for one in comparison.estimates[metric].values()], axis=1)
        rows = [ranks_by_scipy(row, metric.definition.higher_is_better) for row in values]
        np.testing.assert_allclose(ranks[metric.title], np.mean(rows, axis=0))
    np.testing.assert_allclose(ranks["overall"], ranks.iloc[:, :-2].mean(axis=1))


def test_the_rankings_differ() -> None:
    """By the paper's metrics a posterior that is made softer is better than the one that labels were drawn from."""
    comparison = compare_methods({"soft": make_blurred(2.0), "true": make_blurred()})
    ranks = rankings([comparison])[0].values().loc[["soft", "true"]]
    assert ranks["overall"].tolist() == [1.5 + 2 + 2, 1.5 + 1 + 1]  # of equal Dice
    assert ranks[FIRST].tolist() == [0, 100]
    assert rank_by_paper([comparison.over("union")], "sum-rank").values()["ECE union"].to_dict() == {
        "soft": 1,
        "true": 2,
    }


def test_a_method_that_finds_nothing_has_no_rank(comparison: Comparison) -> None:
    right = comparison.results["right"]
    measured = right.counts.segmentation_metrics | {"Missed": np.ones((8, 3))}
    nothing = replace(right, counts=replace(right.counts, segmentation_metrics=measured))
    for results, ranked in (({"right": nothing}, ["sharp", "soft"]), (dict.fromkeys(comparison.names, nothing), None)):
        found = rankings([compare_methods({**comparison.results, **results})])
        assert all(sorted(one.rows) == sorted(ranked or comparison.names) for one in found)


def test_how_often_a_method_is_first(comparison: Comparison) -> None:
    metrics = [DICE, Metric("HD95"), Metric("ECE", "foreground"), Metric("CECE", "foreground")]
    generator = np.random.default_rng(1)
    drawn = np.stack([np.bincount(generator.integers(0, 8, 8), minlength=8) for _ in range(1000)]).astype(float)
    values = [[one.resampled(drawn) for one in comparison.estimates[metric].values()] for metric in metrics]
    total = sum(ranks_by_scipy(row, m.definition.higher_is_better) for row, m in zip(values, metrics, strict=True))
    first = total == total.min(0)
    expected = (first / first.sum(0)).mean(1)
    found = rank_by_paper([comparison], "sum-rank").values().loc[comparison.names, FIRST]
    np.testing.assert_allclose(found / 100, expected, atol=0.06)
    one = make_result(0.4)  # equal methods share it
    ranking = rank_by_paper([compare_methods({"one": one, "copy": one, "far": make_result(0.1)})], "sum-rank")
    first = ranking.values()[FIRST]
    assert first["one"] == first["copy"] > 40


@pytest.mark.parametrize("number", [1, 2, 3])
def test_resamples_of_fewer_than_three_patients_have_no_first(number: int) -> None:
    ranking = rank_by_paper([ranked(*[[0.9, 0.8]] * number)], "sum-rank")
    assert ranking.values()[FIRST].isna().all() == (number < 3)


@pytest.mark.parametrize("by_patient", [False, True])
def test_folds_share_the_resamples_of_their_test_cases(by_patient: bool) -> None:
    """All of them predict the same cases: a second fold with the same predictions is no second witness.

    Even if it lacks a case in which the methods do not differ.
    """
    names = [f"{patient}_{image}" for patient in range(4) for image in (1, 2)]
    better = np.array([[1], [-2], [3], [-1], [2], [-1], [1], [0]]) / 16
    methods = {"one": with_dice(0.5 + better, names), "other": with_dice(np.full((8, 1), 0.5), names)}
    fewer = {name: result.take(range(7)) for name, result in methods.items()}
    one, *folds = (compare_methods(own, by_patient=by_patient) for own in (methods, methods, fewer))
    first = rank_by_paper([one], "sum-rank").values()[FIRST]
    for fold in folds:
        pd.testing.assert_series_equal(rank_by_paper([one, fold], "sum-rank").values()[FIRST], first, check_like=True)
    elsewhere = {
        name: placed_in(own, "B/labelsTs", "ground_truth") for name, own in methods.items()
    }  # other cases of the same names are drawn apart
    apart = rank_by_paper([one, compare_methods(elsewhere, by_patient=by_patient)], "sum-rank").values()[FIRST]
    assert (apart.sort_index() != first.sort_index()).all()


def test_what_cannot_be_ranked(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    other = compare_methods({name: results[name] for name in ("sharp", "right")})
    with pytest.raises(ValueError, match="same methods in every data set; got sharp, right, soft and sharp, right"):
        rank_by_paper([comparison, other], "sum-rank")
    with pytest.raises(ValueError, match="mean-case-rank needs the ECE of each case; near the structures it is pooled"):
        rank_by_paper([comparison.over("near")], "mean-case-rank")
    schemes = {voxels: [one.title.split()[0] for one in rankings([comparison.over(voxels)])] for voxels in VOXEL_SETS}
    by_case, pooled = ["Sum-rank", "Sum-rank", "Mean-case-rank"], ["Sum-rank", "Sum-rank"]
    assert schemes == {"foreground": by_case, "union": by_case, "near": pooled, "image": pooled}


@pytest.mark.parametrize("voxels", [None, "union", "near"])
def test_table_and_plot_rank_over_the_set_that_is_asked_for(comparison: Comparison, voxels: Voxels | None) -> None:
    asked = comparison.over(voxels)
    (table,) = TABLES["ranks"]([asked])
    ax, *_ = draw_panels(*PLOTS["ranks"]([asked])).axes
    titles = [text.get_text() for text in ax.get_xticklabels()]
    assert titles == ["Dice", "NLL per foreground voxel", f"ECE {voxels or 'near'}", "overall"]
    shown = table.values()
    assert list(shown.columns)[: len(titles)] == titles
    ranks = shown[titles]
    assert [text.get_text() for text in ax.get_yticklabels()] == list(ranks.index)
    assert [float(text.get_text()) for text in ax.texts] == ranks.to_numpy().ravel().tolist()
