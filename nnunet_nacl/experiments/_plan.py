"""From a study to the runs that it needs: a pure function."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnunet_nacl.experiments._study import StudyTable
from nnunet_nacl.nnunet import Split
from nnunet_nacl.trainers import parse_name


@dataclass(frozen=True)
class Run:
    """One training and what follows it.

    Attributes:
        method: its name in the report.
        trainer: nnU-Net's trainer name, with the budget's suffixes.
        fold: nnU-Net's fold.
        of_fold: the fold whose validation cases it has; another one if it is trained with a share of that fold's cases.
    """

    method: str
    trainer: str
    fold: int
    of_fold: int

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.trainer}_fold_{self.fold}"

    def __str__(self) -> str:
        return f"{self.method}, fold {self.of_fold}"


@dataclass(frozen=True)
class Budget:
    """How long each method is trained; None leaves it to nnU-Net."""

    epochs: int | None = None
    iterations: int | None = None
    paper_schedule: bool = False

    def trainer(self, name: str) -> str:
        """The trainer's name with the suffixes for this budget.

        Raises:
            ValueError: the trainer is not one of ours, and so knows no suffixes, or has them already.
        """
        suffixes = ["paperSchedule"] if self.paper_schedule else []
        suffixes += [] if self.epochs is None else [f"{self.epochs}epochs"]
        suffixes += [] if self.iterations is None else [f"{self.iterations}iterations"]
        full = "_".join([name, *suffixes])
        if suffixes and parse_name(full) is None:
            raise ValueError(f"{name} is not a trainer of nnunet_nacl: its epochs and schedule cannot be set.")
        return full


def plan_runs(
    study: StudyTable, folds: Sequence[int], splits: Sequence[Split], budget: Budget
) -> tuple[list[Run], list[Split]]:
    """The runs of a study, fold by fold, each method once.

    Args:
        study: its methods.
        folds: of nnU-Net.
        splits: of the data set.
        budget: the same for all methods.

    Returns:
        The runs, and the splits with those appended that train on a share of a fold's cases. The cases of a smaller
        share are among those of a larger one, and are the same for every method.

    Raises:
        ValueError: there is no such fold, it has no validation cases, or shares some with another one.
    """
    found = list(splits)
    runs = []
    validated: dict[str, int] = {}
    for fold in dict.fromkeys(folds):
        if not 0 <= fold < len(splits):
            raise ValueError(f"There is no fold {fold}; the data set's splits have the folds 0 to {len(splits) - 1}.")
        if not splits[fold]["val"]:
            raise ValueError(f"Fold {fold} has no validation cases.")
        for case in splits[fold]["val"]:
            if validated.setdefault(case, fold) != fold:
                raise ValueError(f"Folds {validated[case]} and {fold} both validate on {case}; take one of them.")
        for row in study.rows:
            split = _subset(splits[fold], row.share, seed=fold)
            if split not in found:
                found.append(split)
            number = fold if split == splits[fold] else found.index(split)
            runs.append(Run(row.name, budget.trainer(row.trainer), number, fold))
    return runs, found


def _subset(split: Split, share: float, *, seed: int) -> Split:
    if share == 1:
        return split
    # By hash, as random.shuffle need not be the same in every Python.
    cases = sorted(split["train"], key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())
    return {"train": sorted(cases[: max(1, math.ceil(share * len(cases)))]), "val": split["val"]}
