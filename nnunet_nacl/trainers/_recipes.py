"""Trainer names, their recipes, and the losses of these: ``nnUNetTrainer[TERM]LOSS[_suffix ...]`` <-> ``Recipe``.

The name carries the settings, as in nnU-Net's own trainer variants, so that each variant has its own results folder and
prediction finds it again from the checkpoint. Names are read without torch and nnU-Net, which take seconds to import.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from nnunet_nacl.typing import ByName

if TYPE_CHECKING:
    from torch import nn

    from nnunet_nacl import losses

PREFIX = "nnUNetTrainer"
PAPER_EPOCHS = 100


@dataclass(frozen=True)
class Recipe:
    """The loss and settings of one of our trainers; numbers that are None are the trainer's own.

    Attributes:
        loss: a key of ``LOSSES``; None for the trainer's own ``loss_class``.
        term: a key of ``TERMS``, the image-level term to add, such as nnU-Net's own ``"Dice"``; None for none, or for
            the trainer's own ``term_class``.
        settings: keyword settings of the loss class that the name gives.
        term_settings: those of the term's class.
        paper_schedule: Adam, 1e-3 then 1e-4 from half time, 100 epochs unless ``num_epochs`` says otherwise.
    """

    loss: str | None = None
    term: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    term_settings: Mapping[str, object] = field(default_factory=dict)
    num_epochs: int | None = None
    num_iterations_per_epoch: int | None = None
    paper_schedule: bool = False


@dataclass(frozen=True)
class Setting:
    """A keyword of a loss class or of a recipe, and the suffixes that set it.

    Attributes:
        name: the keyword.
        about: its values in the paper, or what it does.
        form: a suffix with ``<number>``, or ``<N>`` for a whole one, in place of the value.
        words: instead, suffixes and the values that they stand for.
    """

    name: str
    about: str
    form: str = ""
    words: Mapping[str, object] = field(default_factory=dict)

    def shown(self) -> str:
        return self.form or " | ".join(self.words)

    def read(self, suffix: str) -> object | None:
        """Return the value that ``suffix`` gives this setting, or None if it belongs to another setting."""
        # No leading zeros: 01 may be meant as 0.1
        pattern = self.form.replace("<N>", r"([1-9]\d*)")
        pattern = pattern.replace("<number>", r"((?:0|[1-9]\d*)(?:p\d+)?)")
        number = re.fullmatch(pattern, suffix)
        if self.words or number is None:
            return self.words.get(suffix)
        return int(number[1]) if "<N>" in self.form else float(number[1].replace("p", "."))


@dataclass(frozen=True)
class Component:
    """A loss or term by its short name: the class in ``nnunet_nacl.losses``, and the settings in a trainer's name."""

    class_name: str
    summary: str
    settings: tuple[Setting, ...] = ()


_ALPHA = Setting("alpha", "0.1, 0.2, 0.3", "alpha<number>")
_KERNEL_SIZE = Setting("kernel_size", "3", "kernel<N>")
_REDUCTIONS = {"classMean": "mean", "classSum": "sum"}
_PRIORS = {"mean": "mean", "gaussian": "gaussian", "plainGaussian": "plain_gaussian"}
_BORDERS = {"borderValid": "valid", "borderBackground": "background", "borderZero": "zero"}

