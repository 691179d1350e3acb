"""Calibrations of trained models, fitted to the validation cases of a fold and judged on the test cases.

    python benchmarks/calibrate.py docs/results/data/calibrate.csv DATASET CONFIGURATION TRAINER FOLD [FOLD ...]

Writes a line for each method into the CSV file, in place of the model's earlier ones: scores on held-out validation
cases and on the test cases (imagesTs, labelsTs of the raw data), with 95 % intervals by a bootstrap over cases. Beside
the methods of ``nnunet_nacl calibrate`` there are isotonic regression, and head fitted by cross-entropy
alone; ``written`` is the method that the command writes, ``held_out_NLL_written`` what it prints of it, and
``nested_NLL`` the NLL of that choice on cases that neither the fits nor the choice have seen. Of several folds, it
averages their logits, as nnUNetv2_predict does. nnU-Net preprocesses, mirrors and predicts test cases, and every voxel
of its preprocessed grid counts. ECE near: near the prediction as trained, the same voxels for all methods. With
--counts, methods are also fitted to few validation cases, 20 draws each. benchmarks/tables.py writes the tables of the
pages.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from models import add_model, revision
from nnunetv2.paths import nnUNet_raw
from sklearn.isotonic import IsotonicRegression
from tqdm import tqdm

from nnunet_nacl.calibrate import (
    AS_TRAINED,
    Head,
    Sample,
    Temperature,
)
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.calibrate._sample import centered
from nnunet_nacl.calibrate._score import judge, nll_of_cases
from nnunet_nacl.calibrate._trials import calibrated_logits, try_methods
from nnunet_nacl.metrics import Activation, Estimate, ratio
from nnunet_nacl.nnunet import PreprocessedCases, model_folder
from nnunet_nacl.patients import split_cases

COUNTS = (5, 10, 20, 40)
DRAWS = 20
KEY = ["data_set", "configuration", "trainer", "folds", "training"]


class Isotonic:
    """Isotonic regression after temperature scaling, one function for all classes (IRM, Mix-n-Match, ICML 2020)."""

    needs_features = False

    def __init__(self, sample: Sample) -> None:
        self.temperature = Temperature.fit_sample(sample)
        q = self._scaled(sample.logits)
        weights = np.broadcast_to(sample.weights, q.shape).reshape(-1)
        self.curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        hits = sample.truth == np.arange(len(q))[:, None]
        self.curve.fit(q.reshape(-1), hits.reshape(-1).astype(float), weights)

    def _scaled(self, logits: Any) -> Any:
        return Activation.SOFTMAX.probabilities(self.temperature.logits(logits).astype(np.float64))

    def logits(self, inputs: Any) -> Any:
        """Calibrated logits."""
        q = self._scaled(inputs)
        raised = self.curve.predict(q.reshape(-1)).reshape(q.shape) + 1e-6 * q
        return np.log(np.maximum(raised, 1e-38)).astype(np.float32)


def fits(sample: Sample, layer: Any) -> dict[str, Any]:
    """What is not in the package: isotonic regression, and cross-entropy alone."""
    return {
        "head by CE alone": Head.fit_sample(sample, layer, hinge_weight=0),
        "isotonic": Isotonic(sample),
    }


def held_out_scores(sample: Sample, layer: Any) -> dict[str, Any]:
    """Of the methods that are not in the package, as the package judges its own."""
    logits: dict[str, Any] = {}
    for part in split_cases(sample.names):
        outside = np.isin(sample.case, [sample.names.index(name) for name in part])
        inside = sample.take(outside)
        for name, method in fits(sample.take(~outside), layer).items():
            logits.setdefault(name, np.empty_like(sample.logits))
            logits[name][:, outside] = calibrated_logits(method, inside)
    return {name: judge(sample, of_method) for name, of_method in logits.items()}


def only(sample: Sample, chosen: Any) -> Sample:
    """The cases of these ascending numbers."""
    part = sample.take(np.isin(sample.case, chosen))
    names = tuple(sample.names[case] for case in chosen)
    return replace(part, case=np.searchsorted(chosen, part.case).astype(np.int32), names=names)


def nested_nll(sample: Sample, layer: Any) -> float:
    """NLL of the chosen method on cases that neither its fit nor the choice has seen; the whole five times over."""
    logits = np.empty_like(sample.logits)
    for part in split_cases(sample.names):
        is_held_out = np.isin(sample.names, part)
        method = try_methods(only(sample, np.flatnonzero(~is_held_out)), layer).best(None)
        inside = is_held_out[sample.case]
        held_out = sample.take(inside)
        logits[:, inside] = calibrated_logits(method, held_out)
    return judge(sample, logits).NLL


def measure(options: argparse.Namespace) -> None:
    """One model, or the ensemble of several folds."""
    start = time.time()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    opened = [
        TrainedFold.open(
            model, fold, checkpoint="checkpoint_final.pth", device="cpu", mirroring=True
        )
        for fold in options.fold
    ]
    fitted = []
    held_out: dict[str, Any] = {}
    few: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for fold in opened:
        features_start = time.time()
        sample = Sample.join(list(fold.samples()[0].values()))
        fits_start = time.time()
        trials = try_methods(sample, fold.reader.output_layer)
        print(
            f"{fold.folder.name}: features {fits_start - features_start:.1f} s, "
            f"fits {time.time() - fits_start:.1f} s"
        )
        fitted.append({**trials.fitted, **fits(sample, fold.reader.output_layer)})
        if len(opened) == 1:
            held_out = {**trials.scores, **held_out_scores(sample, fold.reader.output_layer)}
            chosen = trials.best(None).method
            choice = {
                "written": chosen,
                "held_out_NLL_written": trials.scores[chosen].NLL,
                "nested_NLL": nested_nll(sample, fold.reader.output_layer),
            }
            if options.counts:
                few = few_cases(sample, fold.reader.output_layer)
    fit_seconds = time.time() - start

    raw = Path(nnUNet_raw) / model.parent.name
    cases = PreprocessedCases.of_images(
        opened[0].reader.predictor, raw / "imagesTs", raw / "labelsTs"
    )
    samples: list[Sample] = []
    logits: dict[str, list[Any]] = {}
    for name in tqdm(cases.names, desc="test"):
        image, labels, properties = cases.load(name)
        features = [fold.reader.features(image) for fold in opened]
        trained = [
            fold.reader.output_layer.logits(of_fold.flatten(1).numpy()).reshape(
                -1, *of_fold.shape[1:]
            )
            for of_fold, fold in zip(features, opened, strict=True)
        ]
        mean = np.mean(trained, axis=0).reshape(len(trained[0]), -1)
        first = opened[0]
        activation = first.data_set.meaning.activation
        p = activation.probabilities(mean)[: first.data_set.meaning.num_predictions]
        sample = Sample.draw(
            name,
            first.data_set.meaning,
            np.maximum(labels, 0),
            foreground=activation.foreground(p).reshape(-1, *trained[0].shape[1:]),
            spacing_mm=first.spacing(properties),
            most=10**9,
            values=partial(with_places, mean),
        )
        places = sample.features[0].astype(int)
        sample = replace(sample, features=None)
        samples.append(sample)
        means: dict[str, Any] = {}
        for of_fold, of_trained, methods in zip(features, trained, fitted, strict=True):
            drawn = of_fold.flatten(1).numpy()[:, places]
            as_trained = centered(of_trained.reshape(len(of_trained), -1)[:, places], activation)
            for method, calibration in {**methods, **few}.items():
                inputs = drawn if calibration.needs_features else as_trained
                calibrated = centered(calibration.logits(inputs), activation)
                means[method] = means.get(method, 0) + calibrated / len(opened)
        for method, mean in means.items():
            logits.setdefault(method, []).append(mean)
    about = {
        "data_set": model.parent.name,
        "configuration": options.configuration,
        "trainer": options.trainer,
        "folds": " ".join(options.fold),
        "training": options.training,
        "test_cases": len(samples),
        **choice,
        "fit_seconds": fit_seconds,
        "seconds": time.time() - start,
        **of_training(opened),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, one thread",
        "date": time.strftime("%Y-%m-%d"),
        "commit": revision(),
    }
    joined = {method: np.concatenate(parts, axis=1) for method, parts in logits.items()}
    write(options.csv, about, Sample.join(samples), joined, held_out)


def of_training(opened: list[TrainedFold]) -> dict[str, Any]:
    """How long the models were trained, and the Dice of validation patches that nnU-Net logged last."""
    # Of our own training
    content = torch.load(opened[0].folder / "checkpoint_final.pth", weights_only=False)
    found = {"last_logged_Dice": content["logging"]["mean_fg_dice"][-1]}
    seconds = [fold.folder / "training_time.json" for fold in opened]
    if all(file.exists() for file in seconds):
        found["training_seconds"] = np.mean(
            [json.loads(file.read_text())["seconds"] for file in seconds]
        )
    return found


def few_cases(sample: Sample, layer: Any) -> dict[str, Any]:
    """Methods fitted to a few of the validation cases, and by what name they are known."""
    fitted: dict[str, Any] = {}
    for count in (count for count in COUNTS if count <= len(sample.names)):
        for draw in range(DRAWS):
            chosen = np.sort(np.random.default_rng(draw).permutation(len(sample.names))[:count])
            part = only(sample, chosen)
            for method in (Temperature.fit_sample(part), Head.fit_sample(part, layer)):
                fitted[f"{method.method} of {count} cases, {draw}"] = method
    return fitted


def interval(sums: Any, foreground: Any) -> tuple[float, float]:
    """Of sums over cases, divided by the foreground's."""
    cases = np.arange(len(sums))
    return Estimate(
        lambda draws: ratio(draws @ sums, draws @ foreground), cases, np.ones(cases.size, bool)
    ).interval


