"""The result of a fit, the model that it is for, and its JSON file."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from nnunet_nacl import __version__
from nnunet_nacl.files import Kind, whole_file
from nnunet_nacl.json_files import load_json, typed
from nnunet_nacl.nnunet import LabelMeaning, Model
from nnunet_nacl.posthoc._calibrator import Calibrator
from nnunet_nacl.posthoc._link import Link
from nnunet_nacl.posthoc._methods import method_of
from nnunet_nacl.posthoc._voxels import CHOSEN_BY_LABEL, VoxelSet
from nnunet_nacl.posthoc._written import Skipped

FIT = Kind(
    "a fit",
    re.compile(rb'\A\{\s*"method":.*"versions":\s*\{\s*"nnunet_nacl":\s*"[^"]*"\s*\}\s*\}\s*\Z', re.DOTALL),
)
"""A file that :meth:`Fit.write` has written."""

_WHAT = "fit of nnunet_nacl"


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

    voxels: Annotated[int, Ge(0)]
    available: Annotated[int, Ge(0)]
    zeros: Annotated[int, Ge(0)]


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
        content = load_json(file, finite=True)
        stored = typed(content, _Stored, str(file), _WHAT)
        model = stored.model
        expected = len(
            LabelMeaning.of_names(model.labels, None).known
            if model.regions_class_order is None
            else model.regions_class_order
        )
        if model.channels != expected:
            raise ValueError(f"{file}: model.channels: expected {expected}, as its labels say; got {model.channels}")

        def calibrator(parameters: dict[str, Any], place: str) -> Calibrator:
            try:
                kind = method_of(stored.method)
                return kind.of_parameters(parameters, channels=model.channels, link=link_of_model(model))
            except ValueError as error:
                raise ValueError(f"{file} is no {_WHAT}: {place}{error}") from error

        if cases_hash(stored.cases.names) != stored.cases.sha256:
            raise ValueError(f"{file}: the list of cases is not the one that it was written with.")
        return cls(
            calibrator(content, ""),
            model,
            stored.cases.names,
            stored.settings,
            stored.sample,
            stored.fitted,
            HeldOut([part.part_held_out() for part in stored.held_out.parts], stored.held_out.change()),
            stored.skipped,
            stored.versions.nnunet_nacl,
            None if stored.bias is None else stored.bias.bias(calibrator),
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


@dataclass(frozen=True)
class _StoredChange:
    """A change among other entries, which may lack it."""

    before: Metrics | None = None
    after: Metrics | None = None

    def change(self) -> Change | None:
        return None if self.before is None or self.after is None else Change(self.before, self.after)


@dataclass(frozen=True, kw_only=True)
class _StoredPart(_StoredChange):
    part: str
    cases: list[str]
    voxels: Annotated[int, Ge(0)]
    error: str | None = None

    def __post_init__(self) -> None:
        if self.change() is None and self.error is None:
            raise ValueError("expected before and after, or error")

    def part_held_out(self) -> HeldOutPart:
        return HeldOutPart(self.part, self.cases, self.voxels, self.change(), self.error)


@dataclass(frozen=True, kw_only=True)
class _StoredHeldOut(_StoredChange):
    parts: list[_StoredPart]


@dataclass(frozen=True)
class _NLL:
    before: float
    this: float
    near: float


@dataclass(frozen=True)
class _StoredBias:
    parameters: dict[str, Any] | None = None
    NLL: _NLL | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.parameters is None or self.NLL is None) and self.error is None:
            raise ValueError("expected parameters and NLL, or error")

    def bias(self, calibrator: Callable[[dict[str, Any], str], Calibrator]) -> Bias:
        if self.parameters is None or self.NLL is None:
            return Bias(error=self.error)
        near = calibrator(self.parameters, "bias.parameters: ")
        return Bias(near, self.NLL.before, self.NLL.this, self.NLL.near)


@dataclass(frozen=True)
class _StoredCases:
    sha256: str
    names: list[str]


@dataclass(frozen=True)
class _StoredVersions:
    nnunet_nacl: str


@dataclass(frozen=True)
class _Stored:
    """The file of a fit, but for the method's parameters."""

    method: str
    model: Model
    cases: _StoredCases
    settings: FitSettings
    sample: SampleSize
    fitted: Change
    held_out: _StoredHeldOut
    skipped: list[Skipped]
    versions: _StoredVersions
    bias: _StoredBias | None = None
