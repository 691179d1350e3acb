"""Fit all methods to a sample, judge them on held-out cases, and choose the best."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Discriminator, TypeAdapter
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._judge import Score, judge
from nnunet_nacl.calibrate._methods import (
    Calibration,
    Layer,
    Temperature,
    Unchanged,
    Vector,
    calibrated_logits,
    layer_of,
)
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.names import shuffled
from nnunet_nacl.nnunet import Applied, Model
from nnunet_nacl.typing import Array, ByName, Floats

if TYPE_CHECKING:
    import pandas

DICE_TOLERANCE = 0.002
"""How far a method's mean Dice on held-out cases may lie below the Dice as trained."""
CHANGED = 0.1
"""The largest share of the predicted foreground that may change its label; fits to trained models change 0 to 0.04."""
METHODS: dict[str, type[Calibration]] = {kind.method: kind for kind in (Temperature, Vector, Head)}

Calibrations = dict[str, Calibration]
"""By method."""


@dataclass(frozen=True)
class Fit:
    """A calibration, the methods tried, and the model that it applies to: the content of its JSON file.

    Attributes:
        calibration: a method with its parameters.
        model: the model that it was fitted to.
        cases: the names of the cases that it was fitted to.
        tried: each method's scores on held-out cases; ``as trained`` has no calibration.
        settings: how the model predicted.
        skipped: cases that could not be used.
    """

    calibration: Annotated[Unchanged | Temperature | Vector | Head, Discriminator("method")]
    model: Model
    cases: list[str]
    tried: dict[str, Score]
    settings: ByName
    skipped: list[Skipped]
    version: str = __version__

    def __post_init__(self) -> None:
        channels = self.calibration.num_channels
        if channels not in {None, self.model.channels}:
            raise ValueError(
                f"the {self.method} has {channels} channels, the model has {self.model.channels}"
            )

    @classmethod
    def of(
        cls,
        trials: "Trials",
        method: str | None,
        model: Model,
        settings: ByName,
        skipped: Sequence[Skipped],
    ) -> "Fit":
        """The fit of a method, or of the best one; see ``Trials.best``."""
        best: Any = trials.best(method)
        return cls(best, model, sorted(trials.unseen), trials.scores, settings, list(skipped))

    @property
    def method(self) -> str:
        """``temperature``, ``vector`` or ``head``; without a fit ``as trained``."""
        return self.calibration.method

    def shortcomings(self) -> list[str]:
        """Why ``Trials.best`` would not have chosen the method: phrases such as "does NOT lower the held-out NLL …"."""
        return _shortcomings(self.calibration, self.tried)

    def write(self, file: Path, *, applied_to: Path | None = None) -> None:
        """Write it as JSON; beside calibrated predictions, it also names the folder that they were made from."""
        content = TypeAdapter(Fit).dump_python(self, mode="json")
        if applied_to is not None:
            content["applied"] = asdict(Applied(str(applied_to.absolute())))
        write_json(file, content)

    @classmethod
    def read(cls, file: Path) -> "Fit":
        """Read what ``write`` wrote; raises a ValueError if it is something else."""
        return read_json(file, cls)

    def table(self) -> str:
        """The scores on held-out cases, one line per method; the chosen method is marked."""
        import pandas as pd

        rows = {}
        for method, score in self.tried.items():
            low, high = score.NLL_change
            rows[f"→ {method}" if method == self.method else method] = {
                "NLL per foreground voxel": f"{score.NLL:.3f}",
                "change (95 %)": f"{low:+.3f} to {high:+.3f}",
                "ECE near": f"{score.ECE:.3f}",
                "confidence − accuracy": f"{score.over_confidence:+.3f}",
                "Dice": f"{score.Dice:.3f}",
                "labels changed": f"{100 * score.changed:.1f} %",
                "remark": score.remark,
            }
        frame = pd.DataFrame.from_dict(rows, orient="index")
        if not frame["remark"].any():
            del frame["remark"]
        return str(frame.rename_axis(columns="on held-out cases").to_string())


