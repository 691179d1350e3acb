"""The result of a fit, the model that it is for, and its JSON file."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from nnunet_nacl import __version__
from nnunet_nacl.files import Kind, check_input, whole_file
from nnunet_nacl.nnunet import Model
from nnunet_nacl.posthoc._calibrator import Calibrator
from nnunet_nacl.posthoc._link import Link
from nnunet_nacl.posthoc._methods import method_of
from nnunet_nacl.posthoc._voxels import CHOSEN_BY_LABEL, VoxelSet

APPLIED_NAME = "posthoc_applied.json"
"""In a calibrated folder: the fit that it was calibrated with."""
FIT = Kind(
    "a fit",
    re.compile(rb'\A\{\s*"method":.*"versions":\s*\{\s*"nnunet_nacl":\s*"[^"]*"\s*\}\s*\}\s*\Z', re.DOTALL),
)
"""A file that :meth:`Fit.write` has written."""


@dataclass(frozen=True)
class Skipped:
    """A case that could not be used, and why."""

    case: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """The arguments of :func:`fit`; None for those that earlier versions did not write."""

    gt_folder: str
    pred_folder: str | list[str]
    images: str | None = None
    voxels: VoxelSet
    margin_mm: float | None = None
    num_voxels: int
    seed: int


@dataclass(frozen=True)
class SampleSize:
    """How many voxels a fit rests on.

    Attributes:
        voxels: drawn.
        available: in the set that they were drawn from.
        zeros: how many of those drawn have a p of exactly 0.
    """

    voxels: int
    available: int
    zeros: int


@dataclass(frozen=True)
class Metrics:
    """NLL and ECE of voxels: 15 bins, p of at least 1.19e-7 in the NLL; means over regions."""

    NLL: float
    ECE: float


@dataclass(frozen=True)
class Change:
    """What calibration does to voxels."""

    before: Metrics
    after: Metrics

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "Change":
        return cls(_read(Metrics, content["before"]), _read(Metrics, content["after"]))

    def __str__(self) -> str:
        before, after = self.before, self.after
        return f"NLL {before.NLL:.4f} → {after.NLL:.4f}, ECE {before.ECE:.4f} → {after.ECE:.4f}"


@dataclass(frozen=True)
class HeldOutPart:
    """A part of the cases, calibrated by a fit to the other parts.

    Attributes:
        part: its name, such as ``fold 0``.
        cases: in it.
        voxels: drawn in it.
        change: of these voxels; None if there is no such fit.
        error: then, why not.
    """

    part: str
    cases: list[str]
    voxels: int
    change: Change | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        shown = {"error": self.error} if self.change is None else asdict(self.change)
        return {"part": self.part, "cases": self.cases, "voxels": self.voxels, **shown}

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "HeldOutPart":
        error = content.get("error")
        change = Change.of_json(content) if error is None else None
        return cls(content["part"], content["cases"], content["voxels"], change, error)

    def __str__(self) -> str:
        if self.change is None:
            return f"{self.part}: {self.error}"
        return f"{self.part}, {len(self.cases)} cases held out: {self.change}"


@dataclass(frozen=True)
class HeldOut:
    """What calibration does to cases that were held out from the fit.

    Attributes:
        parts: each calibrated by a fit to the others.
        change: of the voxels of all parts together; None if there is none.
    """

    parts: list[HeldOutPart]
    change: Change | None

    def to_json(self) -> dict[str, Any]:
        pooled = {} if self.change is None else asdict(self.change)
        return {"parts": [part.to_json() for part in self.parts], **pooled}

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "HeldOut":
        parts = [HeldOutPart.of_json(part) for part in content["parts"]]
        return cls(parts, Change.of_json(content) if "after" in content else None)


@dataclass(frozen=True)
class Bias:
    """A fit to voxels chosen by their label, compared with one to the voxels near the predictions.

    Attributes:
        near: what was fitted to near; None if nothing could be.
        nll_before: NLL over near before calibration.
        nll_this: the same with this fit.
        nll_near: the same with the one to near.
        error: why there is none.
    """

    near: Calibrator | None = None
    nll_before: float = math.nan
    nll_this: float = math.nan
    nll_near: float = math.nan
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.near is None:
            return {"error": self.error}
        nll = {"before": self.nll_before, "this": self.nll_this, "near": self.nll_near}
        return {"parameters": self.near.parameters(), "NLL": nll}

    @classmethod
    def of_json(cls, content: dict[str, Any], model: Model, kind: type[Calibrator]) -> "Bias":
        if "error" in content:
            return cls(error=content["error"])
        nll = content["NLL"]
        near = kind.of_parameters(content["parameters"], channels=model.channels, link=link_of_model(model))
        return cls(near, nll["before"], nll["this"], nll["near"])


@dataclass(frozen=True)
class Fit:
    """The result of :func:`fit`.

    Attributes:
        calibrator: the method and its parameters.
        model: what it was fitted to, and may be applied to.
        cases: the names of the cases that it was fitted to.
        settings: folders and options.
        sample: how many voxels it rests on.
        fitted: the change of the voxels that it was fitted to.
        held_out: the change of held-out cases; see docs/posthoc.md.
        skipped: cases that could not be used.
        version: of the package that made it.
        bias: of a fit to voxels chosen by their label.
        file: that it was written to, if it was.
    """

    calibrator: Calibrator
    model: Model
    cases: list[str]
    settings: FitSettings
    sample: SampleSize
    fitted: Change
    held_out: HeldOut
    skipped: list[Skipped]
    version: str = __version__
    bias: Bias | None = None
    file: Path | None = field(default=None, compare=False)

    @property
    def improves(self) -> bool:
        """Whether the NLL falls on held-out cases; False if there were none."""
        change = self.held_out.change
        return change is not None and change.after.NLL < change.before.NLL

    def to_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "method": self.calibrator.method,
            **self.calibrator.parameters(),
            "model": asdict(self.model),
            "cases": {"sha256": cases_hash(self.cases), "names": self.cases},
            "settings": asdict(self.settings),
            "sample": asdict(self.sample),
            "fitted": asdict(self.fitted),
            "held_out": self.held_out.to_json(),
            "bias": None if self.bias is None else self.bias.to_json(),
            "skipped": [asdict(entry) for entry in self.skipped],
            "versions": {"nnunet_nacl": self.version},
        }

    def write(self, file: Path, *, overwrite: bool = False) -> None:
        """Write it, whole or not at all.

        Raises:
            OSError: it cannot be written, or there is a file that is no fit, which ``overwrite`` replaces.
        """
        with whole_file(file, FIT, overwrite=overwrite) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, file: str | Path) -> "Fit":
        """Read what :meth:`write` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or something else.
        """
        file = Path(file)
        check_input(file)
        try:
            content = json.loads(file.read_text())
            fit = cls.of_json(content)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is no fit of nnunet_nacl: {error}") from error
        except KeyError as error:
            raise ValueError(f"{file} is no fit of nnunet_nacl: it has no {error}.") from error
        if cases_hash(fit.cases) != content["cases"]["sha256"]:
            raise ValueError(f"{file}: the list of cases is not the one that it was written with.")
        return fit

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "Fit":
        """The fit that :meth:`to_json` made this of, or that an earlier version did.

        Raises:
            KeyError: something is missing.
            TypeError: something has another type.
            ValueError: something has a value that it cannot have.
        """
        model = _read(Model, content["model"])
        kind = method_of(content.get("method", ""))
        bias = content.get("bias")
        return cls(
            kind.of_parameters(content, channels=model.channels, link=link_of_model(model)),
            model,
            content["cases"]["names"],
            _read(FitSettings, content["settings"]),
            _read(SampleSize, content["sample"]),
            Change.of_json(content["fitted"]),
            HeldOut.of_json(content["held_out"]),
            [_read(Skipped, entry) for entry in content["skipped"]],
            content["versions"]["nnunet_nacl"],
            None if bias is None else Bias.of_json(bias, model, kind),
        )

    def summary(self) -> str:
        """A few lines for people."""
        sample, voxels, change = self.sample, self.settings.voxels, self.held_out.change
        lines = [
            f"{self.calibrator.method}: {self.calibrator.describe()}",
            (
                f"Fitted to {sample.voxels:,} of {sample.available:,} voxels ({voxels}) of {len(self.cases)} cases; "
                f"{sample.zeros:,} of them have a p of 0, which counts as 1.2e-38."
            ),
        ]
        if voxels in CHOSEN_BY_LABEL:
            lines += self._describe_bias()
        lines += [f"  {part}" for part in self.held_out.parts]
        if change is None:
            lines.append("No values for held-out cases: it is not known whether this improves anything.")
        elif self.improves:
            lines.append(f"On held-out cases: {change}")
        else:
            lines.append(f"This does NOT improve the NLL on held-out cases: {change}")
        lines += [f"Not used: {entry.case}: {entry.reason}" for entry in self.skipped]
        return "\n".join(lines)

    def _describe_bias(self) -> list[str]:
        """What is wrong with voxels chosen by their label, and how much it is here."""
        fitted = f"Fitted to the {self.settings.voxels}: {self.calibrator.describe_briefly()}."
        warning = "Voxels chosen by their label favour under-confident models"
        bias = self.bias
        if bias is None:  # of a version that did not look
            return [f"{fitted} {warning}."]
        if bias.near is None:
            return [f"{fitted} {warning}; near cannot be fitted to: {bias.error}"]
        return [
            f"{fitted} {warning}; over near {bias.near.describe_briefly()}.",
            (
                f"NLL over near: {bias.nll_before:.4f} before, {bias.nll_this:.4f} with this fit, "
                f"{bias.nll_near:.4f} with one fitted to near."
            ),
        ]


def link_of_model(model: Model) -> Link:
    """Of classes or regions."""
    return Link.SOFTMAX if model.regions_class_order is None else Link.SIGMOID


def cases_hash(names: Sequence[str]) -> str:
    """SHA-256 of the sorted names."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


Typed = TypeVar("Typed")


def _read(kind: type[Typed], content: dict[str, Any]) -> Typed:
    """A dataclass of a JSON object; what has a default may be missing."""
    known: Any = fields(kind)  # type: ignore[arg-type]
    return kind(**{one.name: content[one.name] for one in known if one.default is MISSING or one.name in content})
