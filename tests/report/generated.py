"""Results and prediction folders made from the demo's cases, whose true posterior is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.demo import LABELS, draw_case
from nnunet_nacl.evaluation import CountedCase, Counting, FolderResult, write_result
from nnunet_nacl.evaluation._record import record_file, write_record
from nnunet_nacl.metrics import Counts, LabelMeaning, Settings, Voxels, evaluate_case
from nnunet_nacl.paper.report import TABLES
from nnunet_nacl.paths import FileState
from nnunet_nacl.report import Comparison, Table
from tests.generated import softmax, write_upright

NAMED = tuple(f"case_{number:02d}" for number in range(8))

DEFAULT, SURFACE = Settings(), Settings(surface=True)


def tempered(p: np.ndarray, temperature: float, generator: np.random.Generator) -> np.ndarray:
    """Probabilities (C, ...) of a noisy model that is sharper (below 1) or softer than ``p``."""
    logits = (np.log(np.maximum(p, 1e-6)) + generator.normal(0, 0.3, p.shape)) / temperature
    return softmax(logits).astype(np.float32)


def make_result(
    temperature: float = 1.0,
    *,
    cases: Sequence[str] = NAMED,
    seed: int = 0,
    labels: dict[str, object] | None = None,
    settings: Settings = SURFACE,
    empty: Sequence[str] = (),
) -> FolderResult:
    """A result of the demo's cases, without files; those in ``empty`` have no foreground, and none is predicted."""
    labels = dict(LABELS) if labels is None else labels
    found = []
    for name in cases:
        generator = np.random.default_rng([seed, *name.encode()])
        case = draw_case(generator)
        y, p = case.labels[None], case.posterior[:, None]
        if name in empty:
            y, p = np.zeros_like(y), np.stack([np.ones_like(p[0]), *np.zeros_like(p[1:])])
        if any(isinstance(value, list) for value in labels.values()):
            regions = [tuple(value) for value in labels.values() if isinstance(value, list)]
            p = np.stack([p[list(region)].sum(0) for region in regions]).clip(0, 1)
            result = evaluate_case(p, y, y, regions=regions, settings=settings)
        else:
            noise = np.random.default_rng([int(100 * temperature), *name.encode()])
            result = evaluate_case(p if name in empty else tempered(p, temperature, noise), y, settings=settings)
        found.append(result)
    return _folder_result(cases, found, labels, settings, temperature)


def make_blurred(temperature: float = 1.0, *, num_cases: int = 12, settings: Settings = DEFAULT) -> FolderResult:
    """Labels drawn from a known posterior that is in doubt about foreground and background; predicted: it, tempered."""
    distance = np.hypot(*np.mgrid[-20:20, -20:20])[None]
    found = []
    for number in range(num_cases):
        generator = np.random.default_rng(number)
        inside = 1 / (1 + np.exp((distance - generator.uniform(7, 12)) / 1.5))
        y = (generator.random(inside.shape) < inside).astype(np.uint8)
        odds = (inside / (1 - inside)) ** (1 / temperature)
        p = np.stack([1 / (1 + odds), odds / (1 + odds)]).astype(np.float32)
        found.append(evaluate_case(p, y, settings=settings))
    names = [f"case_{number:02d}" for number in range(num_cases)]
    return _folder_result(names, found, {"background": 0, "disc": 1}, settings, temperature)


def table_of(name: str, comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """A table of one data set."""
    (table,) = TABLES[name]([comparison.over(voxels)])
    return table


def twice(result: FolderResult) -> FolderResult:
    """With each case as two images of a patient, such as ``case_00_1`` and ``case_00_2``."""
    double = result.take([row for row in range(len(result.cases)) for _ in range(2)])
    names = [f"{case}_{image}" for case in result.cases for image in (1, 2)]
    renamed = [replace(case, name=name) for case, name in zip(double.counted, names, strict=True)]
    return replace(double, counted=renamed)


def with_dice(values: ArrayLike, cases: Sequence[str] = ()) -> FolderResult:
    """A result whose cases have these values of Dice: (cases, structures)."""
    dice = np.asarray(values, float)
    named = cases or [f"case_{number:02d}" for number in range(len(dice))]
    result = make_result(cases=named, settings=DEFAULT)
    counts = replace(result.counts, segmentation_metrics={"Dice": dice}, structures=tuple(range(1, dice.shape[1] + 1)))
    names = {"background": 0, **{f"structure {label}": label for label in counts.structures}}
    return counted_by(replace(result, counts=counts), meaning=LabelMeaning.of_names(names, None))


def placed_in(result: FolderResult, folder: str | Path, of: str = "prediction") -> FolderResult:
    """With predictions, or ground truth, that lie in this folder."""
    counted = []
    for case in result.counted:
        moved = case.states[of]._replace(path=str(Path(folder) / case.file(of).name))
        counted.append(replace(case, states=case.states | {of: moved}))
    return replace(result, counted=counted)


def counted_by(result: FolderResult, **changes: object) -> FolderResult:
    return replace(result, counting=replace(result.counting, **changes))


def _folder_result(
    cases: Sequence[str], found: list[Counts], labels: dict[str, object], settings: Settings, temperature: float
) -> FolderResult:
    counted = []
    for name in cases:
        files = {
            "ground_truth": f"labelsTs/{name}.nii.gz",
            "prediction": f"predictions/{temperature}/{name}.nii.gz",
            "probabilities": f"predictions/{temperature}/{name}.npz",
        }
        counted.append(CountedCase(name, {what: FileState(f"/gone/{file}", 1, 1) for what, file in files.items()}))
    regions = [value for value in labels.values() if isinstance(value, list)] or None
    meaning = LabelMeaning.of_names(labels, regions)
    counting = Counting(settings, meaning, "SimpleITKIO", {"nnunet-nacl": "0"})
    return FolderResult(counted, Counts.joined(found), [], counting)


def write_summary(result: FolderResult, summary: Path) -> None:
    """What ``evaluate`` writes, of a result without files."""
    for row, case in enumerate(result.counted):
        file = record_file(case.file("prediction"), case.name, summary)
        write_record(file, result.take([row]))
    write_result(result, summary, summary)


def write_predictions(folder: Path, temperatures: dict[str, float], *, cases: Sequence[str] = NAMED) -> dict[str, Path]:
    """imagesTs, labelsTs and a folder of predictions for each method; returns those folders."""
    for name in ("imagesTs", "labelsTs", *(f"predictions/{method}" for method in temperatures)):
        (folder / name).mkdir(parents=True)
    predictions = {method: folder / "predictions" / method for method in temperatures}
    for predicted in predictions.values():
        description = {"channel_names": {"0": "synthetic"}, "labels": LABELS, "file_ending": ".nii.gz"}
        (predicted / "dataset.json").write_text(json.dumps({**description, "numTraining": 1}))
    for number, name in enumerate(cases):
        case = draw_case(np.random.default_rng(number))
        write_upright(case.image, folder / "imagesTs" / f"{name}_0000.nii.gz", (1, 1))
        write_upright(case.labels, folder / "labelsTs" / f"{name}.nii.gz", (1, 1))
        for method, temperature in temperatures.items():
            p = tempered(case.posterior, temperature, np.random.default_rng([number, int(100 * temperature)]))
            write_upright(p.argmax(0), predictions[method] / f"{name}.nii.gz", (1, 1))
            np.savez_compressed(predictions[method] / f"{name}.npz", probabilities=p[:, None])
    return predictions
