"""The calibration figures of a folder once more: plain NumPy in float64, sharing no code with the package.

    python tests/evaluation/independent.py GT_FOLDER PRED_FOLDER

prints by how much they differ at most from PRED_FOLDER/calibration_summary.json. Tests call ``largest_difference``.
"""

import json
import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk

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


def of_case(p, y, labels):
    """Foreground and union figures of a case, given ``labels`` of its dataset.json."""
    counted = y != labels.get("ignore", -1)
    if not any(isinstance(value, list) for value in labels.values()):
        foreground, predicted = counted & (y > 0), counted & (p.argmax(0) > 0)
        return {"foreground": of_classes(p, y, foreground), "union": of_classes(p, y, foreground | predicted)}
    regions = [value for name, value in labels.items() if name not in {"background", "ignore"}]
    found = {}
    for voxels in ("foreground", "union"):
        by_region = []
        for channel, region in zip(p, regions, strict=True):
            inside = np.isin(y, region)
            chosen = inside if voxels == "foreground" else inside | (channel > 0.5)
            by_region.append(of_region(channel, inside, counted & chosen))
        by_region = [figures for figures in by_region if figures]
        names = by_region[0] if by_region else ()
        found[voxels] = {name: np.mean([figures[name] for figures in by_region]) for name in names}
    return found


def largest_difference(gt_folder, pred_folder):
    """Over all cases and figures, and the means; raises where a figure or a case is missing."""
    gt_folder, pred_folder = Path(gt_folder), Path(pred_folder)
    summary = json.loads((pred_folder / "calibration_summary.json").read_text())
    content = json.loads((pred_folder / "dataset.json").read_text())
    differences, means = [], {}
    for entry in summary["metric_per_case"]:
        with np.load(pred_folder / f"{entry['case']}.npz") as archive:
            p = archive["probabilities"]
        y = sitk.GetArrayFromImage(sitk.ReadImage(str(gt_folder / f"{entry['case']}{content['file_ending']}")))
        for voxels, figures in of_case(p, y.astype(np.int64).reshape(p.shape[1:]), content["labels"]).items():
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
