"""How should classes share voxels, and when is no segmentation best? The tables of docs/decisions/0012-dice-optimal.md.

    python benchmarks/dice_optimal.py [PRED_FOLDER GT_FOLDER …]
    python benchmarks/dice_optimal.py --cost    # seconds and memory of ours and of rankseg

Each rule chooses label maps from known posteriors, and from the probabilities of a folder of nnU-Net predictions if one
is given, with its ground truth. Printed are the mean expected Dice in RankSEG-RMA's approximation, by which all of them
choose, and the mean Dice against labels drawn from the posterior, or against the ground truth. A structure in neither
has a Dice of 1. Labels are drawn voxel by voxel, or all of an image with one number, so that a structure is there as a
whole or not, larger or smaller. Half a minute, and seconds for a folder of 60 small volumes.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch
from numpy.typing import NDArray
from rankseg import rankseg_rma
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parents[1]))
from nnunet_nacl.use import dice_optimal_labels, dice_optimal_mask

Array = NDArray[np.floating]
Labels = NDArray[np.integer]
IMAGES = 100


def main() -> None:
    """Choose, judge, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", type=Path, nargs="*", help="predictions with .npz files, then their ground truth"
    )
    parser.add_argument("--cost", action="store_true", help="measure seconds and memory instead")
    options = parser.parse_args()
    if options.cost:
        print_costs()
        return
    for together in (False, True):
        for doubt in (0.4, 1.0):
            for offset in (2.0, 6.0):
                name = f"drawn {'as a whole' if together else 'voxel by voxel'}, doubt {doubt}, rarity {offset}"
                compare(name, posteriors(together=together, doubt=doubt, offset=offset))
    for predictions, ground_truth in zip(options.folders[::2], options.folders[1::2], strict=True):
        compare(str(predictions), cases(predictions, ground_truth))


def compare(name: str, images: Iterator[tuple[Array, Labels]]) -> None:
    """Print a table: a row for each rule."""
    found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    for p, y in images:
        for rule, choose in RULES.items():
            labels = choose(p)
            structures = range(1, len(p))
            expected = np.mean([expected_dice(p[k], labels == k) for k in structures])
            found[rule].append(
                (float(expected), float(np.mean([dice(labels == k, y == k) for k in structures])))
            )
    print(f"\n{name}\n\n| rule | expected Dice | Dice |\n| --- | --- | --- |")
    for rule, values in found.items():
        print(f"| {rule} | {' | '.join(f'{value:.4f}' for value in np.mean(values, axis=0))} |")


def posteriors(
    *, together: bool, doubt: float, offset: float, classes: int = 4, size: int = 48
) -> Iterator[tuple[Array, Labels]]:
    """Smooth random posteriors of overlapping structures, and one label map from each."""
    generator = np.random.default_rng(0)
    for _ in range(IMAGES):
        widths = [4.0, *generator.uniform(2, 5, classes - 1)]
        fields = np.stack(
            [gaussian_filter(generator.normal(size=(size, size)), width) for width in widths]
        )
        logits = fields / fields.std(axis=(1, 2), keepdims=True) * 3 / doubt
        logits[0] += generator.uniform(0, offset) / doubt
        p = np.exp(logits - logits.max(0))
        p /= p.sum(0)
        drawn = generator.random() if together else generator.random((size, size))
        yield p, (drawn > p.cumsum(0)[:-1]).sum(0)


def cases(predictions: Path, ground_truth: Path) -> Iterator[tuple[Array, Labels]]:
    """Probabilities and ground truth of a folder."""
    for file in sorted(predictions.glob("*.npz")):
        with np.load(file) as saved:
            p = saved["probabilities"]
        yield p, sitk.GetArrayFromImage(sitk.ReadImage(next(ground_truth.glob(f"{file.stem}.*"))))


