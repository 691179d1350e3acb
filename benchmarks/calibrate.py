"""Calibrations of trained models, fitted to the validation cases of a fold and judged on the test cases.

    python benchmarks/calibrate.py docs/results/data/calibrate.csv DATASET CONFIGURATION TRAINER FOLD [FOLD ...]

Writes a line for each method into the CSV file, in place of the model's earlier ones: scores on held-out validation
cases and on the test cases (imagesTs, labelsTs of the raw data), with 95 % intervals by a bootstrap over cases. Of
several folds, it averages their logits, as nnUNetv2_predict does. nnU-Net preprocesses, mirrors and predicts test
cases; every voxel counts. ECE near: within 5 mm of where the model as trained sees a foreground, the same voxels for
all methods. With --counts, it also fits to few validation cases. benchmarks/tables.py writes the tables of the pages.
"""

import argparse
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from nnunetv2.paths import nnUNet_raw
from sklearn.isotonic import IsotonicRegression
from tqdm import tqdm

from nnunet_nacl.calibrate import split_cases
from nnunet_nacl.calibrate._activation import Activation
from nnunet_nacl.calibrate._fit import AS_TRAINED, try_methods
from nnunet_nacl.calibrate._judge import NUM_BINS, _decoded, _gaps, _predicted, judge
from nnunet_nacl.calibrate._methods import Head, Temperature, Vector
from nnunet_nacl.calibrate._model import Network, logits_of
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.nnunet import PreprocessedCases, model_folder

COUNTS = (5, 10, 20, 40)
METHODS = (AS_TRAINED, "temperature", "vector", "isotonic", "head")
RESAMPLES = 2000


class Isotonic:
    """Isotonic regression after temperature scaling, one function for all classes (IRM, Mix-n-Match, ICML 2020)."""

    def __init__(self, sample: Sample) -> None:
        self.temperature, self.activation = Temperature.fit(sample), sample.activation
        q = self._scaled(sample.logits)
        weights = np.broadcast_to(sample.weights, q.shape).reshape(-1)
        self.curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        self.curve.fit(q.reshape(-1), sample.hot().reshape(-1).astype(float), weights)

    def _scaled(self, logits: Any) -> Any:
        return self.activation.probabilities(self.temperature.logits(logits).astype(np.float64))

    def logits(self, logits: Any, _: Any = None) -> Any:
        """Calibrated logits."""
        q = self._scaled(logits)
        raised = self.curve.predict(q.reshape(-1)).reshape(q.shape) + 1e-6 * q
        return np.log(np.maximum(raised, 1e-38)).astype(np.float32)


def sums_of_case(sample: Sample, logits: Any) -> dict[str, Any]:
    """What the metrics of a case are made of; every voxel has the weight 1."""
    activation, p, hot = sample.activation, sample.activation.probabilities(logits.astype(np.float64)), sample.hot()
    assert activation is Activation.SOFTMAX
    true = sample.structures()
    dice = {}
    for name, inside in (("Dice", _predicted(p, activation)), ("decoded", _decoded(sample, p))):
        with np.errstate(invalid="ignore"):
            dice[name] = (2 * (inside & true).sum(1) / (inside.sum(1) + true.sum(1))).tolist()
    near = sample.near
    confidence, hits = p.max(0)[near], (p.argmax(0) == sample.truth)[near]
    return {
        "NLL": float(activation.nll(logits.astype(np.float64), sample.truth).sum()),
        "NLL_near": float(activation.nll(logits[:, near].astype(np.float64), sample.truth[near]).sum()),
        "Brier": float(((p - hot) ** 2).sum()),
        "foreground": int(true.any(0).sum()),
        "near": int(near.sum()),
        "voxels": int(near.size),
        "gaps": (_gaps(confidence, hits, np.ones(hits.size)) * hits.size).tolist() if hits.size else [0.0] * NUM_BINS,
        **dice,
    }


