"""All methods fitted to a sample, judged by cases that were held out, and the best of them chosen."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.calibrate._activation import Activation
from nnunet_nacl.calibrate._judge import Score, judge
from nnunet_nacl.calibrate._methods import METHODS, Head, Layer, Method, Temperature, Vector
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.nnunet import Model

AS_TRAINED = "as trained"


@dataclass(frozen=True)
class Fit:
    """A calibration, what it was chosen from, and what it may be applied to: the content of its JSON file.

    ``method`` is ``temperature``, ``vector`` or ``head``, ``cases`` are the names of those that it was fitted to, and
    ``tried`` has each method's scores on held-out cases; ``as trained`` is without any.
    """

    method: str
    parameters: dict[str, Any]
    model: Model
    cases: list[str]
    tried: dict[str, Score]
    settings: dict[str, Any]
    skipped: list[Skipped]
    version: str = __version__

    @property
    def improves(self) -> bool:
        """Whether the NLL falls on held-out cases."""
        return self.tried[self.method].NLL < self.tried[AS_TRAINED].NLL

    def calibrator(self) -> Method:
        """The method with its parameters."""
        if self.method == Vector.method:
            activation = Activation.SOFTMAX if self.model.regions_class_order is None else Activation.SIGMOID
            return Vector(**self.parameters, activation=activation)
        return METHODS[self.method](**self.parameters)

    def write(self, file: Path, *, applied_to: Path | None = None) -> None:
        """Write it as JSON; beside calibrated predictions, with the folder that they were made of."""
        applied = {} if applied_to is None else {"applied": {"pred_folder": str(applied_to)}}
        write_json(file, asdict(self) | applied)

    @classmethod
    def read(cls, file: Path) -> "Fit":
        """Read what :meth:`write` wrote; raises a ValueError if it is something else."""
        return read_json(file, cls)

    def table(self) -> str:
        """The scores on held-out cases, a line each method; the chosen one is marked."""
        import pandas as pd

        names = {"NLL": "NLL per foreground voxel", "ECE": "ECE near", "over_confidence": "confidence − accuracy",
                 "Dice": "Dice", "Dice_decoded": "Dice decoded"}  # fmt: skip
        rows = {("→ " if name == self.method else "") + name: asdict(score) for name, score in self.tried.items()}
        frame = pd.DataFrame.from_dict(rows, orient="index")[list(names)].rename(columns=names)
        return str(frame.rename_axis(columns="on held-out cases").to_string(float_format="{:.3f}".format))


@dataclass(frozen=True)
class Trials:
    """Methods by name, ``fitted`` to all cases, ``of_parts`` to those outside each part, and held-out scores."""

    fitted: dict[str, Method]
    of_parts: dict[str, list[Method]]
    parts: list[list[str]]
    scores: dict[str, Score]

    def choose(
        self, wanted: str | None, model: Model, settings: dict[str, Any], skipped: Sequence[Skipped] = ()
    ) -> Fit:
        """The method of the lowest NLL on held-out cases, or the wanted one, as what is written."""
        method = wanted or min(self.fitted, key=lambda name: self.scores[name].NLL)
        parameters = {name: value for name, value in vars(self.fitted[method]).items() if name != "activation"}
        cases = sorted(case for part in self.parts for case in part)
        return Fit(method, parameters, model, cases, self.scores, settings, list(skipped))

    def for_case(self, method: str, case: str) -> Method:
        """The fit that has not seen a case."""
        return next(fit for fit, cases in zip(self.of_parts[method], self.parts, strict=True) if case in cases)


def try_methods(sample: Sample, layer: Layer | None = None) -> Trials:
    """Fit each method to all cases, and five times with a fifth of the cases held out.

    The strength of ``head`` is the one of the lowest NLL on held-out cases, so that its scores are a little too good.
    It needs the last ``layer`` as trained, and the sample's features.
    """
    parts = split_cases(sample.names)
    part_of = {name: number for number, names in enumerate(parts) for name in names}
    part = np.array([part_of[name] for name in sample.names])[sample.case]
    fitted = _fit_all(sample, layer)
    held_out = [np.empty_like(sample.logits) for _ in fitted]
    of_parts = []
    for number in tqdm(range(len(parts)), desc="judging on held-out cases", unit="part", leave=False):
        outside = sample.take(part == number)
        of_parts.append(_fit_all(sample.take(part != number), layer))
        for logits, method in zip(held_out, of_parts[-1], strict=True):
            logits[:, part == number] = method.logits(outside.logits, outside.features)
    scores = [judge(sample, logits) for logits in held_out]
    heads = range(2, len(fitted))
    chosen = [0, 1, *([min(heads, key=lambda index: scores[index].NLL)] if heads else [])]
    kept = {fitted[index].method: index for index in chosen}
    return Trials(
        {name: fitted[index] for name, index in kept.items()},
        {name: [methods[index] for methods in of_parts] for name, index in kept.items()},
        parts,
        {AS_TRAINED: judge(sample, sample.logits), **{name: scores[index] for name, index in kept.items()}},
    )


def split_cases(cases: Sequence[str]) -> list[list[str]]:
    """Five parts of nearly one size, or as many as there are cases; drawn by their names."""
    drawn = sorted(cases, key=lambda name: hashlib.sha256(f"0 {name}".encode()).digest())
    parts = min(5, len(drawn))
    return [drawn[number::parts] for number in range(parts)]


def _fit_all(sample: Sample, layer: Layer | None) -> list[Method]:
    vector = Vector.fit(sample)
    return [Temperature.fit(sample), vector, *([] if layer is None else Head.fit(sample, vector, layer))]
