"""Functions of arrays against other libraries': the ECE that each finds, and the time it takes.

    python benchmarks/peers.py [--rounds 9]

Each round times ours and the peer's, one after the other; printed are the median ratio and its range.
The medians are in docs/results/data/function_time.csv.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from netcal.metrics import ECE
from scipy.ndimage import gaussian_filter
from torchmetrics.functional.classification import multiclass_calibration_error

from nnunet_nacl.metrics import BinCounts, evaluate_case, expected_calibration_error

SHAPE = (32, 192, 192)
CLASSES = 4


def seconds(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    fields = np.stack(
        [gaussian_filter(generator.standard_normal(SHAPE), 4) for _ in range(CLASSES)]
    )
    logits = (150 * fields).astype(np.float32)
    right = torch.from_numpy(logits).softmax(0).numpy()
    # over-confident
    p = torch.from_numpy(1.5 * logits).softmax(0).numpy()
    y = (right.cumsum(0) < generator.random(SHAPE)).sum(0).clip(0, CLASSES - 1).astype(np.uint8)
    rows = np.ascontiguousarray(p.reshape(CLASSES, -1).T)
    p_tensor = torch.from_numpy(p)[None]
    y_tensor = torch.from_numpy(y.astype(np.int64))[None]

    def ours() -> float:  # noqa: D103
        table = BinCounts.fill(p.max(0).reshape(-1), (p.argmax(0) == y).reshape(-1))
        return float(expected_calibration_error(table))

    def all_metrics() -> float:  # noqa: D103
        return evaluate_case(p, y, spacing_mm=(3, 1, 1))["image"].ECE

    def torchmetrics() -> float:  # noqa: D103
        return float(multiclass_calibration_error(p_tensor, y_tensor, CLASSES, n_bins=15))

    def netcal() -> float:  # noqa: D103
        return float(ECE(15).measure(rows, y.reshape(-1)))

    print(
        "ECE:",
        *(f"{one.__name__} {one():.7f}" for one in (ours, all_metrics, torchmetrics, netcal)),
    )
    pairs = {
        "ECE from bin tables, torchmetrics": (ours, torchmetrics),
        "ECE from bin tables, netcal": (ours, netcal),
        "everything that evaluate counts, torchmetrics' ECE alone": (all_metrics, torchmetrics),
    }
    for name, (one, other) in pairs.items():
        ratios = [seconds(one) / seconds(other) for _ in range(rounds)]
        print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