def metrics(cases: dict[str, Any], chosen: Any) -> dict[str, float]:
    """Of a data set, or of a resample of it (indices of cases)."""
    foreground, near = cases["foreground"][chosen].sum(), cases["near"][chosen].sum()
    gaps = cases["gaps"][chosen].sum(0) / near
    return {
        "NLL": cases["NLL"][chosen].sum() / foreground,
        "NLL_near": cases["NLL_near"][chosen].sum() / foreground,
        "Brier": cases["Brier"][chosen].sum() / foreground,
        "ECE": np.abs(gaps).sum(),
        "over_confidence": gaps.sum(),
        "Dice": np.nanmean(cases["Dice"][chosen], 0).mean(),
        "decoded": np.nanmean(cases["decoded"][chosen], 0).mean(),
    }


def measure(options: argparse.Namespace) -> None:
    """One model, or the ensemble of several folds."""
    start = time.time()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    networks = [
        Network(model, fold, checkpoint="checkpoint_final.pth", device="cpu", mirroring=True) for fold in options.fold
    ]
    fitted, held_out, samples = [], [], []
    for network, fold in zip(networks, options.fold, strict=True):
        sample = network.sample(PreprocessedCases.of_fold(network.predictor, fold))
        trials = try_methods(sample, network.layer)
        held = np.empty_like(sample.logits)
        for part in split_cases(sample.names):
            outside = np.isin(sample.case, [sample.names.index(name) for name in part])
            held[:, outside] = Isotonic(sample.take(~outside)).logits(sample.logits[:, outside])
        held_out.append({**{name: vars(score) for name, score in trials.scores.items()},
                         "isotonic": vars(judge(sample, held))})  # fmt: skip
        fitted.append({**trials.fitted, "isotonic": Isotonic(sample)})
        samples.append(sample)
    fit_seconds = time.time() - start
    by_count = few_cases(samples[0], networks[0].layer) if len(networks) == 1 and options.counts else {}

    raw = Path(nnUNet_raw) / model.parent.name
    names, load = PreprocessedCases.of_images(networks[0].predictor, raw / "imagesTs", raw / "labelsTs")
    results: dict[str, list[Any]] = {}
    near_logits: dict[str, list[Any]] = {}
    near_truth: list[Any] = []
    for name in tqdm(names, desc="test"):
        image, labels, properties = load(name)
        features = [network.features(image) for network in networks]
        means: dict[str, Any] = {}
        for network, of_fold, methods in zip(networks, features, fitted, strict=True):
            trained = logits_of(of_fold, network.layer)
            for method in METHODS:
                if method == AS_TRAINED:
                    logits = trained
                elif method == "isotonic":
                    logits = methods[method].logits(trained.reshape(len(trained), -1)).reshape(trained.shape)
                else:
                    logits = logits_of(of_fold, methods[method].layer(*network.layer))
                means[method] = means.get(method, 0) + logits / len(networks)
            for count, calibrators in by_count.items():
                for number, (method, calibrator) in enumerate(calibrators):
                    name_of_draw = f"{method} of {count} cases, {number // 2}"
                    means[name_of_draw] = logits_of(of_fold, calibrator.layer(*network.layer))
        _, sample = networks[0].draw(name, means[AS_TRAINED], labels, properties, 10**9)
        near_truth.append(sample.truth[sample.near])
        for method, mean in means.items():
            logits = sample.activation.centered(mean.reshape(len(mean), -1))
            results.setdefault(method, []).append(sums_of_case(sample, logits))
            if method in METHODS:
                near_logits.setdefault(method, []).append(logits[:, sample.near])
    write(options, model, results, near_logits, np.concatenate(near_truth), held_out,
          {"fit_seconds": fit_seconds, "seconds": time.time() - start})  # fmt: skip


