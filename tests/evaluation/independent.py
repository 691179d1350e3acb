"""The calibration figures of a folder once more: plain NumPy in float64, sharing no code with the package.

    python tests/evaluation/independent.py GT_FOLDER PRED_FOLDER

prints by how much they differ at most from PRED_FOLDER/calibration_summary.json. Tests call ``largest_difference``.
"""

import json
import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import distance_transform_edt

BINS = 15
EDGES = (np.arange(BINS + 1) / BINS).astype(np.float32)  # nnU-Net saves float32: k/15 is meant where it is stored


def gaps(confidence, right):
    """Share and |accuracy - confidence| of each bin (lo, hi] that is not empty; 0 belongs to the first."""
    found = []
    for m in range(BINS):
        inside = (confidence > EDGES[m]) & (confidence <= EDGES[m + 1])
        if m == 0:
            inside |= confidence == 0
        if inside.sum():
            accuracy, mean = np.mean(right[inside], dtype=np.float64), np.mean(confidence[inside], dtype=np.float64)
            found.append((inside.sum() / len(confidence), abs(accuracy - mean)))
    return np.array(found)


def ece(confidence, right):
    share, gap = gaps(confidence, right).T
    return (share * gap).sum()


def near(core, spacing):
    """Voxels within 5 mm of the core."""
    if not core.any():
        return core
    return distance_transform_edt(~core, sampling=spacing) <= 5 * (1 + 1e-6)


def expected_ece(confidence, chance, hits):
    """ECE of the bins that are expected if a voxel is in the set with ``chance`` and there and right with ``hits``."""
    total, exact = 0.0, confidence.astype(np.float64)
    confidence = confidence.astype(np.float32)  # whose edges are meant
    for m in range(BINS):
        inside = (confidence > EDGES[m]) & (confidence <= EDGES[m + 1])
        if m == 0:
            inside |= confidence == 0
        total += abs((hits[inside] - exact[inside] * chance[inside]).sum())
    return total / chance.sum()


def expected_of_classes(p, counted):
    """What foreground and union are expected to show if labels are drawn from p (K, *spatial)."""
    p = p[:, counted]
    exact, structure = p.astype(np.float64), p.argmax(0) > 0
    found = {}
    for voxels, chance in (
        ("foreground", 1 - exact[0]),
        ("union", np.where(structure, 1, 1 - exact[0])),
    ):
        by_class = [expected_ece(p[0], chance, exact[0] * structure if voxels == "union" else 0 * exact[0])]
        by_class += [expected_ece(p[k], chance, exact[k]) for k in range(1, len(p))]
        found[voxels] = {
            "ECE_expected": expected_ece(p.max(0), chance, exact.max(0) * structure),
            "CECE_expected": np.mean(by_class),
        }
    return found


def expected_of_region(p, counted, voxels):
    """The same for a region's channel (*spatial)."""
    p = p[counted]
    exact = p.astype(np.float64)
    chance = np.where(exact > 0.5, 1, exact) if voxels == "union" else exact
    confidence = np.maximum(exact, 1 - exact)
    return {
        "ECE_expected": expected_ece(confidence, chance, np.where(exact > 0.5, exact, 0)),
        "CECE_expected": expected_ece(p, chance, exact),
    }


def of_classes(p, y, voxels):
    """Figures of one voxel set; p (K, *spatial), y and voxels (*spatial)."""
    p, y = p[:, voxels], y[voxels]
    if y.size == 0:
        return {}
    top, right = p.max(0), p.argmax(0) == y
    by_class = np.array([ece(p[k], y == k) for k in range(len(p))])
    truth = np.array([y == k for k in range(len(p))], np.float64)
    p_of_y = np.array([p[label, i] for i, label in enumerate(y)], np.float64)
    return {
        "ECE": ece(top, right),
        "MCE": gaps(top, right)[:, 1].max(),
        "ACE": gaps(top, right)[:, 1].mean(),
        "CECE": by_class.mean(),
        "CECE_fg": by_class[1:].mean(),
        "CECE_sum": by_class.sum(),
        "NLL": -np.log(np.maximum(p_of_y, 2.0**-23)).mean(),
        "Brier": ((p - truth) ** 2).sum(0).mean(),
    }


