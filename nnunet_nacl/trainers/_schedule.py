"""The paper's learning-rate schedule."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

FIRST_HALF_LR = 1e-3
SECOND_HALF_LR = 1e-4


class HalfTimeLRScheduler(LRScheduler):
    """1e-3 for the first half of the epochs, 1e-4 for the second.

    A function of the epoch alone, as nnU-Net's own scheduler is: nnU-Net calls ``step(epoch)`` at the start of each
    epoch, and after ``--c`` the rate is right again without any saved state. (torch's own schedulers warn at every
    call with an epoch.)

    References:
        Murugesan et al., Medical Image Analysis 2024, implementation details.
    """

    def __init__(self, optimizer: Optimizer, num_epochs: int) -> None:
        self.num_epochs = num_epochs
        super().__init__(optimizer)

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        rate = FIRST_HALF_LR if self.last_epoch < self.num_epochs / 2 else SECOND_HALF_LR
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
