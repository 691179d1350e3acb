"""Segmentations by a threshold for each structure, chosen for recall, for Dice, or by the user."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import write_json
from nnunet_nacl.metrics import LabelMeaning, above
from nnunet_nacl.new_folder import WrittenCases, new_predictions, write_cases
from nnunet_nacl.nnunet import DECODED_NAME, CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import ByName, Floats, Labels
from nnunet_nacl.use._review_fit import ReviewFit


@dataclass(frozen=True)
class DecodedCase:
    """How a case was decoded.

    Attributes:
        thresholds: one per class k ≥ 1, or region.
        shared_voxels: number of voxels in which a structure reaches its threshold, but another gets the label; None if
            decoded for Dice.
    """

    thresholds: list[float]
    shared_voxels: int | None = None


def decode_folder(
    pred_folder: str | Path,
    output: str | Path,
    *,
    fit: str | Path | None = None,
    alpha: float | None = None,
    thresholds: Mapping[str, float] | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> WrittenCases[DecodedCase]:
    """Write a folder of predictions with other segmentations: with a guaranteed recall, by thresholds, or for Dice.

    By thresholds, given or with a guaranteed recall: p ≥ λ; of the classes that reach their λ in a voxel, the most
    probable one gets it, and each region is written over those before it in ``regions_class_order``. The guarantee is
    that of each structure's mask p ≥ λ: a segmentation in which masks overlap may miss more. For Dice, the library
    ``rankseg`` chooses the segmentations (Dai & Li, JMLR 2023; Wang & Dai, NeurIPS 2025).

    Probabilities are hard links, or copies where the file system has none; the other files of nnU-Net's folders are
    copied. ``decoded.json`` marks the folder and holds the thresholds of each case and the notes. A case that cannot be
    decoded is not in the folder, but in ``skipped``.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        fit: file that ``fit_review`` wrote, for thresholds λ with a guaranteed recall.
        alpha: with a fit, the largest share of each structure that may be missed, on average; by default, 0.1.
        thresholds: λ by the structure's name; 0.5 for structures that are not named.
        num_processes: how many cases are decoded at a time.
        overwrite: write into a folder that is not empty, and replace these cases there.
    """
    if (alpha is not None and fit is None) or (thresholds and fit is not None):
        raise ValueError(
            "expected either a fit (--fit FIT.json), with or without alpha, or thresholds: without a fit, no recall is "
            "guaranteed."
        )
    if fit is not None and alpha is None:
        alpha = 0.1
    predictions = Predictions.of_folder(None, pred_folder)
    predictions.data_set.check_regions()
    meaning = predictions.data_set.meaning
    metric, of_structures, notes = _rule(predictions, fit, alpha, thresholds)
    folder = new_predictions(predictions, output, overwrite=overwrite)
    mark: ByName = {
        "metric": metric,
        "alpha": alpha,
        "fit": None if fit is None else str(fit),
        "pred_folder": str(predictions.home),
        "structures": meaning.names,
        "cases": {},
    }
    # First, since segmentations are decoded also if this process is killed in between
    write_json(folder / DECODED_NAME, mark)
    written = write_cases(
        predictions,
        folder,
        "decoded",
        partial(
            _write_case, folder=folder, thresholds=of_structures, data_set=predictions.data_set
        ),
        num_processes=num_processes,
    )
    written.notes.extend([*_notes(list(written.results.values()), meaning, alpha), *notes])
    cases = {name: asdict(case) for name, case in written.results.items()}
    mark |= {"notes": written.notes, "cases": cases}
    written.write_mark(DECODED_NAME, mark)
    return written


def _rule(
    predictions: Predictions,
    fit: str | Path | None,
    alpha: float | None,
    thresholds: Mapping[str, float] | None,
) -> tuple[str, list[float] | None, list[str]]:
    """Return what to decode for, the threshold of each structure, and notes; for Dice, rankseg needs no threshold."""
    names = predictions.data_set.meaning.names
    made = predictions.provenance
    if fit is not None and alpha is not None:
        review_fit = ReviewFit.read(fit)
        # The segmentations that there are play no part
        made = replace(made, decoded=review_fit.provenance.decoded)
        notes = review_fit.check(made, predictions.home)
        return "recall", [review_fit.recall_threshold(name, alpha) for name in names], notes
    if thresholds:
        if unknown := set(thresholds) - set(names):
            raise ValueError(f"no structure {min(unknown)}; there are {', '.join(names)}.")
        for name, given in thresholds.items():
            if not 0 < given <= 1:
                raise ValueError(f"{name}: expected a threshold above 0, at most 1; got {given:g}.")
        of_structures = [thresholds.get(name, 0.5) for name in names]
        listed = ", ".join(map("{} {:g}".format, names, of_structures))
        return f"thresholds {listed}", of_structures, []
    try:
        import rankseg  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "For the highest expected Dice, decode needs the library rankseg: pip install -e '.[rankseg]'"
        ) from error
    hint = "Calibrated probabilities give the best outline for Dice: see nnunet_nacl calibrate."
    return "dice", None, [] if made.calibration else [hint]


def _notes(cases: Sequence[DecodedCase], meaning: LabelMeaning, alpha: float | None) -> list[str]:
    """Say which thresholds were used, how often masks overlap, and what is guaranteed with an alpha."""
    means = map(fmean, zip(*(case.thresholds for case in cases), strict=True))
    listed = ", ".join(map("{} {:.3f}".format, meaning.names, means))
    notes = [f"Thresholds, mean over cases: {listed}."]
    segmentations = "Here, the segmentations hold these masks."
    if shared := sum(case.shared_voxels or 0 for case in cases):
        winner = "last in regions_class_order"
        if meaning.activation.exclusive:
            winner = "most probable one"
        notes.append(
            f"In {shared:,} voxels several structures reach their thresholds; the {winner} gets them."
        )
        segmentations = (
            "The segmentations may miss more, since the masks overlap. To get the masks, compare probabilities "
            f"(maps --what structures --dtype float32) with the thresholds in {DECODED_NAME}."
        )
    if alpha is not None:
        notes.append(
            f"The guarantee, to miss at most {alpha:g} of a structure on average, is that of its mask p >= threshold. "
            f"{segmentations}"
        )
    return notes


def _write_case(
    files: CaseFiles, *, folder: Path, thresholds: Sequence[float] | None, data_set: DataSet
) -> DecodedCase:
    probabilities = SavedCase(files, data_set).probabilities()
    if thresholds is None:
        labels, decoded = _by_rankseg(probabilities, data_set.meaning)
    else:
        labels, decoded = _by_thresholds(probabilities, data_set.meaning, thresholds)
    files.write(folder, data_set.reader, labels=labels)
    return decoded


def _by_thresholds(
    probabilities: Floats,
    meaning: LabelMeaning,
    thresholds: Sequence[float],
    *,
    or_equal: bool = True,
) -> tuple[Labels, DecodedCase]:
    """Give a voxel the most probable class that reaches its threshold, or the last region that does."""
    of_structures = probabilities[meaning.activation.first_structure :]
    labels = np.zeros(of_structures.shape[1:], np.min_scalar_type(max(meaning.known)))
    highest = np.full_like(of_structures[0], -1)
    reached = []
    written = meaning.written or meaning.known[1:]
    for label, p, threshold in zip(written, of_structures, thresholds, strict=True):
        mask = above(p, threshold, or_equal=or_equal)
        reached.append(mask)
        own = mask
        if meaning.activation.exclusive:
            own = mask & (p > highest)  # of equally probable classes the first wins
            highest[own] = p[own]
        labels[own] = label
    is_shared = np.zeros(labels.shape, bool)
    for number, mask in enumerate(reached):
        is_shared |= mask & ~meaning.mask(labels, number)
    return labels, DecodedCase(list(thresholds), shared_voxels=int(is_shared.sum()))


def _by_rankseg(probabilities: Floats, meaning: LabelMeaning) -> tuple[Labels, DecodedCase]:
    """Decode by rankseg; the threshold of a structure is below the smallest p of its voxels, 1 if it has none."""
    import torch
    from rankseg import rankseg_rma

    of_structures = probabilities[meaning.activation.first_structure :]
    given = torch.from_numpy(of_structures.astype(np.float32))[None]
    if meaning.activation.exclusive:
        void = max(255, len(probabilities))
        chosen = rankseg_rma(given, unassigned_policy="void", void_index=void)[0].numpy()
        labels = np.where(chosen == void, 0, chosen + 1).astype(
            np.min_scalar_type(len(of_structures))
        )
        masks = [labels == label for label in range(1, len(probabilities))]
    else:
        masks = list(rankseg_rma(given, output_mode="multilabel")[0].numpy())
    thresholds = [
        float(min(np.nextafter(float(p[mask].min(initial=2)), 0), 1))
        for p, mask in zip(of_structures, masks, strict=True)
    ]
    if not meaning.activation.exclusive:
        # With all voxels that are as probable as the last one
        labels, _ = _by_thresholds(probabilities, meaning, thresholds, or_equal=False)
    return labels, DecodedCase(thresholds)
