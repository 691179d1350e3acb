"""Trainer names and what they mean: ``nnUNetTrainer[Dice]LOSS[_suffix ...]`` <-> :class:`Recipe`.

Settings ride in the name, as in nnU-Net's own trainer variants, so that each has a results folder of its own and
prediction finds it again from the checkpoint. This module imports neither torch nor nnU-Net.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "nnUNetTrainer"
PAPER_EPOCHS = 100
THREADS = "nnUNet_nacl_threads"
"""The environment variable that sets how many threads a training or prediction on the CPU uses (default: all cores)."""


@dataclass(frozen=True)
class Recipe:
    """What one of our trainers trains with.

    Attributes:
        loss: short name of the loss, a key of :data:`LOSSES`.
        dice: add nnU-Net's own Dice loss.
        settings: keyword settings of the loss class that differ from its defaults.
        num_epochs: number of epochs, or None for the trainer's own.
        num_iterations_per_epoch: training steps per epoch, or None for the trainer's own.
        paper_schedule: Adam with 1e-3 for the first half of the epochs and 1e-4 for the second, 100 epochs unless
            ``num_epochs`` says otherwise.
    """

    loss: str
    dice: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    num_epochs: int | None = None
    num_iterations_per_epoch: int | None = None
    paper_schedule: bool = False

    def __post_init__(self) -> None:
        """Raise a ValueError unless ``loss`` is one of ours."""
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}; got {self.loss!r}.")


@dataclass(frozen=True)
class Setting:
    """One loss setting and the suffixes that set it: a prefix and a number, or one of a few words.

    Attributes:
        name: the keyword of the loss class.
        default: its default there.
        prefix: what stands before the number (``weight`` in ``weight0p2``); empty for words.
        words: suffix -> value; empty for numbers.
        whole: the number must be whole.
        paper: values in the paper, for the reader.
    """

    name: str
    default: str
    prefix: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    paper: str = ""

    def shown(self) -> str:
        return " | ".join(self.words) if self.words else f"{self.prefix}<number>"

    def read(self, suffix: str) -> object | None:
        """The value that ``suffix`` gives this setting, or None if it is another's."""
        if self.words:
            return self.words.get(suffix)
        number = re.fullmatch(re.escape(self.prefix) + (r"(\d+)" if self.whole else r"(\d+(?:p\d+)?)"), suffix)
        if number is None:
            return None
        return int(number[1]) if self.whole else float(number[1].replace("p", "."))


@dataclass(frozen=True)
class Loss:
    """A loss by its short name: the class in :mod:`nnunet_nacl.losses` and the settings a trainer name can carry."""

    class_name: str
    summary: str
    settings: tuple[Setting, ...] = ()


_CLASS_REDUCTIONS = {"classMean": "mean", "classSum": "sum"}
_KERNEL_SIZE = Setting("kernel_size", "3", prefix="kernel", whole=True, paper="3")

LOSSES: Mapping[str, Loss] = {
    "NACL": Loss(
        "NACLLoss",
        "CE + weight · |class shares of the neighborhood - logits|",
        (
            Setting("weight", "0.1", prefix="weight", paper="0.1, 0.2, 0.3"),
            Setting(
                "prior",
                "mean",
                words={"mean": "mean", "gaussian": "gaussian", "plainGaussian": "plain_gaussian"},
                paper="mean, gaussian",
            ),
            Setting("sigma", "1", prefix="sigma", paper="1, 2, 3"),
            _KERNEL_SIZE,
            Setting("penalty", "l1", words={"l1": "l1", "l2": "l2"}, paper="l1, l2"),
            Setting("constraint", "logits", words={"logits": "logits", "softmax": "softmax"}, paper="logits, softmax"),
            Setting("class_reduction", "mean", words=_CLASS_REDUCTIONS, paper="mean"),
            Setting(
                "border",
                "valid",
                words={"borderValid": "valid", "borderBackground": "background", "borderZero": "zero"},
                paper="background",
            ),
        ),
    ),
    "CE": Loss("CrossEntropyLoss", "cross-entropy"),
    "FL": Loss("FocalLoss", "focal loss", (Setting("gamma", "3", prefix="gamma", paper="1, 2, 3"),)),
    "ECP": Loss(
        "ECPLoss",
        "CE - alpha · entropy of the prediction",
        (
            Setting("alpha", "0.1", prefix="alpha", paper="0.1, 0.2, 0.3"),
            Setting("class_reduction", "sum", words=_CLASS_REDUCTIONS, paper="mean"),
        ),
    ),
    "LS": Loss(
        "LabelSmoothingLoss", "label smoothing", (Setting("alpha", "0.1", prefix="alpha", paper="0.1, 0.2, 0.3"),)
    ),
    "SVLS": Loss(
        "SVLSLoss",
        "spatially varying label smoothing",
        (Setting("sigma", "2", prefix="sigma", paper="0.5, 1, 2"), _KERNEL_SIZE),
    ),
    "MbLS": Loss(
        "MbLSLoss",
        "margin-based label smoothing (labels only, no regions)",
        (
            Setting("margin", "5", prefix="margin", paper="3, 5, 10"),
            Setting("weight", "0.1", prefix="weight", paper="0.1"),
        ),
    ),
}

