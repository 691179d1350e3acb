"""The mix-in that gives an nnU-Net trainer one of our losses."""

import math
import time
from typing import Any, ClassVar

import numpy as np
import torch
from nnunetv2.configuration import default_num_processes
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

from nnunet_nacl import losses
from nnunet_nacl.metrics import MARGIN_MM
from nnunet_nacl.nnunet import Predictions, allowed_in_checkpoints, hooks
from nnunet_nacl.trainers._logged import LOSS_STATE, MAX_LOGIT_HISTOGRAM, VALUES
from nnunet_nacl.trainers._losses import build_loss, build_term
from nnunet_nacl.trainers._plot import plot_progress
from nnunet_nacl.trainers._progress import EpochCalibration, covers
from nnunet_nacl.trainers._recipes import PAPER_EPOCHS, Recipe
from nnunet_nacl.trainers._schedule import FIRST_HALF_LR, HalfTimeLRScheduler
from nnunet_nacl.typing import ByName

PICTURE_EVERY = 300
"""The next picture is drawn after this many times the time that the last one took: an epoch may take seconds only."""
STARTS_LATE = (
    "Without Dice, a loss learns small structures late under nnU-Net's SGD: on Hippocampus, CE had a Dice of 0.471 "
    "after 1,500 steps, DiceCE 0.835. Train until progress.png is flat (there, 25,000 steps were enough), or with the "
    "suffix _paperSchedule, or with Dice (nnUNetTrainerDice...)."
)


class CalibratedLossMixin(nnUNetTrainer):
    """Replaces the loss of any nnU-Net trainer class, under its own deep supervision.

    Put it before the trainer and give the recipe; network, data loading and inference stay the trainer's::

        class nnUNetTrainerPrimusNACL(CalibratedLossMixin, nnUNet_Primus_S_Trainer):
            recipe = Recipe("NACL", settings={"weight": 0.2})

    A loss of your own, a subclass of ``SegmentationLoss``, is the ``loss_class``, and a term of your own, a subclass of
    ``ImageTerm``, the ``term_class``; a recipe may give their settings, and the rest::

        class nnUNetTrainerBrier(CalibratedLossMixin, nnUNetTrainer):
            loss_class = Brier
    """

    recipe: ClassVar[Recipe] = Recipe()
    loss_class: ClassVar[type[losses.SegmentationLoss] | None] = None
    term_class: ClassVar[type[losses.ImageTerm] | None] = None
    loss: Any
    num_iterations_per_epoch: int
    _epoch: EpochCalibration
    _next_picture: float = 0.0

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
        dice = hooks.dice_part(inner)
        if self.recipe.term in {"Dice", "DiceACE"} and dice is None:
            raise ValueError(
                f"{type(self).__name__} adds {self.recipe.term}, but the loss of the trainer below it, "
                f"{type(inner).__name__}, has no Dice part."
            )
        try:
            term = build_term(
                self.recipe,
                self.term_class,
                dice=dice,
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
        loss.tell = self.print_to_log_file
        return hooks.with_inner_loss(default, loss.to(self.device))

    def load_checkpoint(self, filename_or_checkpoint: Any) -> None:
        # Trainers with a warm-up read it without weights_only=False, and it holds NumPy's numbers
        with torch.serialization.safe_globals(allowed_in_checkpoints()):
            super().load_checkpoint(filename_or_checkpoint)
        loss = hooks.inner_loss(self.loss)
        for state in hooks.values_by_epoch(self).get(LOSS_STATE, [])[-1:]:
            for name, values in dict(state).items():
                buffer = loss.get_buffer(name)
                setattr(loss, name, torch.tensor(values, dtype=buffer.dtype, device=buffer.device))

    def on_train_start(self) -> None:
        super().on_train_start()
        logged = hooks.values_by_epoch(self)
        # Earlier epochs may have been trained without them
        for name in (*VALUES, MAX_LOGIT_HISTOGRAM, LOSS_STATE):
            nothing: Any = math.nan if name in VALUES else []
            values = logged.setdefault(name, [])
            values += [nothing] * (self.current_epoch - len(values))
        if hooks.inner_loss(self.loss).term is None and isinstance(self.optimizer, torch.optim.SGD):
            self.print_to_log_file(STARTS_LATE, add_timestamp=False)
        size = self.configuration_manager.patch_size
        if covers(size, self._patch_spacing_mm()):
            self.print_to_log_file(
                f"A patch of {' x '.join(map(str, size))} voxels is smaller than the {MARGIN_MM:g} mm of near: in each "
                "epoch, ECE over near is that of all its voxels.",
                add_timestamp=False,
            )

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._epoch = EpochCalibration(
            regions=bool(self.label_manager.has_regions),
            ignore_label=self.label_manager.ignore_label,
            spacing_mm=self._patch_spacing_mm(),
        )

    def _patch_spacing_mm(self) -> list[float]:
        configuration = self.configuration_manager
        return list(configuration.spacing[-len(configuration.patch_size) :])

    def validation_step(self, batch: ByName) -> Any:
        inner: Any = hooks.inner_loss(self.loss)

        def watch(logits: torch.Tensor, target: torch.Tensor) -> None:
            self._epoch.watch(logits, target)
            inner.observe(logits, target)

        with hooks.loss_is_watched(self, watch):
            return super().validation_step(batch)

    def on_validation_epoch_end(self, val_outputs: list[ByName]) -> None:
        super().on_validation_epoch_end(val_outputs)
        if self.is_ddp:
            self._epoch.gather()
        hooks.log_values(self, self._epoch.values())
        hooks.log_locally(self, MAX_LOGIT_HISTOGRAM, self._epoch.histogram())
        loss: Any = hooks.inner_loss(self.loss)
        loss.end_epoch(self.current_epoch)
        state = {name: buffer.tolist() for name, buffer in loss.named_buffers(recurse=False)}
        if state:
            hooks.log_locally(self, LOSS_STATE, state)

    def on_epoch_end(self) -> None:
        logged = hooks.values_by_epoch(self)
        now = {name: logged[name][-1] for name in VALUES}
        self.print_to_log_file(
            f"ECE over near {now['ece_near']:.4f} (confidence - accuracy {now['over_confidence_near']:+.4f}), "
            f"CECE {now['cece_near']:.4f}"
        )
        last = self.current_epoch + 1 == self.num_epochs
        if self.local_rank == 0 and (last or time.monotonic() >= self._next_picture):
            start = time.monotonic()
            plot_progress(logged, self.output_folder)
            end = time.monotonic()
            self._next_picture = end + PICTURE_EVERY * (end - start)
        super().on_epoch_end()

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        super().perform_actual_validation(save_probabilities)
        if not save_probabilities or self.local_rank != 0:
            return
        from nnunet_nacl.evaluation import USUAL_SETTINGS, evaluate  # it imports what takes seconds

        folders = self.output_folder_base, self.preprocessed_dataset_folder_base
        try:
            result = evaluate(
                Predictions.of_validation(*folders, [self.fold]),
                USUAL_SETTINGS,
                num_processes=default_num_processes,
            )
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
