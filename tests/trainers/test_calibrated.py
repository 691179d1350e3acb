"""The mix-in inside nnU-Net's trainer, in this process: what the loss becomes in every kind of training."""

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.training.nnUNetTrainer.primus.primus_trainers import nnUNet_Primus_S_Trainer
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as find
from torch import nn

from nnunet_nacl import trainers
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.losses import FocalLoss, NACLLoss, _base, _compiled, _target
from nnunet_nacl.nnunet import hooks
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES, CalibratedLossMixin, Recipe, _calibrated
from tests.conftest import KINDS, NNUNet, Planned, Trained, trainer_on_cpu
from tests.losses.test_terms import Tversky

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
VALUES = ("ece", "over_confidence", *MAX_LOGIT_QUANTILES)
Make = Callable[..., nnUNetTrainer]


class TinyPrimus(nnUNet_Primus_S_Trainer):
    """Primus, as nnU-Net trains it, with two blocks in place of twelve."""

    @staticmethod
    def build_network_architecture(
        plans_manager: Any, configuration_manager: Any, inputs: int, outputs: int, enable_deep_supervision: bool = True
    ) -> nn.Module:
        from dynamic_network_architectures.architectures.primus import Primus

        return Primus(inputs, 396, (8, 8, 8), outputs, 2, 6, configuration_manager.patch_size)


def mixed(trainer: type[nnUNetTrainer], recipe: Recipe) -> type[nnUNetTrainer]:
    return type("nnUNetTrainerMixed", (CalibratedLossMixin, trainer), {"recipe": recipe})


