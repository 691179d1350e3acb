"""A fit as a JSON file."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nnunet_nacl import __version__
from nnunet_nacl.files import whole_file
from nnunet_nacl.posthoc._held_out import Change
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import Calibrator, read_calibrator
from nnunet_nacl.posthoc._model import Model
from nnunet_nacl.posthoc._sample import CHOSEN_BY_LABEL


@dataclass(frozen=True)
class Skipped:
    """A case that could not be used, and why."""

    case: str
    reason: str


@dataclass(frozen=True)
class Fit:
    """What :func:`fit` found.

    Attributes:
        calibrator: the method and its parameters.
        model: what it was fitted to, and may be applied to.
        cases: the names of the cases that it was fitted to.
        settings: folders and options.
        sample: how many voxels were drawn, of how many, and how many of them have a p of exactly 0.
        fitted: NLL and ECE of the sample before and after: of the voxels that it was fitted to.
        held_out: the same of cases that were held out, by part; see docs/posthoc.md.
        skipped: cases that could not be used.
        versions: the package's version that made it.
        bias: of a fit to voxels chosen by their label, what one to near is: its ``parameters``, and the ``NLL`` over
            near before, of ``this`` and of the one to ``near``; or the ``error`` for which there is none.
        file: that it was written to, if it was.
    """

    calibrator: Calibrator | LocalTemperature
    model: Model
    cases: list[str]
    settings: dict[str, Any]
    sample: dict[str, int]
    fitted: Change
    held_out: dict[str, Any]
    skipped: list[Skipped]
    versions: dict[str, str]
    bias: dict[str, Any] | None = None
    file: Path | None = field(default=None, compare=False)

    @property
    def improves(self) -> bool:
        """Whether the NLL falls on cases held out; False if there were none."""
        return "after" in self.held_out and self.held_out["after"]["NLL"] < self.held_out["before"]["NLL"]

    def to_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "method": self.calibrator.method,
            **self.calibrator.parameters(),
            "model": self.model.to_json(),
            "cases": {"sha256": cases_hash(self.cases), "names": self.cases},
            "settings": self.settings,
            "sample": self.sample,
            "fitted": self.fitted,
            "held_out": self.held_out,
            "bias": self.bias,
            "skipped": [{"case": entry.case, "reason": entry.reason} for entry in self.skipped],
            "versions": self.versions,
        }

    def write(self, file: Path) -> None:
        """Write it, whole or not at all."""
        with whole_file(file) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, file: str | Path) -> "Fit":
        """Read what :meth:`write` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or something else.
        """
        file = Path(file)
        if not file.is_file():
            raise FileNotFoundError(f"{file} does not exist.")
        try:
            content = json.loads(file.read_text())
            model = Model(**{one.name: content["model"][one.name] for one in fields(Model)})
            regions = model.regions_class_order is not None
            calibrator = read_calibrator(content, channels=model.channels, regions=regions)
            names = content["cases"]["names"]
            fit = cls(
                calibrator,
                model,
                names,
                content["settings"],
                content["sample"],
                content["fitted"],
                content["held_out"],
                [Skipped(**entry) for entry in content["skipped"]],
                content["versions"],
                content.get("bias"),
            )
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file} is no fit of nnunet_nacl: {error}") from error
        except KeyError as error:
            raise ValueError(f"{file} is no fit of nnunet_nacl: it has no {error}.") from error
        if cases_hash(fit.cases) != content["cases"]["sha256"]:
            raise ValueError(f"{file}: the list of cases is not the one that it was written with.")
        return fit

    def summary(self) -> str:
        """A few lines for people."""
        lines = [_describe(self.calibrator)]
        settings, sample = self.settings, self.sample
        lines.append(
            f"Fitted to {sample['voxels']:,} of {sample['available']:,} voxels ({settings['voxels']}) of "
            f"{len(self.cases)} cases; {sample['zeros']:,} of them have a p of 0, which counts as 1.2e-38."
        )
        if settings["voxels"] in CHOSEN_BY_LABEL:
            lines += _describe_bias(self.calibrator, settings["voxels"], self.bias)
        for entry in self.held_out["parts"]:
            if "error" in entry:
                lines.append(f"  {entry['part']}: {entry['error']}")
            else:
                lines.append(f"  {entry['part']}, {len(entry['cases'])} cases held out: {_change(entry)}")
        if "after" not in self.held_out:
            lines.append("No figures on cases held out: it is not known whether this improves anything.")
        elif self.improves:
            lines.append(f"On cases held out: {_change(self.held_out)}")
        else:
            lines.append(f"This does NOT improve the NLL on cases held out: {_change(self.held_out)}")
        lines += [f"Not used: {entry.case}: {entry.reason}" for entry in self.skipped]
        return "\n".join(lines)


def versions() -> dict[str, str]:
    """Of this package."""
    return {"nnunet_nacl": __version__}


def cases_hash(names: Sequence[str]) -> str:
    """SHA-256 of the sorted names."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def _describe(calibrator: Calibrator | LocalTemperature) -> str:
    shown = []
    for name, value in calibrator.parameters().items():
        if isinstance(value, float):
            shown.append(f"{name} {value:.4f}")
        elif isinstance(value, int):
            shown.append(f"{name} {value}")
        elif value is None or isinstance(value, str):
            continue  # the weights of a network
        elif value and isinstance(value[0], list):
            shown.append(f"{sum(map(len, value))} {name}")
        else:
            shown.append(f"{name} {', '.join(f'{one:.4g}' for one in value) or 'none'}")
    return f"{calibrator.method}: " + "; ".join(shown)


def _describe_bias(calibrator: Calibrator | LocalTemperature, voxels: str, bias: dict[str, Any] | None) -> list[str]:
    """What is wrong with voxels chosen by their label, and how much it is here."""
    fitted = f"Fitted to the {voxels}: T = {_temperatures(calibrator.parameters())}."
    warning = "Voxels chosen by their label favour under-confident models"
    if bias is None:  # of a version that did not look
        return [f"{fitted} {warning}."]
    if "error" in bias:
        return [f"{fitted} {warning}; near cannot be fitted to: {bias['error']}"]
    before, this, honest = (bias["NLL"][when] for when in ("before", "this", "near"))
    return [
        f"{fitted} {warning}; over near T = {_temperatures(bias['parameters'])}.",
        f"NLL over near: {before:.4f} before, {this:.4f} with this fit, {honest:.4f} with one fitted to near.",
    ]


def _temperatures(parameters: dict[str, Any]) -> str:
    """T, or those of the channels, which each method has that can be fitted to such voxels."""
    found = parameters["temperatures"] if "temperatures" in parameters else [parameters["temperature"]]
    return ", ".join(f"{temperature:.2f}" for temperature in found)


def _change(entry: dict[str, Any]) -> str:
    before, after = entry["before"], entry["after"]
    return ", ".join(f"{metric} {before[metric]:.4f} → {after[metric]:.4f}" for metric in before)