@dataclass(frozen=True)
class Trials:
    """What was fitted by each method, and how good it is.

    Attributes:
        fitted: to all cases.
        unseen: for each case, what was fitted without it.
        scores: each method's, on held-out cases.
    """

    fitted: Calibrations
    unseen: dict[str, Calibrations]
    scores: dict[str, Score]

    def best(self, wanted: str | None) -> Calibration:
        """What the wanted method fitted, or else the best one.

        The best is the method with the lowest NLL on held-out cases, of those that lower it significantly, whose Dice
        there is at most 0.002 below the Dice as trained, and which change the label of at most a tenth of the
        foreground. A temperature changes no label.

        Raises:
            ValueError: the wanted method was not tried.
        """
        if wanted is not None and wanted not in self.fitted:
            raise ValueError(f"method: expected one of {', '.join(self.fitted)}; got {wanted!r}.")
        qualified = [
            method
            for method, calibration in self.fitted.items()
            if not _shortcomings(calibration, self.scores)
        ]
        candidates: list[str] = [Unchanged.method, *qualified]
        return self.fitted[wanted or min(candidates, key=lambda method: self.scores[method].NLL)]


def _shortcomings(calibration: Calibration, scores: Mapping[str, Score]) -> list[str]:
    """Why a method is not chosen, by the scores of all methods: a phrase for its NLL, its Dice and its labels each."""
    score = scores[calibration.method]
    as_trained = scores[Unchanged.method]
    found = []
    if not score.improves:
        found.append("does NOT lower the held-out NLL significantly")
    if calibration.keeps_labels:
        return found
    keeps_dice = score.Dice >= as_trained.Dice - DICE_TOLERANCE  # NaN does not
    if not keeps_dice:
        found.append(f"LOWERS the held-out Dice from {as_trained.Dice:.3f} to {score.Dice:.3f}")
    if score.changed > CHANGED:
        found.append(f"CHANGES the labels of {100 * score.changed:.0f} % of the foreground")
    return found


def check_method(method: str | None, *, with_features: bool) -> None:
    """Raise a ValueError unless ``try_methods`` tries this method, which may be any of them (None)."""
    tried = [name for name, kind in METHODS.items() if with_features or not kind.needs_features]
    if method is not None and method not in tried:
        raise ValueError(
            f"method: expected {', '.join(tried[:-1])} or {tried[-1]}; got {method!r}."
        )


def try_methods(
    sample: Sample,
    layer: Layer | None = None,
    methods: Sequence[type[Calibration]] = tuple(METHODS.values()),
) -> Trials:
    """Fit each method to all cases, and five times with a fifth of the cases held out.

    Methods that need features are left out unless there is the last ``layer`` as trained.
    """
    kinds = [kind for kind in methods if layer is not None or not kind.needs_features]

    def fit_all(part: Sample) -> Calibrations:
        fitted = [Unchanged(), *(kind.of(part, layer) for kind in kinds)]
        by_name = {calibration.method: calibration for calibration in fitted}
        if len(by_name) < len(fitted):
            names = ", ".join(calibration.method for calibration in fitted)
            raise ValueError(f"methods: expected a name for each; got {names}.")
        return by_name

    parts = split_cases(sample.names)
    part_of_case = {name: number for number, part in enumerate(parts) for name in part}
    part_of_voxel = np.array([part_of_case[name] for name in sample.names])[sample.case]
    logits: dict[str, Floats] = {}
    unseen: dict[str, Calibrations] = {}
    progress = tqdm(parts, desc="judging on held-out cases", unit="part", leave=False)
    for number, part in enumerate(progress):
        is_held_out = part_of_voxel == number
        held_out = sample.take(is_held_out)
        of_others = fit_all(sample.take(~is_held_out))
        unseen |= dict.fromkeys(part, of_others)
        for method, calibration in of_others.items():
            of_method = logits.setdefault(method, np.empty_like(sample.logits))
            of_method[:, is_held_out] = calibrated_logits(calibration, held_out)
    fitted = fit_all(sample)
    return Trials(fitted, unseen, _scores(sample, logits, fitted, unseen))