@pytest.fixture
def make(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """``make(trainer class or name, kind, configuration, **changes to the configuration)``: a trainer on the CPU."""

    def build(
        trainer: type[nnUNetTrainer] | str, kind: str = "labels", configuration: str = "2d_small", *,
        initialized: bool = True, **changes: object,
    ) -> nnUNetTrainer:  # fmt: skip
        trainer_class = getattr(trainers, f"nnUNetTrainer{trainer}") if isinstance(trainer, str) else trainer
        for name, value in NNUNet(tmp_path).environment.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "preprocessed" / KINDS[kind][0]
        plan = planned(kind)[0].folder / "preprocessed" / folder.name
        shutil.copytree(plan, folder, ignore=shutil.ignore_patterns("nnUNetPlans_*"), dirs_exist_ok=True)
        made = trainer_on_cpu(trainer_class, folder, configuration, **changes)
        if initialized:
            torch.manual_seed(0)
            made.initialize()
        return made

    return build


def step(trainer: nnUNetTrainer) -> float:
    """One training step on random images and labels of the trainer's own kind; the loss."""
    size = trainer.configuration_manager.patch_size
    generator = torch.Generator().manual_seed(0)
    regions, ignore = trainer.label_manager.has_regions, trainer.label_manager.ignore_label is not None
    channels, values = (2 + ignore, 2) if regions else (1, 3 + ignore)
    targets = []
    for scale in trainer._get_deep_supervision_scales() or [[1.0] * len(size)]:
        shape = (2, channels, *(round(s * f) for s, f in zip(size, scale, strict=True)))
        target = torch.randint(values, shape, generator=generator)
        targets.append(target.to(torch.bool if regions else torch.int16))
    data = torch.randn(2, trainer.num_input_channels, *size, generator=generator)
    batch = {"data": data, "target": targets if trainer.enable_deep_supervision else targets[0]}
    return float(trainer.train_step(batch)["loss"])


@pytest.mark.parametrize("kind", ["labels", "regions_ignore"])
@pytest.mark.parametrize("configuration", ["2d_small", "3d_small"])
@pytest.mark.parametrize(
    ("name", "loss", "term"),
    [
        ("NACL", "NACLLoss", "NoneType"),
        ("DiceFL", "FocalLoss", "MemoryEfficientSoftDiceLoss"),
        ("DicePPNACL", "NACLLoss", "DicePlusPlus"),
        ("DiceACECE", "CrossEntropyLoss", "DiceACE"),
        ("DiceACECE_hardBins", "CrossEntropyLoss", "DiceACE"),
        ("SoftDiceLS", "LabelSmoothingLoss", "SoftDice"),
        ("SoftDiceSVLS", "SVLSLoss", "SoftDice"),
        ("CRaC", "CRaCLoss", "NoneType"),
        ("FLSD", "FLSDLoss", "NoneType"),
        ("DualFL", "DualFocalLoss", "NoneType"),
        ("FCL", "FocalCalibrationLoss", "NoneType"),
    ],
)
def test_replaces_the_loss_under_nnunets_deep_supervision(
    make: Make, name: str, loss: str, term: str, kind: str, configuration: str
) -> None:
    trainer = make(name, kind, configuration)
    assert type(trainer).__name__ == f"nnUNetTrainer{name}"
    assert isinstance(trainer.loss, DeepSupervisionWrapper)
    assert trainer.loss.weight_factors[-1] == 0
    inner = trainer.loss.loss
    assert (type(inner).__name__, type(inner.term).__name__) == (loss, term)
    assert inner.regions == (kind != "labels")
    if term not in {"NoneType", "MemoryEfficientSoftDiceLoss"}:
        assert (inner.term.regions, inner.term.ddp) == (inner.regions, False)
        assert inner.term.batch == trainer.configuration_manager.batch_dice
    assert np.isfinite(step(trainer))


def test_what_cracs_weights_adapted_to_is_in_the_checkpoint(make: Make, trained: Trained) -> None:
    """After the validation of one epoch, and again where a training goes on."""
    name = "CRaC_1epochs_2iterations"
    checkpoint = trained("labels", "2d_small", f"nnUNetTrainer{name}") / "fold_0" / "checkpoint_final.pth"
    (state,) = torch.load(checkpoint, weights_only=False)["logging"]["loss_state"]
    begin = make(name).loss.loss.multipliers
    continued = make(name)
    continued.load_checkpoint(str(checkpoint))
    buffers = dict(continued.loss.loss.named_buffers())
    assert buffers["multipliers"].shape == (2, 3)
    assert (buffers["multipliers"] > begin).any()
    assert {name: buffer.tolist() for name, buffer in buffers.items()} == state


@pytest.mark.parametrize("kind", ["labels", "ignore", "regions"])
@pytest.mark.parametrize("configuration", ["2d_small", "3d_small"])
def test_dice_ce_is_nnunets_default_loss(make: Make, kind: str, configuration: str) -> None:
    values = []
    for trainer_class in (nnUNetTrainer, "DiceCE"):
        trainer = make(trainer_class, kind, configuration)
        values.append((step(trainer), step(trainer)))  # the second one shows that the gradients agree
    assert values[1] == pytest.approx(values[0], rel=1e-4)


def test_weights_of_the_scales_are_nnunets(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in distributed training. For a network of one scale, nnU-Net's own trainer divides 0 by 0."""
    trainer = make("DiceNACL", initialized=False)
    trainer.is_ddp = True
    assert trainer._build_loss().weight_factors[-1] > 0
    monkeypatch.setattr(nnUNetTrainer, "_get_deep_supervision_scales", lambda _: [[1.0, 1.0]])
    assert make("DiceNACL").loss.weight_factors == (1.0,)


def test_cascade(make: Make) -> None:
    trainer = make("NACL", "labels", "3d_cascade_small")
    assert trainer.is_cascaded
    assert "nnUNetTrainerNACL__nnUNetPlans__3d_lowres_small" in trainer.folder_with_segs_from_previous_stage
    assert trainer.num_input_channels == 3  # the image and the previous stage's two foreground classes
    assert np.isfinite(step(trainer))


@pytest.mark.filterwarnings("ignore")  # what torch says while it traces is torch's own, and an error would stop it
def test_compiled(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nnU-Net compiles, so do we; a loss that cannot be compiled goes on without, and the log says so once."""
    # nnU-Net compiles on CUDA only; the tracing is the same, the code generator is left out.
    monkeypatch.setattr(nnUNetTrainer, "_do_i_compile", lambda _: True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(_base, "_COMPILED_ON", frozenset({"cpu"}))
    monkeypatch.setattr(_compiled, "BACKEND", "aot_eager")
    trainer = make("DiceNACL")
    assert isinstance(trainer.loss.loss.term, torch._dynamo.OptimizedModule)
    logged: list[str] = []
    trainer.loss.loss.warn = logged.append
    values = [step(trainer)]  # the CPU reads values back, which cannot be compiled
    assert not trainer.loss.loss.compiled
    assert len(logged) == 1
    monkeypatch.setattr(_target, "_VALUES_ARE_READ", frozenset())
    trainer = make("DiceNACL")
    values.append(step(trainer))
    assert trainer.loss.loss.compiled
    assert values[1] == pytest.approx(values[0], rel=1e-4)
    assert trainer.loss.loss.warn == trainer.print_to_log_file
    monkeypatch.setattr(nnUNetTrainer, "_do_i_compile", lambda _: False)
    assert not make("DiceNACL").loss.loss.compiled


def test_in_front_of_primus(make: Make, tmp_path: Path) -> None:
    for paper_schedule, optimizer in ((False, torch.optim.AdamW), (True, torch.optim.Adam)):
        recipe = Recipe("NACL", settings={"weight": 0.2}, paper_schedule=paper_schedule)
        trainer = make(mixed(TinyPrimus, recipe), "labels", "3d_small")
        first = trainer.optimizer
        trainer.on_train_epoch_start()  # its warm-up makes an optimizer for each stage
        assert type(trainer.optimizer) is optimizer
        assert trainer.optimizer is first or not paper_schedule
        assert trainer.loss.weight == 0.2
        assert np.isfinite(step(trainer))
    trainer.current_epoch = 4
    trainer.logger.local_logger.my_fantastic_logging["ema_fg_dice"] = [np.float32(0.5)]
    trainer.save_checkpoint(str(tmp_path / "checkpoint_latest.pth"))
    trainer.current_epoch = 0
    trainer.load_checkpoint(str(tmp_path / "checkpoint_latest.pth"))  # which nnU-Net's class alone cannot
    assert trainer.current_epoch == 5


def test_other_trainers(make: Make) -> None:
    trainer = make(mixed(find("nnUNetTrainerNoDeepSupervision"), Recipe("NACL")))
    assert isinstance(trainer.loss, NACLLoss)
    assert np.isfinite(step(trainer))
    with pytest.raises(ValueError, match=r"the loss of the trainer below it, RobustCrossEntropyLoss, has no Dice part"):
        make(mixed(find("nnUNetTrainerCELoss"), Recipe("NACL", "Dice")))


def of_ones_own(**attributes: object) -> type[nnUNetTrainer]:
    return type("nnUNetTrainerMine", (CalibratedLossMixin, nnUNetTrainer), attributes)


@pytest.mark.parametrize("kind", ["labels", "regions_ignore"])
def test_a_loss_and_a_term_of_ones_own(make: Make, kind: str) -> None:
    """In place of those of a recipe, which gives their settings and the rest."""
    assert type(make(of_ones_own(loss_class=FocalLoss), kind).loss.loss) is FocalLoss
    recipe = Recipe("NACL", "Dice", settings={"gamma": 2.0}, num_epochs=7)
    trainer = make(of_ones_own(loss_class=FocalLoss, recipe=recipe), kind)
    loss = trainer.loss.loss
    assert (type(loss), loss.gamma, trainer.num_epochs) == (FocalLoss, 2.0, 7)
    assert isinstance(loss.term, MemoryEfficientSoftDiceLoss)
    assert (loss.regions, loss.ignore_label) == ((True, 3) if kind == "regions_ignore" else (False, None))
    assert np.isfinite(step(trainer))
    recipe = Recipe("NACL", "DicePP", term_settings={"beta": 0.7})
    trainer = make(of_ones_own(term_class=Tversky, recipe=recipe), kind)
    term = trainer.loss.loss.term
    assert (type(term), term.beta, term.regions) == (Tversky, 0.7, kind != "labels")
    assert np.isfinite(step(trainer))


@pytest.mark.parametrize("below", ["nnUNetTrainer", "nnUNetTrainerNoDeepSupervision"])
def test_the_pages_loss_of_ones_own(make: Make, below: str) -> None:
    """Its values as torch computes them; that the page's commands run is a slow test of the studies."""
    section = PAGE.read_text().partition("## A loss of your own")[2]
    names: dict[str, Any] = {"__name__": "brier"}
    exec(section.partition("```python\n")[2].partition("```")[0], names)
    trainer = make(type("nnUNetTrainerMine", (names["nnUNetTrainerBrier"], find(below)), {}))
    assert isinstance(hooks.inner_loss(trainer.loss), names["Brier"])
    assert 0 < step(trainer) < 2
    p, labels = torch.full((1, 4, 3, 3), 0.25), torch.ones(1, 1, 3, 3)
    assert float(names["Brier"]()(p.log(), labels)) == pytest.approx(0.75**2 + 3 * 0.25**2)


def test_losses_that_cannot_be_built(make: Make) -> None:
    with pytest.raises(ValueError, match=r"MbLS on Dataset\d+_\w+, with the regions .*: MbLS is not defined for"):
        make("MbLS", "regions")
    with pytest.raises(ValueError, match="There is no loss: set the trainer's loss_class, or name one, as in Recipe"):
        make(of_ones_own())


def test_the_log_says_what_starts_late(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnUNetTrainer, "on_train_start", lambda _: None)
    for name, late in (("NACL", True), ("DicePPNACL", False), ("NACL_paperSchedule", False)):
        trainer = make(name)
        logged: list[str] = []
        monkeypatch.setattr(trainer, "print_to_log_file", lambda line, logged=logged, **_: logged.append(line))
        trainer.on_train_start()
        assert ["learns small structures late under nnU-Net's SGD" in line for line in logged] == [True] * late


@pytest.mark.parametrize(("suffix", "epochs"), [("", 100), ("_8epochs_5iterations", 8)])
def test_the_schedule(make: Make, suffix: str, epochs: int) -> None:
    assert isinstance(make("NACL").optimizer, torch.optim.SGD)
    trainer = make(f"NACL_paperSchedule{suffix}")
    assert (trainer.num_epochs, trainer.num_iterations_per_epoch) == (epochs, 5 if suffix else 250)
    assert isinstance(trainer.optimizer, torch.optim.Adam)
    rates = []
    for epoch in (0, epochs // 2 - 1, epochs // 2, epochs - 1, 0):  # a function of the epoch alone
        trainer.lr_scheduler.step(epoch)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == [1e-3, 1e-3, 1e-4, 1e-4, 1e-3]


@pytest.mark.parametrize("name", ["DA5_8epochs_5iterations", "DA5_5iterations_8epochs", "PaperCE_8epochs_5iterations"])
def test_a_budget_for_any_trainer(make: Make, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A trainer of nnU-Net, and one with a recipe whose schedule has a budget of its own."""
    found = {"nnUNetTrainerPaperCE": mixed(nnUNetTrainer, Recipe("CE", paper_schedule=True))}
    monkeypatch.setattr(_calibrated, find.__name__, lambda wanted: found.get(wanted) or find(wanted))
    trainer = make(name)
    assert (trainer.num_epochs, trainer.num_iterations_per_epoch) == (8, 5)


def test_a_trainer_that_sets_its_own_budget(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(nnUNetTrainer):
        def initialize(self) -> None:
            self.num_epochs = 3
            super().initialize()

    monkeypatch.setattr(_calibrated, find.__name__, lambda _: Stubborn)
    with pytest.raises(ValueError, match="nnUNetTrainerStubborn sets num_epochs itself, to 3; train it by its own"):
        make("Stubborn_8epochs")


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_trainer_whose_name_begins_like_ours(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str
) -> None:
    """nnU-Net finds it wherever our folder stands, and with a budget."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text(
        "from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer\n\n\n"
        "class nnUNetTrainerCE_mine(nnUNetTrainer):\n    pass\n"
    )
    folders = [str(trainers_path()), str(tmp_path / "mine")]
    monkeypatch.setenv("nnUNet_extTrainer", os.pathsep.join(folders if first == "ours" else folders[::-1]))
    assert find("nnUNetTrainerCE_mine").__name__ == "nnUNetTrainerCE_mine"
    assert make(find("nnUNetTrainerCE_mine_7epochs")).num_epochs == 7
    with pytest.raises(ValueError, match="does not know the suffix '_other'"):
        find("nnUNetTrainerCE_other")


def test_goes_on_with_a_training_of_another_trainer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """nnU-Net asserts that no list lags behind the epoch, and plots up to the shortest."""
    monkeypatch.setattr(nnUNetTrainer, "on_train_start", lambda _: None)
    trainer = make("NACL")
    logged = trainer.logger.local_logger.my_fantastic_logging
    logged["ece"] = [0.3, 0.4]
    trainer.current_epoch = 2
    trainer.on_train_start()
    assert logged["ece"] == [0.3, 0.4]
    assert all(np.isnan(logged[name]).tolist() == [True, True] for name in VALUES[1:])
    assert logged[MAX_LOGIT_HISTOGRAM] == [[], []]


def test_nnunets_search_finds_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """nnU-Net drops the module that it found a class in; a class defined there could not be pickled."""
    monkeypatch.setenv("nnUNet_extTrainer", str(trainers_path()))
    before = set(sys.modules)  # other tests may have read nnU-Net's folder
    found = find("nnUNetTrainerNACL_weight0p3")
    assert found is trainers.nnUNetTrainerNACL_weight0p3
    assert not any("nnunet_nacl_trainers" in name for name in set(sys.modules) - before)


def test_classes_are_made_once_and_can_be_pickled() -> None:
    made = trainers.nnUNetTrainerNACL_weight0p3
    assert trainers.nnUNetTrainerNACL_weight0p3 is made
    assert pickle.loads(pickle.dumps(made)) is made
    assert made.recipe.settings == {"weight": 0.3}
    with pytest.raises(AttributeError):
        trainers.nnUNetTrainerSomethingElse  # noqa: B018
