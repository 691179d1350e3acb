"""Paired tests and rankings: SciPy and statsmodels, the paper's own tables, hand-computed cases, direct bootstraps."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Settings
from nnunet_nacl.report import (
    DICE,
    Comparison,
    Difference,
    Metric,
    all_rankings,
    compare,
    differences,
    order_by,
    published,
    rank_methods,
)
from tests.report.generated import make_blurred, make_result, with_dice

ECE = Metric("ECE", "foreground")
METHODS = ["CE+DSC", "FL", "ECP", "LS", "SVLS", "MbLS", "NACL"]


def compared(*gaps: Sequence[float]) -> list[Difference]:
    """Differences in Dice of methods whose cases have these gaps to a baseline of 0."""
    results = {f"{number}": with_dice(np.array(own)[:, None]) for number, own in enumerate(gaps)}
    base = with_dice(np.zeros((len(gaps[0]), 1)))
    return list(differences(compare({"base": base, **results}), DICE).values())


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_holm_equals_statsmodels(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # statsmodels does it in each call, which takes a second
    for seed in range(3):
        untested = [0.1, *[np.nan] * 6]  # a test not made does not count
        found = compared(untested, *np.random.default_rng(seed).normal(0.5, 1, (size, 7)).round(1))
        assert np.isnan([found[0].p, found[0].p_holm]).all()
        expected = multipletests([one.p for one in found[1:]], method="holm")[1]
        np.testing.assert_allclose([one.p_holm for one in found[1:]], expected, atol=1e-12)


def test_wilcoxon_by_hand() -> None:
    # 5 differences, all positive: 2 of the 2^5 signs are as extreme
    few, same = compared([0.1, np.nan, 0.2, 0.3, 0.4, 0.5], [0.0] * 6)
    assert few.p == 2 / 32
    assert same.p == 1
    assert compared([0.0] * 20 + [0.1, 0.2, 0.3, 0.4, 0.5])[0].p == 2 / 32  # equal cases say nothing


def test_a_difference_over_the_cases(comparison: Comparison) -> None:
    found = differences(comparison, ECE)
    assert list(found) == ["right", "soft"]
    base, right = (ECE.values(comparison[name])[:, 0] for name in ("sharp", "right"))
    assert found["right"].mean == pytest.approx(np.mean(right - base), abs=1e-12)
    assert found["right"].p == stats.wilcoxon(right, base).pvalue == 2 / 2**8
    assert found["right"].p_holm == pytest.approx(2 * found["right"].p)
    assert found["right"].is_told_apart()
    assert found is differences(comparison, ECE)  # made once


def test_means_over_structures_of_means_over_cases() -> None:
    nan = float("nan")
    found = DICE.of(compare({"one": with_dice([[0.5, 0.2], [0.7, nan], [nan, nan]])})["one"])
    assert found.value == pytest.approx((0.6 + 0.2) / 2)
    np.testing.assert_allclose(found.by_case, [0.35, 0.7, nan])
    np.testing.assert_allclose(found.resampled(np.array([[2.0, 1, 0], [0, 1, 2]])), [((1.0 + 0.7) / 3 + 0.2) / 2, 0.7])
    one = compare({"one": with_dice([[0.5], [nan]])})["one"]
    assert np.isnan(DICE.of(one).interval).all()  # of fewer than two cases


def paper_values(metric: str) -> np.ndarray:
    """(data sets, methods): means over structures."""
    rows = published()
    rows = rows[(rows["table"] <= 2) & (rows["structure"] == "") & (rows["metric"] == metric)]
    return rows.pivot(index="dataset", columns="method", values="value")[METHODS].to_numpy()


def ranked(*dice: Sequence[float]) -> Comparison:
    """Methods with these values of Dice: cases of methods."""
    return compare({f"{number}": with_dice(np.array(own)[:, None]) for number, own in enumerate(np.transpose(dice))})


def ranks_by_scipy(values: Sequence[float], higher_is_better: bool) -> np.ndarray:
    return stats.rankdata(-np.array(values) if higher_is_better else values, axis=0)


@pytest.mark.parametrize(
    ("metric", "higher_is_better", "nacl"),
    [("DSC", True, 6), ("HD", False, 9), ("ECE", False, 7.5), ("CECE", False, 10)],
)
def test_the_papers_tables_put_nacl_first(metric: str, higher_is_better: bool, nacl: float) -> None:
    values = paper_values(metric)
    data_sets = [ranked(row if higher_is_better else -row) for row in values]
    sums = rank_methods(data_sets, "sum-rank").ranks["Dice"].to_numpy()
    np.testing.assert_array_equal(sums, np.sum([ranks_by_scipy(row, higher_is_better) for row in values], axis=0))
    assert sums[METHODS.index("NACL")] == nacl == sums.min()
    assert (sums == nacl).sum() == 1


def test_mean_case_rank_by_hand() -> None:
    def ranks(*dice: list[float]) -> list[float]:
        return rank_methods([ranked(*dice)], "mean-case-rank").ranks["Dice"].tolist()

    first, second, lacking, fourth = [0.9, 0.8, 0.7], [0.8, 0.9, 0.7], [0.7, np.nan, 0.9], [0.9, 0.9, 0.8]
    assert ranks(first, second, lacking, fourth) == [1.5, 1.5, 3]  # in the third case one method has no value
    assert ranks(second, second, lacking, lacking) == [2, 1, 3]
    assert ranks([np.nan] * 3, [np.nan] * 3) == [2, 2, 2]


def test_a_whole_ranking(comparison: Comparison) -> None:
    ranking = rank_methods([comparison], "mean-case-rank", voxels="union")
    assert list(ranking.ranks) == ["Dice", "HD95", "ECE union", "CECE union", "overall"]
    for metric in (DICE, Metric("HD95"), Metric("ECE", "union"), Metric("CECE", "union")):
        values = np.stack([metric.of(method).by_case for method in comparison.methods], axis=1)
        rows = [ranks_by_scipy(row, metric.higher_is_better) for row in values]
        np.testing.assert_allclose(ranking.ranks[metric.title], np.mean(rows, axis=0))
    np.testing.assert_allclose(ranking.ranks["overall"], ranking.ranks.iloc[:, :-1].mean(axis=1))


def test_the_rankings_differ() -> None:
    """By the paper's metrics a posterior that is made softer is better than the one that labels were drawn from."""
    comparison = compare({"soft": make_blurred(2.0), "true": make_blurred()})
    ranking = all_rankings([comparison])[0]
    assert ranking.ranks["overall"].tolist() == [1.5 + 2 + 2, 1.5 + 1 + 1]  # of equal Dice
    assert ranking.first.tolist() == [0, 1]
    assert rank_methods([comparison], "sum-rank", voxels="union").ranks["ECE union"].tolist() == [1, 2]