def _scores(
    sample: Sample,
    logits: Mapping[str, Floats],
    fitted: Calibrations,
    unseen: Mapping[str, Calibrations],
) -> dict[str, Score]:
    """Each method's score by its ``logits`` (C, n) of held-out voxels, with a remark of any of its fits."""
    scores = {}
    for method, of_method in logits.items():
        score = judge(sample, of_method)
        fits = [fitted[method], *(of_others[method] for of_others in unseen.values())]
        remark = next((fit.remark for fit in fits if fit.remark), "")
        if not remark and score.changed > CHANGED:
            remark = "changes too many labels"
        scores[method] = replace(score, remark=remark)
    return scores


def compare(
    logits: Array,
    labels: Array,
    *,
    cases: Array | None = None,
    features: Array | None = None,
    layer: tuple[Array, Array] | None = None,
    weights: Array | None = None,
    near: Array | None = None,
    ignore_label: int | None = None,
    channel_axis: int = 0,
    methods: Sequence[type[Calibration]] = tuple(METHODS.values()),
) -> "pandas.DataFrame":
    """Compare calibrations of logits on cases that their fit has not seen.

    Args:
        logits: (K, *spatial) of K classes, the background first, or (R, *spatial) of regions; an array or a tensor.
        labels: (*spatial), whole numbers from 0 to K − 1; for regions bool (R, *spatial).
        cases: (*spatial), the case of each voxel, or (b,) of each image of a batch; by default, each image is a case.
            Each fit is judged on a held-out fifth of the cases.
        features: (F, *spatial), the input of the last layer, a 1×1 convolution; needed to fit ``head``.
        layer: its weight (K, F) and bias (K,), as trained.
        weights: (*spatial), how many voxels each voxel represents.
        near: bool (*spatial), or like ``logits`` for each region, the voxels of the ECE, chosen by the prediction
            alone; by default all.
        ignore_label: the label of voxels that do not count.
        channel_axis: the axis of the K channels; 1 for a batch (b, K, *spatial).
        methods: ``Temperature``, ``Vector``, ``Head``, or a class of your own with the members of ``Calibration``.

    Returns:
        A row for each method with the columns of ``Score``: NLL per foreground voxel and the 95 % interval of its
        change, ECE, confidence − accuracy, Dice, the share of labels that change, and a remark on the fits, such as
        that a search did not converge.

    Raises:
        ValueError: shapes do not fit, a label is not a class, or there are fewer than two cases.
    """
    import pandas as pd

    if not all(isinstance(kind, type) for kind in methods):
        raise ValueError(f"methods: expected classes, such as Temperature; got {methods}.")
    if (features is None) != (layer is None):
        raise ValueError("features and layer go together: expected both, or none of them.")
    sample = Sample.of_arrays(
        logits,
        labels,
        cases=cases,
        features=features,
        weights=weights,
        near=near,
        ignore_label=ignore_label,
        channel_axis=channel_axis,
    )
    if len(sample.names) < 2:
        raise ValueError("cases: expected two or more, so that some can be held out; got one.")
    last = None
    if sample.features is not None and layer is not None:
        last = layer_of(*layer, num_features=len(sample.features), num_channels=len(sample.logits))
    scores = try_methods(sample, last, methods=methods).scores
    return pd.DataFrame(list(scores.values()), index=list(scores))


def split_cases(cases: Sequence[str]) -> list[list[str]]:
    """Five parts of nearly equal size, or one per case if there are fewer; drawn by the cases' names."""
    drawn = shuffled(cases)
    parts = min(5, len(drawn))
    return [drawn[number::parts] for number in range(parts)]