SCHEDULE_SUFFIXES: Mapping[str, str] = {
    "<N>epochs": "train N epochs (nnU-Net: 1000)",
    "<N>iterations": "N training steps an epoch (nnU-Net: 250)",
    "paperSchedule": f"Adam, 1e-3 then 1e-4 from half time, {PAPER_EPOCHS} epochs unless <N>epochs is given",
}

_NAME = re.compile(rf"{PREFIX}(?P<dice>Dice)?(?P<loss>{'|'.join(LOSSES)})(?:_(?P<suffixes>.*))?")


def trainer_names() -> list[str]:
    """The names without suffixes: each loss alone, then each with nnU-Net's Dice."""
    return [f"{PREFIX}{dice}{loss}" for dice in ("", "Dice") for loss in LOSSES]


def parse_name(name: str) -> Recipe | None:
    """The recipe that a trainer name stands for.

    Args:
        name: for example ``nnUNetTrainerNACL_weight0p2_gaussian_sigma2_l2_100epochs``; suffixes in any order.

    Returns:
        The recipe, or None if the name is not one of ours.

    Raises:
        ValueError: one of our names with an unknown, repeated or contradictory suffix; lists the valid ones.

    >>> parse_name("nnUNetTrainerDiceNACL_weight0p2_10epochs")
    Recipe(loss='NACL', dice=True, settings={'weight': 0.2}, num_epochs=10, num_iterations_per_epoch=None, \
paper_schedule=False)
    >>> parse_name("nnUNetTrainerCELoss") is None
    True
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    loss = LOSSES[match["loss"]]
    found: dict[str, tuple[str, object]] = {}  # what a suffix sets -> (the suffix, the value)
    for suffix in [] if match["suffixes"] is None else match["suffixes"].split("_"):
        meaning = _read_suffix(suffix, loss)
        if meaning is None:
            raise _error(name, match["loss"], f"does not know the suffix '_{suffix}'")
        what, value = meaning
        if what in found:
            raise _error(name, match["loss"], f"sets {what} twice, with '_{found[what][0]}' and '_{suffix}'")
        found[what] = (suffix, value)
    values = {what: value for what, (_, value) in found.items()}
    schedule = {what: values.pop(what) for what in _SCHEDULE if what in values}
    if match["loss"] == "NACL" and "sigma" in values and values.get("prior", "mean") == "mean":
        raise _error(name, "NACL", f"has '_{found['sigma'][0]}', which needs '_gaussian' or '_plainGaussian'")
    return Recipe(match["loss"], dice=match["dice"] is not None, settings=values, **schedule)  # type: ignore[arg-type]


_SCHEDULE = ("num_epochs", "num_iterations_per_epoch", "paper_schedule")


def _read_suffix(suffix: str, loss: Loss) -> tuple[str, object] | None:
    if suffix == "paperSchedule":
        return "paper_schedule", True
    for what, unit in (("num_epochs", "epochs"), ("num_iterations_per_epoch", "iterations")):
        count = re.fullmatch(rf"([1-9]\d*){unit}", suffix)
        if count is not None:
            return what, int(count[1])
    for setting in loss.settings:
        value = setting.read(suffix)
        if value is not None:
            return setting.name, value
    return None


def _error(name: str, loss: str, problem: str) -> ValueError:
    valid = [setting.shown() for setting in LOSSES[loss].settings] + list(SCHEDULE_SUFFIXES)
    return ValueError(
        f"Trainer name {name} {problem}. Valid suffixes for {loss}, each after an underscore, in any order, with p "
        f"for the decimal point: {'; '.join(valid)}."
    )