def write(
    csv: Path,
    about: dict[str, Any],
    sample: Sample,
    logits: dict[str, Any],
    held_out: dict[str, Any],
) -> None:
    """All numbers of a model, a line for each method."""
    foreground = np.bincount(sample.case, sample.structures(sample.truth).sum(0), len(sample.names))
    nll = {method: nll_of_cases(sample, of_method) for method, of_method in logits.items()}
    lines = []
    for method, of_method in logits.items():
        score = asdict(judge(sample, of_method))
        low, high = interval(nll[method], foreground)
        score |= {"NLL_low": low, "NLL_high": high}
        for other in (AS_TRAINED.method, "temperature"):
            change = nll[method] - nll[other]
            name = f"NLL_minus_{other.replace(' ', '_')}"
            score[name] = score["NLL"] - nll[other].sum() / foreground.sum()
            score[f"{name}_low"], score[f"{name}_high"] = interval(change, foreground)
        del score["NLL_change"]
        if " cases, " not in method:
            near = sample.take(sample.near[0])
            score["T_left"] = Temperature.fit_sample(
                replace(near, logits=of_method[:, sample.near[0]])
            ).temperature
        if method in held_out:
            score |= {f"held_out_{name}": value for name, value in asdict(held_out[method]).items()}
            change_low, change_high = score.pop("held_out_NLL_change")
            score |= {
                "held_out_NLL_change_low": change_low,
                "held_out_NLL_change_high": change_high,
            }
        lines.append({**about, "method": method, **score})
    new = pd.DataFrame(lines)
    if csv.exists():
        old = pd.read_csv(csv, dtype={"folds": str, "training": str})
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new]).sort_values(KEY, kind="stable")
    new.to_csv(csv, index=False, float_format="%.6g", lineterminator="\n")
    shown = pd.DataFrame(lines)[
        ["method", "NLL", "ECE", "over_confidence", "Dice", "changed", "T_left"]
    ]
    print(shown[~shown["method"].str.contains("cases")].to_string())


def with_places(logits: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The logits of drawn voxels, and where these are in place of their features."""
    return logits[:, index], index[None].astype(float)


def main() -> None:
    """Measure a model, or an ensemble."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    add_model(parser, several_folds=True)
    parser.add_argument(
        "--counts", action="store_true", help="how many validation cases it takes, too"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure(options)


if __name__ == "__main__":
    main()
