"""What a loss does to the logits: their means by class, and the maximum logit while a model trains."""

from nnunet_nacl.paper.logits._compare import compare_logits
from nnunet_nacl.paper.logits._measures import max_logit_history, mean_logits

__all__ = ["compare_logits", "max_logit_history", "mean_logits"]