def dice(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    """Dice; 1 where both are empty."""
    size = np.count_nonzero(a) + np.count_nonzero(b)
    return 2 * np.count_nonzero(a & b) / size if size else 1.0


def expected_dice(p: Array, mask: NDArray[np.bool_]) -> float:
    """Of a structure's mask, in the approximation by which segmentations are chosen."""
    if not mask.any():
        return 1 - float(p.max())
    return float(2 * p[mask].sum() / (p.sum() + np.count_nonzero(mask) + 1))


def best_threshold(p: Array) -> Labels:
    """The most probable structure above one threshold for all, the best of 49."""
    top, label = p[1:].max(0), p[1:].argmax(0) + 1

    def value(labels: Labels) -> float:
        return sum(expected_dice(p[k], labels == k) for k in range(1, len(p)))

    return max((np.where(top > t, label, 0) for t in np.arange(0.02, 1, 0.02)), key=value)


def by_own_thresholds(score: Callable[[Array, float], Array]) -> Callable[[Array], Labels]:
    """Each voxel to the structure with the highest score among those above their own best threshold."""

    def choose(p: Array) -> Labels:
        thresholds = [dice_optimal_mask(channel).threshold for channel in p[1:]]
        scores = [np.where(c > t, score(c, t), 0) for c, t in zip(p[1:], thresholds, strict=True)]
        return np.concatenate([np.zeros((1, *p.shape[1:])), scores]).argmax(0)

    return choose


def never_empty(p: Array) -> Labels:
    """As ``p_k / t_k``, but with Dice 0 for an absent structure that is left out: the plain formula."""
    scores = [np.zeros(p.shape[1:])]
    for channel in p[1:]:
        ordered = np.sort(channel, axis=None)[::-1].astype(np.float64)
        reached = (ordered.cumsum() / (ordered.sum() + np.arange(2, ordered.size + 2))).max()
        scores.append(np.where(channel > reached, channel / max(reached, 1e-300), 0))
    return np.stack(scores).argmax(0)


def by_rankseg(p: Array, *, pruning_prob: float) -> Labels:
    """By the library, for the structures; what none of them selects is background."""
    structures = torch.from_numpy(np.ascontiguousarray(p[1:]))[None]
    void = max(255, len(p))
    chosen = rankseg_rma(
        structures, pruning_prob=pruning_prob, unassigned_policy="void", void_index=void
    )[0]
    return torch.where(chosen == void, 0, chosen + 1).numpy()


def print_costs() -> None:
    """Of a volume of 64 x 128 x 128 voxels, float32, in one thread; memory beside the probabilities."""
    print("| rule | classes | seconds | MB |\n| --- | --- | --- | --- |")
    for classes in (3, 15):
        for rule in ("dice_optimal_labels", "rankseg, pruned at 0.5"):
            # A new process for each, whose peak is its own
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
                seconds, megabytes = one.submit(cost, rule, classes).result()
            print(f"| {rule} | {classes} | {seconds:.2f} | {megabytes:.0f} |")


def cost(rule: str, classes: int) -> tuple[float, float]:
    """Seconds of the processor and MB that a rule takes, for smooth structures."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    p = np.empty((classes, 64, 128, 128), np.float32)
    for channel in p:
        small = generator.normal(size=(8, 16, 16)).astype(np.float32)
        channel[:] = np.exp(8 * gaussian_filter(small.repeat(8, 0).repeat(8, 1).repeat(8, 2), 4))
    p[0] *= 20
    p /= p.sum(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = peak()
    started = time.process_time()
    RULES[rule](p)
    return time.process_time() - started, peak() - before


def peak() -> float:
    """Of this process's memory, in MB, on Linux."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


RULES: dict[str, Callable[[Array], Labels]] = {
    "argmax": lambda p: p.argmax(0),
    "best single threshold": best_threshold,
    "largest p − t": by_own_thresholds(lambda p, t: p - t),
    "largest p / t": by_own_thresholds(lambda p, t: p / t),
    "dice_optimal_labels": lambda p: dice_optimal_labels(p).labels,
    "rankseg, never pruned": partial(by_rankseg, pruning_prob=0),
    "rankseg, pruned at 0.5": partial(by_rankseg, pruning_prob=0.5),
    "never empty, largest p / t": never_empty,
}


if __name__ == "__main__":
    main()
