"""The paper's learning rate."""

from torch.optim import Optimizer

FIRST_HALF_LR = 1e-3
SECOND_HALF_LR = 1e-4


class HalfTimeLRScheduler:
    """1e-3 for the first half of the epochs, 1e-4 for the second (Murugesan et al., 2025, section 4.1.3).

    It depends on the epoch alone, so the rate is right again after ``--c`` without any saved state.
    """

    def __init__(self, optimizer: Optimizer, num_epochs: int) -> None:
        self.optimizer = optimizer
        self.num_epochs = num_epochs

    def step(self, epoch: int) -> None:
        rate = FIRST_HALF_LR if epoch < self.num_epochs / 2 else SECOND_HALF_LR
        for group in self.optimizer.param_groups:
            group["lr"] = rate
