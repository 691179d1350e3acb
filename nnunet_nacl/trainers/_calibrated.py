"""The mix-in that gives an nnU-Net trainer one of our losses, and the trainer class of a name."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from nnunetv2.configuration import default_num_processes
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name
from torch import nn
from torch.optim import Optimizer

from nnunet_nacl import losses
from nnunet_nacl.nnunet import Predictions, allowed_in_checkpoints, hooks
from nnunet_nacl.trainers._live import LiveCurvesMixin
from nnunet_nacl.trainers._recipes import (
    PAPER_EPOCHS,
    Recipe,
    build_loss,
    build_term,
    recipe_of,
    without_budget,
)
from nnunet_nacl.typing import ByName

FIRST_HALF_LR = 1e-3
SECOND_HALF_LR = 1e-4
LOSS_STATE = "loss_state"
"""Name, in nnU-Net's log, of what a loss adapts, such as CRaC's weights: its buffers by name."""
STARTS_LATE = (
    "Without Dice, a loss learns small structures late under nnU-Net's SGD: on Hippocampus, CE had a Dice of 0.471 "
    "after 1,500 steps, DiceCE 0.835. Train until progress.png is flat (there, 25,000 steps were enough), or with the "
    "suffix _paperSchedule, or with Dice (nnUNetTrainerDice...)."
)


class CalibratedLossMixin(LiveCurvesMixin):
    """A mix-in that replaces the loss of any nnU-Net trainer class, under its own deep supervision.

    Put it before the trainer and give the recipe; network, data loading and inference stay the trainer's::

        class nnUNetTrainerPrimusNACL(CalibratedLossMixin, nnUNet_Primus_S_Trainer):
            recipe = Recipe("NACL", settings={"weight": 0.2})

    A loss of your own, a subclass of ``SegmentationLoss``, is the ``loss_class``, and a term of your own, a subclass of
    ``ImageTerm``, the ``term_class``. They replace those of a recipe, which gives their settings and the rest::

        class nnUNetTrainerBrier(CalibratedLossMixin, nnUNetTrainer):
            loss_class = Brier
    """

    recipe: ClassVar[Recipe] = Recipe()
    loss_class: ClassVar[type[losses.SegmentationLoss] | None] = None
    term_class: ClassVar[type[losses.ImageTerm] | None] = None
    loss: Any
    num_iterations_per_epoch: int

    def initialize(self) -> None:
        if self.recipe.paper_schedule:
            self.initial_lr = FIRST_HALF_LR
            self.num_epochs = PAPER_EPOCHS
        self.num_epochs = self.recipe.num_epochs or self.num_epochs
        self.num_iterations_per_epoch = (
            self.recipe.num_iterations_per_epoch or self.num_iterations_per_epoch
        )
        super().initialize()
        self.print_to_log_file(
            f"nnunet_nacl trains with {hooks.inner_loss(self.loss)}", add_timestamp=False
        )

    def configure_optimizers(self, *stage: str) -> Any:
        # Trainers with a warm-up call this again for each stage and hand its name over.
        if not self.recipe.paper_schedule:
            return super().configure_optimizers(*stage)
        if isinstance(self.lr_scheduler, HalfTimeLRScheduler):
            return self.optimizer, self.lr_scheduler
        adam = torch.optim.Adam(self.network.parameters(), lr=self.initial_lr)
        return adam, HalfTimeLRScheduler(adam, self.num_epochs)

    def _build_loss(self) -> nn.Module:
        # A network with a single deep-supervision scale: nnU-Net drops the last scale, then divides 0 by 0.
        with np.errstate(invalid="ignore"):
            default = super()._build_loss()
        inner = hooks.inner_loss(default)
        labels = self.label_manager
        try:
            term = build_term(
                self.recipe,
                self.term_class,
                dice=getattr(inner, "dc", None),  # of nnU-Net's compound losses
                regions=labels.has_regions,
                batch=self.configuration_manager.batch_dice,
                ddp=self.is_ddp,
            )
            loss = build_loss(
                self.recipe,
                self.loss_class,
                ignore_label=labels.ignore_label,
                regions=labels.has_regions,
                term=term,
                compiled=self._do_i_compile(),
            )
        except ValueError as error:
            if not labels.has_regions:
                raise
            raise ValueError(
                f"{type(self).__name__} on {self.plans_manager.dataset_name}, with the regions "
                f"{', '.join(self.dataset_json['labels'])}: {error}"
            ) from error
        if self.recipe.term is not None and term is None:
            raise ValueError(
                f"{type(self).__name__} adds {self.recipe.term}, but the loss of the trainer below it, "
                f"{type(inner).__name__}, has no Dice part."
            )
        loss.warn = self.print_to_log_file
        return hooks.with_inner_loss(default, loss.to(self.device))

    def load_checkpoint(self, filename_or_checkpoint: Any) -> None:
        # Trainers with a warm-up read it without weights_only=False, and it holds NumPy's numbers
        with torch.serialization.safe_globals(allowed_in_checkpoints()):
            super().load_checkpoint(filename_or_checkpoint)
        loss = hooks.inner_loss(self.loss)
        for state in hooks.values_by_epoch(self).get(LOSS_STATE, [])[-1:]:
            for name, values in state.items():
                buffer = loss.get_buffer(name)
                setattr(loss, name, torch.tensor(values, dtype=buffer.dtype, device=buffer.device))

    def on_train_start(self) -> None:
        super().on_train_start()
        self._pad(LOSS_STATE, {})
        if hooks.inner_loss(self.loss).term is None and isinstance(self.optimizer, torch.optim.SGD):
            self.print_to_log_file(STARTS_LATE, add_timestamp=False)

    def watch(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        super().watch(logits, target)
        hooks.inner_loss(self.loss).observe(logits, target)

    def on_validation_epoch_end(self, val_outputs: list[ByName]) -> None:
        super().on_validation_epoch_end(val_outputs)
        loss = hooks.inner_loss(self.loss)
        loss.end_epoch(self.current_epoch)
        state = {name: buffer.tolist() for name, buffer in loss.named_buffers(recurse=False)}
        hooks.log(self, {LOSS_STATE: state})

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        super().perform_actual_validation(save_probabilities)
        if not save_probabilities or self.local_rank != 0:
            return
        from nnunet_nacl.evaluation import USUAL_SETTINGS, evaluate  # it imports what takes seconds

        try:
            predictions = Predictions.of_model(
                self.output_folder_base,
                [self.fold],
                preprocessed=self.preprocessed_dataset_folder_base,
            )
            result = evaluate(predictions, USUAL_SETTINGS, num_processes=default_num_processes)
        # The model is trained; nothing of it may be lost
        except (OSError, RuntimeError, ValueError) as error:
            self.print_to_log_file(
                f"The validation could not be evaluated for calibration: {error}"
            )
            return
        near = result.pooled("near")
        nll = result.pooled("image")["NLL_per_foreground"]
        self.print_to_log_file(
            f"Validation: NLL per foreground voxel {nll:.4f}, ECE over near {near['ECE']:.4f} (confidence - accuracy "
            f"{near['over_confidence']:+.4f}); all metrics are in {result.file}"
        )


@dataclass(frozen=True)
class HalfTimeLRScheduler:
    """Learning rates of 1e-3, and 1e-4 from half time (Murugesan et al., 2025, section 4.1.3).

    It depends on the epoch alone, so the rate is right again after ``--c`` without any saved state.
    """

    optimizer: Optimizer
    num_epochs: int

    def step(self, epoch: int) -> None:
        rate = FIRST_HALF_LR if epoch < self.num_epochs / 2 else SECOND_HALF_LR
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def trainer_class(name: str) -> type | None:
    """Make the class for one of our names, or for another's with a budget; None if there is no such trainer."""
    recipe = recipe_of(name)
    if recipe is None:
        return _with_budget(name)
    # A value that the loss does not allow should fail here, before any data is loaded
    build_loss(recipe)
    build_term(recipe)
    attributes = {"recipe": recipe, "__module__": "nnunet_nacl.trainers"}
    return type(name, (CalibratedLossMixin,), attributes)


def _with_budget(name: str) -> type | None:
    """Make ``NAME_<N>epochs`` and the like of the trainer that nnU-Net finds as ``NAME``; None if it finds none."""
    base_name, budget = without_budget(name)
    if not budget:
        return None
    try:
        base = recursive_find_trainer_class_by_name(base_name)
    except (AssertionError, RuntimeError):
        return None

    def initialize(self: Any) -> None:
        vars(self).update(budget)
        base.initialize(self)
        for setting, value in budget.items():
            if vars(self)[setting] != value:
                raise ValueError(
                    f"{name}: {base_name} sets {setting} itself, to {vars(self)[setting]}; train it by its own name."
                )

    # A trainer with a recipe takes its budget from that.
    ours = issubclass(base, CalibratedLossMixin)
    attributes = {"recipe": replace(base.recipe, **budget)} if ours else {"initialize": initialize}
    return type(name, (base,), {**attributes, "__module__": "nnunet_nacl.trainers"})