LOSSES: Mapping[str, Component] = {
    "NACL": Component(
        "NACLLoss",
        "CE + weight · |class shares of the neighborhood - logits|",
        (
            Setting("weight", "0.1, 0.2, 0.3", "weight<number>"),
            Setting("prior", "mean, gaussian", words=_PRIORS),
            Setting("sigma", "1, 2, 3", "sigma<number>"),
            _KERNEL_SIZE,
            Setting("penalty", "l1, l2", words={"l1": "l1", "l2": "l2"}),
            Setting(
                "constraint",
                "logits, softmax",
                words={"logits": "logits", "softmax": "softmax"},
            ),
            Setting("class_reduction", "sum; its code: mean", words=_REDUCTIONS),
            Setting("border", "not stated; its code: background", words=_BORDERS),
        ),
    ),
    "CE": Component("CrossEntropyLoss", "cross-entropy"),
    "FL": Component("FocalLoss", "focal loss", (Setting("gamma", "1, 2, 3", "gamma<number>"),)),
    "ECP": Component(
        "ECPLoss",
        "CE - alpha · entropy of the prediction",
        (_ALPHA, Setting("class_reduction", "not stated; its code: mean", words=_REDUCTIONS)),
    ),
    "LS": Component("LabelSmoothingLoss", "label smoothing", (_ALPHA,)),
    "SVLS": Component(
        "SVLSLoss",
        "spatially varying label smoothing",
        (Setting("sigma", "0.5, 1, 2", "sigma<number>"), _KERNEL_SIZE),
    ),
    "MbLS": Component(
        "MbLSLoss",
        "margin-based label smoothing (labels only, no regions)",
        (
            Setting("margin", "3, 5, 10", "margin<number>"),
            Setting("weight", "0.1", "weight<number>"),
        ),
    ),
    "CRaC": Component(
        "CRaCLoss",
        "CE + penalties as NACL's, with a weight for each class inside and at boundaries that adapts",
        (
            Setting("margin", "–; its authors: 5", "margin<number>"),
            Setting("rho", "–; its authors: 0.1", "rho<number>"),
        ),
    ),
    "FLSD": Component(
        "FLSDLoss", "focal loss with a gamma of 5 below a probability of 0.2, else 3"
    ),
    "DualFL": Component(
        "DualFocalLoss", "dual focal loss", (Setting("gamma", "–", "gamma<number>"),)
    ),
    "FCL": Component(
        "FocalCalibrationLoss",
        "focal loss + weight · squared error",
        (Setting("gamma", "–", "gamma<number>"), Setting("weight", "–", "weight<number>")),
    ),
}

TERMS: Mapping[str, Component] = {
    "Dice": Component("", "nnU-Net's Dice loss"),
    "DicePP": Component(
        "DicePlusPlus", "DSC++", (Setting("gamma", "–; its authors: 2", "gamma<number>"),)
    ),
    "DiceACE": Component(
        "DiceACE",
        "nnU-Net's Dice loss + aceWeight · mL1-ACE",
        (
            Setting("bins", "–", words={"softBins": "soft", "hardBins": "hard"}),
            Setting("ace_weight", "–; MONAI: 0.3", "aceWeight<number>"),
        ),
    ),
    "SoftDice": Component("SoftDice", "soft-label Dice, of the target as the loss smooths it"),
}
"""Terms over an image that a loss can add. nnU-Net's own has no class of ours."""

BUDGET = (
    Setting("num_epochs", "train N epochs (nnU-Net: 1000)", "<N>epochs"),
    Setting(
        "num_iterations_per_epoch", "N training steps an epoch (nnU-Net: 250)", "<N>iterations"
    ),
)
"""The settings that the name of any trainer can end with."""
SCHEDULE = (
    Setting(
        "paper_schedule",
        f"Adam, 1e-3 then 1e-4 from half time, {PAPER_EPOCHS} epochs unless <N>epochs is given",
        words={"paperSchedule": True},
    ),
    *BUDGET,
)
"""The settings of a recipe that the names of all losses can carry."""

_NAME = re.compile(
    rf"{PREFIX}(?P<term>{'|'.join(TERMS)})?(?P<loss>{'|'.join(LOSSES)})(?P<suffixes>|_.*)"
)