def test_how_often_a_method_is_first(comparison: Comparison) -> None:
    metrics = [DICE, Metric("HD95"), Metric("ECE", "foreground"), Metric("CECE", "foreground")]
    generator = np.random.default_rng(1)
    drawn = np.stack([np.bincount(generator.integers(0, 8, 8), minlength=8) for _ in range(1000)]).astype(float)
    values = [[metric.of(one).resampled(drawn) for one in comparison.methods] for metric in metrics]
    total = sum(ranks_by_scipy(row, m.higher_is_better) for row, m in zip(values, metrics, strict=True))
    first = total == total.min(0)
    expected = (first / first.sum(0)).mean(1)
    np.testing.assert_allclose(rank_methods([comparison], "sum-rank").first, expected, atol=0.06)
    one = make_result(0.4)  # equal methods share it
    ranking = rank_methods([compare({"one": one, "copy": one, "far": make_result(0.1)})], "sum-rank")
    assert ranking.first[0] == ranking.first[1] > 0.4


def test_data_sets_add_up(comparison: Comparison) -> None:
    other = compare({name: make_result(t, seed=3) for name, t in (("soft", 1.8), ("sharp", 0.4), ("right", 1.0))}, "B")
    both, *alone = (rank_methods(sets, "sum-rank") for sets in ([comparison, other], [comparison], [other]))
    np.testing.assert_array_equal(both.ranks, alone[0].ranks + alone[1].ranks.loc[both.ranks.index])


def test_what_cannot_be_ranked(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    other = compare({name: results[name] for name in ("sharp", "right")})
    with pytest.raises(ValueError, match="same methods in every data set; got sharp, right, soft and sharp, right"):
        rank_methods([comparison, other], "sum-rank")
    with pytest.raises(ValueError, match="mean-case-rank needs the ECE of each case; over the near it is pooled"):
        rank_methods([comparison], "mean-case-rank", voxels="near")
    union, image = (compare({"one": make_result(settings=Settings(voxels=(one,)))}) for one in ("union", "image"))
    assert [one.scheme for one in all_rankings([union])] == ["sum-rank", "mean-case-rank"]
    (only,) = all_rankings([image])
    assert list(only.ranks) == ["Dice", "NLL per foreground voxel", "ECE image", "overall"]


def test_who_is_told_apart() -> None:
    nll = Metric("NLL_per_foreground", "image")
    order = order_by(compare({"far": make_result(0.2), "one": make_result(1.0), "other": make_result(0.98)}), nll)
    assert set(order.leaders) == {"one", "other"}
    assert order.behind == ["far"]
    few = [f"case_0{number}" for number in range(4)]  # p is at least 2 / 2^4
    order = order_by(compare({"one": make_result(1.0, cases=few), "other": make_result(0.4, cases=few)}), nll)
    assert (order.leaders, order.behind) == (["one", "other"], [])
    assert order_by(compare({"one": make_result(empty=few, cases=few)}), nll).names == []
    # A lower sum because of one case, while most are higher: significant, but the interval holds 0.
    (one_case,) = compared([0.01 + 0.001 * number for number in range(11)] + [-0.5])
    assert one_case.mean < 0
    assert one_case.p_holm < 0.05
    assert not one_case.is_told_apart()
    # Most are higher, but the mean, over many cases, is lower
    (most,) = compared([0.01 + 0.0001 * number for number in range(45)] + [-0.8] * 5)
    assert most.mean < most.interval[1] < 0
    assert most.p_holm < 0.05
    assert not most.is_told_apart()


def test_better_in_the_table_is_not_significantly_worse_where_both_have_a_value() -> None:
    """One predicts nothing where there is nothing: its Dice is not defined there, that of the other is 0."""
    empty = [0.0] * 6 + [0.8 + 0.001 * number for number in range(20)]
    careful = [np.nan] * 6 + [value - 0.002 for value in empty[6:]]
    comparison = compare({name: with_dice(np.array(own)[:, None]) for name, own in (("a", careful), ("b", empty))})
    assert differences(comparison, DICE)["b"].is_told_apart()
    order = order_by(comparison, DICE)
    assert (order.names, order.behind) == (["a", "b"], [])


def test_choosing_the_best_costs_significance() -> None:
    gaps = {
        str(number): with_dice(np.array([0.9 + 0.01 * case for case in range(7)])[:, None] - number / 100)
        for number in range(3)
    }
    found = differences(compare(gaps), DICE)
    assert found["1"].p_holm == 2 * 2 / 2**7
    assert found["1"].is_told_apart()
    assert not found["1"].is_told_apart(num_methods=4)