def of_region(p, inside, voxels):
    """Figures of one region's channel; all (*spatial)."""
    p, inside = p[voxels].astype(np.float64), inside[voxels]
    if p.size == 0:
        return {}
    confidence, right = np.maximum(p, 1 - p), (p > 0.5) == inside
    p_of_truth = np.where(inside, p, 1 - p)
    return {
        "ECE": ece(confidence, right),
        "MCE": gaps(confidence, right)[:, 1].max(),
        "ACE": gaps(confidence, right)[:, 1].mean(),
        "CECE": ece(p, inside),
        "NLL": -np.log(np.maximum(p_of_truth, 2.0**-23)).mean(),
        "Brier": ((p - inside) ** 2).mean(),
    }


def of_case(p, y, labels, spacing):
    """Figures of a case over each voxel set, given ``labels`` of its dataset.json."""
    counted = y != labels.get("ignore", -1)
    if not any(isinstance(value, list) for value in labels.values()):
        foreground, predicted = counted & (y > 0), counted & (p.argmax(0) > 0)
        sets = {
            "foreground": foreground,
            "union": foreground | predicted,
            "near": counted & near(1 - p[0].astype(np.float64) > 0.05, spacing),
            "image": counted,
        }
        found = {name: of_classes(p, y, voxels) for name, voxels in sets.items()}
        for name, figures in expected_of_classes(p, counted).items():
            found[name] |= figures if found[name] else {}
        return found
    regions = [value for name, value in labels.items() if name not in {"background", "ignore"}]
    found = {}
    for voxels in ("foreground", "union", "near", "image"):
        by_region = []
        for channel, region in zip(p, regions, strict=True):
            inside = np.isin(y, region)
            chosen = {
                "foreground": inside,
                "union": inside | (channel > 0.5),
                "near": near(channel.astype(np.float64) > 0.05, spacing),
                "image": counted,
            }[voxels]
            figures = of_region(channel, inside, counted & chosen)
            if figures and voxels in {"foreground", "union"}:
                figures |= expected_of_region(channel, counted, voxels)
            by_region.append(figures)
        by_region = [figures for figures in by_region if figures]
        names = by_region[0] if by_region else ()
        found[voxels] = {name: np.mean([figures[name] for figures in by_region]) for name in names}
    return found


def largest_difference(gt_folder, pred_folder):
    """Over all cases and figures, and their means; raises where a figure or a case is missing."""
    gt_folder, pred_folder = Path(gt_folder), Path(pred_folder)
    summary = json.loads((pred_folder / "calibration_summary.json").read_text())
    content = json.loads((pred_folder / "dataset.json").read_text())
    differences, means = [], {}
    for entry in summary["metric_per_case"]:
        with np.load(pred_folder / f"{entry['case']}.npz") as archive:
            p = archive["probabilities"]
        image = sitk.ReadImage(str(gt_folder / f"{entry['case']}{content['file_ending']}"))
        y = sitk.GetArrayFromImage(image).astype(np.int64).reshape(p.shape[1:])
        for voxels, figures in of_case(p, y, content["labels"], image.GetSpacing()[::-1]).items():
            for name, value in figures.items():
                differences.append(abs(value - entry["calibration"][voxels][name]))
                means.setdefault((voxels, name), []).append(value)
    for (voxels, name), values in means.items():
        differences.append(abs(np.mean(values) - summary["mean"][voxels][name]))
    if len(summary["metric_per_case"]) != len(list(pred_folder.glob("*.pkl"))):
        raise ValueError("a case is missing in the summary")
    return max(differences), len(differences)


if __name__ == "__main__":
    print("largest difference {:.1e} over {} figures".format(*largest_difference(*sys.argv[1:3])))
