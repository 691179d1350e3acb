"""Fit all methods to a sample, judge them on held-out cases, choose the best, and keep it in a file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Discriminator, TypeAdapter
from tqdm import tqdm

from nnunet_nacl import __version__
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._methods import AS_TRAINED, Calibration, Layer, Temperature
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.calibrate._score import CHANGED, Score, judge
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.nnunet import Provenance
from nnunet_nacl.patients import split_cases
from nnunet_nacl.typing import Array, ByName, Floats

if TYPE_CHECKING:
    import pandas

METHODS: dict[str, type[Calibration]] = {kind.method: kind for kind in (Temperature, Head)}

Calibrations = dict[str, Calibration]
"""By method."""


@dataclass(frozen=True)
class Fit:
    """A calibration, the methods tried, and the model that it applies to: the content of its JSON file.

    Attributes:
        calibration: a method with its parameters.
        provenance: of the predictions that it was fitted to.
        tried: each method's scores on held-out cases.
        settings: how the model predicted; of predictions, their folders.
        skipped: cases that could not be used.
    """

    calibration: Annotated[Temperature | Head, Discriminator("method")]
    provenance: Provenance
    tried: dict[str, Score]
    settings: ByName
    skipped: list[Skipped]
    version: str = __version__

    @classmethod
    def choose(
        cls,
        trials: "Trials",
        method: str | None,
        provenance: Provenance,
        settings: ByName,
        skipped: Sequence[Skipped],
    ) -> "Fit":
        """Return the fit of a method, or of the best one; see ``Trials.best``."""
        best = trials.best(method)
        assert isinstance(best, Temperature | Head)  # others are only compared
        fitted_to = replace(provenance, cases=sorted(trials.fitted_without))
        return cls(best, fitted_to, trials.scores, settings, list(skipped))

    def write(self, file: Path, *, applied_to: Path | None = None) -> None:
        """Write it as JSON; beside calibrated predictions, it also names the folder that they were made from."""
        content = TypeAdapter(Fit).dump_python(self, mode="json")
        if applied_to is not None:
            content["applied"] = {"pred_folder": str(applied_to.absolute())}
        write_json(file, content)

    @classmethod
    def read(cls, file: Path) -> "Fit":
        """Read what ``write`` wrote; raises a ValueError if it is something else."""
        return read_json(file, cls)

    def table(self) -> str:
        """Return the scores on held-out cases, one line per method; the chosen method is marked."""
        import pandas as pd

        rows = {}
        for method, score in self.tried.items():
            low, high = score.NLL_change
            rows[f"→ {method}" if method == self.calibration.method else method] = {
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
    """The calibrations that each method fitted, and their scores.

    Attributes:
        fitted: to all cases.
        fitted_without: by case, to cases among which it is not.
        scores: each method's, on held-out cases.
    """

    fitted: Calibrations
    fitted_without: dict[str, Calibrations]
    scores: dict[str, Score]

    def best(self, wanted: str | None) -> Calibration:
        """Return the calibration of the wanted method, or else of the best one; ``as trained`` if none qualifies.

        The best is the method with the lowest NLL on held-out cases, of those that lower it by at least 0.5 %, with a
        95 % interval below 0, whose Dice there is at most 0.002 below the Dice as trained, and which change the label
        of at most a tenth of the foreground.
        """
        as_trained = self.scores[AS_TRAINED.method]
        candidates: list[str] = [AS_TRAINED.method]
        candidates += [
            method for method in self.fitted if not self.scores[method].shortcomings(as_trained)
        ]
        return self.fitted[wanted or min(candidates, key=lambda method: self.scores[method].NLL)]


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
        fitted = [AS_TRAINED, *(kind.fit_sample(part, layer) for kind in kinds)]
        return {calibration.method: calibration for calibration in fitted}

    parts = split_cases(sample.names, sample.by_patient)
    logits: dict[str, Floats] = {}
    fitted_without: dict[str, Calibrations] = {}
    progress = tqdm(parts, desc="judging on held-out cases", unit="part", leave=False)
    for part in progress:
        is_held_out = np.isin(sample.names, part)[sample.case]
        held_out = sample.take(is_held_out)
        of_others = fit_all(sample.take(~is_held_out))
        fitted_without |= dict.fromkeys(part, of_others)
        for method, calibration in of_others.items():
            of_method = logits.setdefault(method, np.empty_like(sample.logits))
            of_method[:, is_held_out] = calibrated_logits(calibration, held_out)
    fitted = fit_all(sample)
    scores = {}
    for method, of_method in logits.items():
        score = judge(sample, of_method)
        fits = [fitted[method], *(of_others[method] for of_others in fitted_without.values())]
        remark = next((one.remark for one in fits if one.remark), "")
        if not remark and score.changed > CHANGED:
            remark = "changes too many labels"
        scores[method] = replace(score, remark=remark)
    return Trials(fitted, fitted_without, scores)


def calibrated_logits(calibration: Calibration, sample: Sample) -> Floats:
    """Return the calibrated logits (C, n) of a sample's voxels."""
    inputs = sample.features if calibration.needs_features else sample.logits
    assert inputs is not None
    return calibration.logits(inputs.copy())  # it may be of somebody's own, and work in place


def compare(
    logits: Array,
    labels: Array,
    *,
    cases: Array | None = None,
    methods: Sequence[type[Calibration]] = (Temperature,),
) -> "pandas.DataFrame":
    """Compare calibrations of logits on cases that their fit has not seen.

    Args:
        logits: (N, K, *spatial) of K classes, the background first, as for PyTorch's ``cross_entropy``; an array or a
            tensor.
        labels: (N, *spatial), whole numbers from 0 to K − 1.
        cases: (N,), the case of each image; by default, each image is a case. Each fit is judged on a held-out fifth of
            the cases.
        methods: ``Temperature``, or classes of your own with the members of ``Calibration``.

    Returns:
        A row for each method and for ``as trained``, with the columns of ``Score``: NLL per foreground voxel and the
        95 % interval of its change, ECE of all voxels, confidence − accuracy, Dice, the share of labels that change,
        and a remark on the fits, such as that a search did not converge.

    Raises:
        ValueError: shapes do not fit, a label is not a class, or there are fewer than two cases.
    """
    import pandas as pd

    sample = Sample.of_arrays(logits, labels, cases=cases)
    if len(sample.names) < 2:
        raise ValueError("cases: expected two or more, so that some can be held out; got one.")
    scores = try_methods(sample, methods=methods).scores
    return pd.DataFrame(list(scores.values()), index=list(scores))
