"""All methods fitted to a sample, judged by cases that were held out, and the best of them chosen."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.calibrate._judge import Score, judge
from nnunet_nacl.calibrate._link import Floats, Link
from nnunet_nacl.calibrate._methods import METHODS, Head, Layer, Method, Temperature, Vector
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.nnunet import Model

NUM_PARTS = 5
AS_TRAINED = "as trained"


@dataclass(frozen=True)
class Fit:
    """A calibration, what it was chosen from, and what it may be applied to.

    Attributes:
        method: with its parameters.
        model: what it was fitted to.
        cases: the names of those that it was fitted to.
        tried: method -> its scores on held-out cases; ``as trained`` is without any.
        settings: folders and options.
        skipped: cases that could not be used.
    """

    method: Method
    model: Model
    cases: list[str]
    tried: dict[str, Score]
    settings: dict[str, Any]
    skipped: list[Skipped]

    @property
    def improves(self) -> bool:
        """Whether the NLL falls on held-out cases."""
        return self.tried[self.method.method].NLL < self.tried[AS_TRAINED].NLL

    def parameters(self) -> dict[str, Any]:
        """The method's, as the file holds them."""
        return {name: value for name, value in vars(self.method).items() if name != "link"}

    def write(self, file: Path, *, applied_to: Path | None = None) -> None:
        """Write it as JSON; beside calibrated predictions, with the folder that they were made of."""
        content = {"method": self.method.method, "parameters": self.parameters(), "model": asdict(self.model),
                   "cases": self.cases, "tried": {name: asdict(score) for name, score in self.tried.items()},
                   "settings": self.settings, "skipped": [asdict(entry) for entry in self.skipped],
                   "version": __version__}  # fmt: skip
        write_json(file, content | ({} if applied_to is None else {"applied": {"pred_folder": str(applied_to)}}))

    @classmethod
    def read(cls, file: Path) -> "Fit":
        """Read what :meth:`write` wrote.

        Raises:
            OSError: there is no such file, or it cannot be read.
            ValueError: it is something else.
        """
        stored = read_json(file, _Stored)
        link = Link.SOFTMAX if stored.model.regions_class_order is None else Link.SIGMOID
        parameters = {**stored.parameters, "link": link} if stored.method == Vector.method else stored.parameters
        try:
            method = METHODS[stored.method](**parameters)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{file}: parameters of {stored.method} that cannot be used: {error}") from error
        return cls(method, stored.model, stored.cases, stored.tried, stored.settings, stored.skipped)

    def table(self) -> str:
        """The scores on held-out cases, a line each method; the chosen one is marked."""
        heads = ("NLL per foreground voxel", "ECE near", "confidence − accuracy", "Dice", "Dice decoded")
        lines = ["on held-out cases   " + "  ".join(heads)]
        for name, score in self.tried.items():
            values = (score.NLL, score.ECE, score.over_confidence, score.Dice, score.Dice_decoded)
            shown = (f"{value:{'+' if head.startswith('conf') else ''}.3f}".rjust(len(head))
                     for head, value in zip(heads, values, strict=True))  # fmt: skip
            lines.append(f"{('→ ' if name == self.method.method else '  ') + name:<20}" + "  ".join(shown))
        return "\n".join(lines)


@dataclass(frozen=True)
class _Stored:
    method: str
    parameters: dict[str, Any]
    model: Model
    cases: list[str]
    tried: dict[str, Score]
    settings: dict[str, Any]
    skipped: list[Skipped]


@dataclass(frozen=True)
class Trials:
    """Methods fitted to a sample, and what they do to its held-out cases.

    Attributes:
        fitted: method -> fitted to all cases.
        of_parts: method -> fitted to the cases outside each part.
        parts: the cases of each part.
        scores: method -> scores on held-out cases; ``as trained`` first.
    """

    fitted: dict[str, Method]
    of_parts: dict[str, list[Method]]
    parts: list[list[str]]
    scores: dict[str, Score]

    def best(self, wanted: str | None = None) -> Method:
        """The method of the lowest NLL on held-out cases, or the wanted one."""
        return self.fitted[wanted or min(self.fitted, key=lambda name: self.scores[name].NLL)]

    def for_case(self, method: str, case: str) -> Method:
        """The fit that has not seen a case."""
        return next(fit for fit, cases in zip(self.of_parts[method], self.parts, strict=True) if case in cases)


def try_methods(sample: Sample, layer: Layer | None = None) -> Trials:
    """Fit each method to all cases, and five times with a fifth of the cases held out.

    The strength of ``head`` is the one of the lowest NLL on held-out cases, so that its scores are a little too good.

    Args:
        sample: of several cases.
        layer: the last layer as trained, for ``head``, which also needs the features of the sample.
    """
    parts = list(split_cases(sample.names).values())
    part_of = {name: number for number, names in enumerate(parts) for name in names}
    part = np.array([part_of[name] for name in sample.names])[sample.case]
    fitted = _fit_all(sample, layer)
    held_out: dict[str, Floats] = {name: np.empty_like(sample.logits) for name in fitted}
    of_parts: dict[str, list[Method]] = {name: [] for name in fitted}
    for number in tqdm(range(len(parts)), desc="judging on held-out cases", unit="part", leave=False):
        outside = sample.take(part == number)
        for name, method in _fit_all(sample.take(part != number), layer).items():
            held_out[name][:, part == number] = method.logits(outside.logits, outside.features)
            of_parts[name].append(method)
    scores = {name: judge(sample, logits) for name, logits in held_out.items()}
    heads = [name for name in fitted if name.startswith(Head.method)]
    kept = {name: name for name in fitted if name not in heads}
    if heads:
        kept[Head.method] = min(heads, key=lambda name: scores[name].NLL)
    return Trials(
        {name: fitted[key] for name, key in kept.items()},
        {name: of_parts[key] for name, key in kept.items()},
        parts,
        {AS_TRAINED: judge(sample, sample.logits), **{name: scores[key] for name, key in kept.items()}},
    )


def split_cases(cases: Sequence[str], seed: int = 0) -> dict[str, list[str]]:
    """Five parts of nearly one size, or as many as there are cases; drawn by their names."""
    drawn = sorted(cases, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    parts = min(NUM_PARTS, len(drawn))
    return {f"part {number + 1} of {parts}": drawn[number::parts] for number in range(parts)}


def _fit_all(sample: Sample, layer: Layer | None) -> dict[str, Method]:
    vector = Vector.fit(sample)
    heads = [] if layer is None else Head.fit(sample, vector, layer)
    return {
        Temperature.method: Temperature.fit(sample),
        Vector.method: vector,
        **{f"{Head.method} {head.strength:g}": head for head in heads},
    }