def few_cases(sample: Sample, layer: Any) -> dict[int, list[tuple[str, Any]]]:
    """Vector and head fitted to a few of the validation cases, two draws each; the strength by held-out cases."""
    fitted: dict[int, list[tuple[str, Any]]] = {}
    for count in (count for count in COUNTS if count <= len(sample.names)):
        for draw in range(1 if count == len(sample.names) else 2):
            order = np.random.default_rng(draw).permutation(len(sample.names))[:count]
            part = sample.take(np.isin(sample.case, order))
            numbers = {case: number for number, case in enumerate(sorted(order))}
            part = replace(part, case=np.array([numbers[case] for case in part.case], np.int32),
                           names=tuple(sample.names[case] for case in sorted(order)))  # fmt: skip
            trials = try_methods(part, layer)
            fitted.setdefault(count, []).extend((name, trials.fitted[name]) for name in (Vector.method, Head.method))
    return fitted


def interval(values: "pd.Series[float]") -> tuple[float, float]:
    """95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return low, high


def write(  # noqa: PLR0917
    options: argparse.Namespace, model: Path, results: Any, near_logits: Any, truth: Any, held_out: Any, more: Any
) -> None:
    """All numbers of a model, a line for each method."""
    tables = {method: {key: np.array([case[key] for case in cases], float) for key in cases[0]}
              for method, cases in results.items()}  # fmt: skip
    count = len(next(iter(tables.values()))["NLL"])
    draws = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    resampled = {method: pd.DataFrame([metrics(tables[method], draw) for draw in draws]) for method in METHODS}
    as_trained = tables[AS_TRAINED]
    about = {
        "data_set": model.parent.name, "configuration": options.configuration, "trainer": options.trainer,
        "test_cases": count, "near_share": as_trained["near"].sum() / as_trained["voxels"].sum(), **more,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, one thread",
        "date": time.strftime("%Y-%m-%d"), "folds": " ".join(options.fold),
    }  # fmt: skip
    whole = {method: metrics(table, np.arange(count)) for method, table in tables.items()}
    lines = []
    for method, values in whole.items():
        line = {**about, "method": method, **values}
        if method in METHODS:
            logits = np.concatenate(near_logits[method], axis=1).astype(np.float32)
            ones = np.ones(truth.size, np.float32)
            sample = Sample(Activation.SOFTMAX, logits, truth, ones, ones > 0, np.zeros(truth.size, np.int32), ("all",))
            line["T_left"] = Temperature.fit(sample).temperature
            for key in values:
                line[f"{key}_low"], line[f"{key}_high"] = interval(resampled[method][key])
            for other in (AS_TRAINED, "vector"):
                for key in ("NLL", "Brier", "Dice", "decoded"):
                    name = f"{key}_minus_{other.replace(' ', '_')}"
                    line[name] = values[key] - whole[other][key]
                    low, high = interval(resampled[method][key] - resampled[other][key])
                    line[f"{name}_low"], line[f"{name}_high"] = low, high
            if len(held_out) == 1:
                line |= {f"held_out_{key}": value for key, value in held_out[0][method].items()}
        lines.append(line)
    new, key = pd.DataFrame(lines), ["data_set", "configuration", "trainer", "folds"]
    if options.csv.exists():
        old = pd.read_csv(options.csv, dtype={"folds": str})
        same = (old[key] == new[key].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new]).sort_values(key, kind="stable")
    new.to_csv(options.csv, index=False, float_format="%.6g", lineterminator="\n")
    print(new[["method", "NLL", "ECE", "over_confidence", "Dice", "decoded", "T_left"]].tail(len(lines)).to_string())


def main() -> None:
    """Measure a model, or an ensemble."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("data_set")
    parser.add_argument("configuration")
    parser.add_argument("trainer")
    parser.add_argument("fold", nargs="+")
    parser.add_argument("--counts", action="store_true", help="how many validation cases it takes, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure(options)


if __name__ == "__main__":
    main()
