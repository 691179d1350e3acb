"""Radar plots and heat maps show the comparison's numbers."""

from matplotlib.figure import Figure

from nnunet_nacl.paper.report._figures import radar, rank_heatmap
from nnunet_nacl.paper.report._ranks import SUM_RANK, rank_methods
from nnunet_nacl.report import DICE, Comparison, Metric


def test_radar(comparison: Comparison) -> None:
    figure, metric = Figure(), Metric("ECE", "near")
    radar(comparison, metric, figure.add_subplot())
    for line, of in zip(figure.axes[0].lines, (DICE, metric), strict=True):
        values = [one.value for one in comparison.estimates[of].values()]
        assert list(line.get_ydata()) == [*values, values[0]]


def test_heat_map(comparison: Comparison) -> None:
    axes = Figure().add_subplot()
    ranking = rank_methods([comparison], SUM_RANK)
    rank_heatmap(ranking, axes)
    ranks = ranking.ranks.sort_values("overall")
    assert [text.get_text() for text in axes.get_yticklabels()] == list(ranks.index)
    assert [float(text.get_text()) for text in axes.texts] == list(ranks.to_numpy().ravel())
