"""Evaluation of arrays and tensors, without a file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logit
from sklearn.metrics import f1_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import CaseResult, evaluate_case
from nnunet_nacl.nnunet import Predictions
from tests.generated import SPACING, structure_case, write_labels, write_predictions

VOXEL_SETS = ("foreground", "union", "near", "image")


def numbers(result: CaseResult) -> list[float]:
    found = [result.Dice]
    for tables in result.calibration.values():
        found += [*tables.metrics().values(), *tables.per_foreground().values()]
    return found


@pytest.mark.parametrize("regions", [False, True])
def test_tensors_logits_and_batches(regions: bool) -> None:
    cases = [structure_case(1.5, seed, regions=regions) for seed in range(3)]
    options = {"spacing_mm": SPACING, "regions": [(1, 2), (2,)] if regions else None}
    each = []
    for p, y in cases:
        chosen = (p > 0.5).sum(0) if regions else None
        each.append(evaluate_case(p, y, chosen, **options))
        of_tensor = evaluate_case(torch.from_numpy(p), torch.from_numpy(y), chosen, **options)
        assert numbers(of_tensor) == numbers(each[-1])
        values = logit(p.astype(float)) if regions else np.log(p.astype(float)) + 3
        of_logits = evaluate_case(values, y, chosen, logits=True, **options)
        assert numbers(of_logits) == pytest.approx(numbers(each[-1]), rel=1e-3)
    together = each[0] + each[1] + each[2]
    predicted = np.stack([(p > 0.5).sum(0) for p, _ in cases]) if regions else None
    batch = evaluate_case(
        np.stack([p for p, _ in cases]), np.stack([y for _, y in cases]), predicted, channel_axis=1, **options
    )
    assert numbers(batch) == numbers(together)
    assert together.Dice == pytest.approx(np.mean([one.Dice for one in each]))


def test_against_other_libraries() -> None:
    p, y = structure_case(1.5)
    image = evaluate_case(p, y)["image"]
    rows = np.moveaxis(p.astype(float), 0, -1).reshape(-1, 3)
    rows /= rows.sum(1, keepdims=True)
    flat = y.reshape(-1)
    assert image.NLL_per_foreground == pytest.approx(log_loss(flat, rows) * flat.size / (flat > 0).sum(), rel=1e-5)
    error = multiclass_calibration_error(torch.from_numpy(rows), torch.from_numpy(flat), 3, n_bins=15)
    assert pytest.approx(float(error), abs=5e-5) == image.ECE  # which takes other sides of the edges
    both = f1_score(flat, rows.argmax(1), labels=[1, 2], average=None)
    assert evaluate_case(p, y).Dice == pytest.approx(both.mean())


def test_a_folder_is_the_sum_of_its_cases(tmp_path: Path) -> None:
    cases = {name: structure_case(1.5, seed) for seed, name in enumerate("abc")}
    predictions = write_predictions(tmp_path / "predictions", {name: p for name, (p, _) in cases.items()})
    (tmp_path / "labels").mkdir()
    for name, (_, y) in cases.items():
        write_labels(y, tmp_path / "labels" / f"{name}.nii.gz")
    folder = evaluate(Predictions.of_folder(tmp_path / "labels", predictions))
    of_arrays = [evaluate_case(p, y, spacing_mm=SPACING) for p, y in cases.values()]
    together = of_arrays[0] + of_arrays[1] + of_arrays[2]
    assert together.Dice == pytest.approx(folder.foreground_mean("Dice"))
    for voxels in VOXEL_SETS:
        metrics = together[voxels].metrics()
        assert metrics == pytest.approx({name: folder.pooled(voxels)[name] for name in metrics}, abs=1e-9)
    image = together["image"]
    assert image.NLL_per_foreground == pytest.approx(folder.pooled("image")["NLL_per_foreground"])
    assert pytest.approx(folder.pooled("near")["ECE"]) == together["near"].ECE
