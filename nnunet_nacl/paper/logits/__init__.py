"""Effects of a loss on the logits: their means by class, and the maximum logit while a model trains."""

from nnunet_nacl.paper.logits._compare import compare_logits
from nnunet_nacl.paper.logits._measures import max_logit_history, mean_logits
from nnunet_nacl.paper.logits._plots import draw_max_logits, draw_mean_logits

__all__ = [
    "compare_logits",
    "draw_max_logits",
    "draw_mean_logits",
    "max_logit_history",
    "mean_logits",
]
