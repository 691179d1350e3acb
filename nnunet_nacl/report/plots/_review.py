"""What the confidences are good for: true against predicted Dice."""

import math
from typing import Any

from matplotlib.axes import Axes

from nnunet_nacl.report._metrics import number_text
from nnunet_nacl.report._review import Reviews
from nnunet_nacl.report.plots._style import INK, color_of, wrapped

_MANY = 2000  # from so many points on, they are drawn as pixels, which keeps the page small


def dice_scatter(reviews: Reviews, method: str, ax: Axes) -> None:
    """True against predicted Dice, all methods on the same axes. Below the dashed line a method promises too much."""
    ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    rows = reviews.frame[reviews.frame["method"] == method]
    style: Any = {"color": color_of(reviews.names, method), "alpha": 0.6, "markeredgewidth": 0, "markersize": 3.5}
    ax.plot(rows["predicted_dice"], rows["dice"], "o", rasterized=len(rows) > _MANY, **style)
    ends = (math.floor(10 * reviews.frame[["predicted_dice", "dice"]].min().min()) / 10 - 0.01, 1.01)
    title = f"{wrapped(method, 40)}\nMAE {number_text(reviews.judgements[method].dice_error)}"
    ax.set(xlim=ends, ylim=ends, xlabel="predicted Dice", ylabel="true Dice", title=title)