def parse_name(name: str) -> Recipe | None:
    """Parse a trainer's name into its recipe; None if it is not one of ours.

    Args:
        name: for example ``nnUNetTrainerNACL_weight0p2_gaussian_sigma2_l2_100epochs``; suffixes in any order.

    Raises:
        ValueError: one of our names with an unknown, repeated or contradictory suffix; lists the valid ones.

    >>> parse_name("nnUNetTrainerDiceNACL_weight0p2_10epochs")
    Recipe(loss='NACL', term='Dice', settings={'weight': 0.2}, term_settings={}, num_epochs=10, \
num_iterations_per_epoch=None, paper_schedule=False)
    >>> parse_name("nnUNetTrainerCELoss") is None
    True
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    loss = match["loss"]
    term = match["term"]
    groups = (LOSSES[loss].settings, TERMS[term].settings if term else (), SCHEDULE)
    values: list[dict[str, object]] = [{} for _ in groups]
    for suffix in match["suffixes"].split("_")[1:]:
        found = [
            (of_group, *read)
            for of_group, group in zip(values, groups, strict=True)
            if (read := _read(suffix, group))
        ]
        if not found:
            raise _error(name, groups, f"does not know the suffix '_{suffix}'")
        # A suffix that loss and term have belongs to the loss
        of_group, setting, value = found[0]
        if setting in of_group:
            raise _error(name, groups, f"sets {setting} twice, again with '_{suffix}'")
        of_group[setting] = value
    settings, term_settings, schedule = values
    if loss == "NACL" and "sigma" in settings and settings.get("prior", "mean") == "mean":
        raise _error(name, groups, "sets sigma, which needs '_gaussian' or '_plainGaussian'")
    return Recipe(loss, term, settings, term_settings, **schedule)  # type: ignore[arg-type]


def recipe_of(name: str) -> Recipe | None:
    """Call ``parse_name``; None also for a trainer that somebody wrote and whose name only begins like one of ours."""
    try:
        return parse_name(name)
    except ValueError:
        from nnunet_nacl.nnunet import defines_trainer  # what imports nnU-Net takes long

        if defines_trainer(without_budget(name)[0]):
            return None
        raise


def without_budget(name: str) -> tuple[str, dict[str, object]]:
    """Split a trainer's name into the name without its budget, and the budget by the settings' names.

    >>> without_budget("nnUNetTrainerDA5_20epochs_10iterations")
    ('nnUNetTrainerDA5', {'num_iterations_per_epoch': 10, 'num_epochs': 20})
    """
    budget: dict[str, object] = {}
    while True:
        base, _, suffix = name.rpartition("_")
        found = _read(suffix, BUDGET)
        if found is None or found[0] in budget:
            return name, budget
        budget.update([found])
        name = base


def _read(suffix: str, settings: Sequence[Setting]) -> tuple[str, object] | None:
    """Return the setting that a suffix belongs to, by its name, and the value; None if it belongs to none."""
    for setting in settings:
        value = setting.read(suffix)
        if value is not None:
            return setting.name, value
    return None


def _error(name: str, groups: Sequence[Sequence[Setting]], problem: str) -> ValueError:
    valid = "; ".join(dict.fromkeys(setting.shown() for group in groups for setting in group))
    return ValueError(
        f"Trainer name {name} {problem}. Valid suffixes, each after an underscore, in any order, with p for the "
        f"decimal point: {valid}."
    )


def build_loss(
    recipe: Recipe,
    loss_class: "type[losses.SegmentationLoss] | None" = None,
    **shared: Unpack["losses.Shared"],
) -> "losses.SegmentationLoss":
    """Build the loss of a recipe; a ValueError for settings that the loss does not allow.

    Args:
        recipe: the loss and its settings.
        loss_class: a loss of one's own, in place of the recipe's.
        shared: settings of ``SegmentationLoss``.
    """
    from nnunet_nacl import losses

    if loss_class is None and recipe.loss is None:
        raise ValueError(
            'There is no loss: set the trainer\'s loss_class, or name one, as in Recipe("NACL").'
        )
    if loss_class is None:
        loss_class = getattr(losses, LOSSES[str(recipe.loss)].class_name)
    settings: ByName = {**recipe.settings, **shared}
    return loss_class(**settings)


def build_term(
    recipe: Recipe,
    term_class: "type[losses.ImageTerm] | None" = None,
    *,
    dice: "nn.Module | None" = None,
    **shared: Unpack["losses.SharedByTerms"],
) -> "nn.Module | None":
    """Build the image-level term of a recipe, or None; a ValueError for settings that it does not allow.

    Args:
        recipe: the term and its settings.
        term_class: a term of one's own, in place of the recipe's.
        dice: nnU-Net's Dice loss, the term ``"Dice"`` and a part of terms that take it.
        shared: settings of ``ImageTerm``.
    """
    from nnunet_nacl import losses

    if term_class is None and recipe.term == "Dice":
        return dice
    if term_class is None and recipe.term is not None:
        term_class = getattr(losses, TERMS[recipe.term].class_name)
    if term_class is None:
        return None
    settings: ByName = {**recipe.term_settings, **shared}
    if "dice" in inspect.signature(term_class).parameters:
        settings["dice"] = dice
    return term_class(**settings)


def default_of(loss: str, setting: str) -> object:
    """Return the default of a setting of a loss or term, as its class has it."""
    from nnunet_nacl import losses

    class_name = {**LOSSES, **TERMS}[loss].class_name
    return inspect.signature(getattr(losses, class_name)).parameters[setting].default
