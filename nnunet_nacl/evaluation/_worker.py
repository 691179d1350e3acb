"""The work on one case's files; worker processes import this and nothing slow."""

import os
import signal
import threading
from multiprocessing import parent_process

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import CaseResult, calibration_tables, canonical_labels
from nnunet_nacl.evaluation._checks import check_shape
from nnunet_nacl.evaluation._segmentation import segmentation_metrics
from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.nnunet import BLOCK, CaseFiles, DataSet, LabelMeaning, NpzChannels, read_labels


def evaluate_files(files: CaseFiles, data_set: DataSet, settings: Settings) -> CaseResult:
    """Evaluate one case.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    channels = NpzChannels(files.probabilities)
    reference, spacing = read_labels(files.ground_truth, data_set.reader)
    check_shape(channels.shape, reference.shape, channels.name)
    if channels.shape[0] != meaning.num_channels:
        kind = "labels" if meaning.regions is None else "regions"
        raise ValueError(
            f"{files.probabilities}: shape {channels.shape} has {channels.shape[0]} channels (the first axis), but the "
            f"data set has {meaning.num_channels} {kind}."
        )
    labels = canonical_labels(reference, meaning, data_set.ignore_label, str(files.ground_truth))
    del reference
    prediction, _ = read_labels(files.prediction, data_set.reader)
    if prediction.shape != labels.shape:
        raise ValueError(
            f"{files.prediction}: the shape {prediction.shape} does not match the reference's, {labels.shape}."
        )
    prediction = canonical_labels(prediction, meaning, None, str(files.prediction))
    segmentation = segmentation_metrics(
        labels, prediction, meaning.names, ignored=meaning.ignored, spacing=spacing, settings=settings
    )
    right, predicted = _right_in_foreground(labels, prediction, meaning), (prediction > 0).astype(np.uint8)
    del prediction  # nothing more of the image's size than needed is in memory while the probabilities pass
    try:
        calibration = calibration_tables(channels, labels, predicted, meaning, spacing=spacing, settings=settings)
    except ValueError:
        for _ in channels.blocks():
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise
    if "foreground" in calibration:
        _compare_hits(calibration["foreground"].top.hits.sum(-1), right, files)
    return CaseResult(calibration, segmentation)


def check_same_grid(
    hits: NDArray[np.int64],
    labels: NDArray[np.unsignedinteger],
    prediction: NDArray[np.unsignedinteger],
    meaning: LabelMeaning,
    files: CaseFiles,
) -> None:
    """Raise a ValueError if the probabilities are right in far fewer foreground voxels than the saved segmentation.

    Postprocessing makes a segmentation lose voxels, hardly ever gain any. So much worse are only probabilities of
    another model, or a segmentation that was read with its axes flipped.
    """
    _compare_hits(hits, _right_in_foreground(labels, prediction, meaning), files)


def _right_in_foreground(
    labels: NDArray[np.unsignedinteger], prediction: NDArray[np.unsignedinteger], meaning: LabelMeaning
) -> NDArray[np.int64]:
    """In how many foreground voxels the saved segmentation is right: of classes (1,), of regions (R,)."""
    # Where classes agree with the ground truth; where a region has written its label and the ground truth is in it. A
    # region's mask can be larger than what it has written, since later regions write over it, but not smaller.
    right = np.zeros(1 if meaning.regions is None else len(meaning.regions), np.int64)
    for start in range(0, labels.size, BLOCK):
        truth, saved = (array.reshape(-1)[start : start + BLOCK] for array in (labels, prediction))
        if meaning.regions is None:
            right[0] += np.count_nonzero((saved == truth) & (truth > 0))
        for number, (label, region) in enumerate(zip(meaning.written, meaning.regions or (), strict=True)):
            right[number] += np.count_nonzero((saved == label) & np.isin(truth, region))
    return right


def _compare_hits(hits: NDArray[np.int64], right: NDArray[np.int64], files: CaseFiles) -> None:
    for count, saved_count in zip(hits, right, strict=True):
        if count < 0.8 * saved_count - 10:
            raise ValueError(
                f"{files.probabilities}: the probabilities are right in {count} voxels of the foreground, the "
                f"segmentation {files.prediction.name} in {saved_count}. Are they of another model, or is the "
                "orientation read wrongly? The latter is decided by the reader that plans.json (-pfile) names."
            )


def attempt(files: CaseFiles, data_set: DataSet, settings: Settings) -> CaseResult | str:
    """The result, or the reason why there is none: a bad case must not take the others' results with it."""
    try:
        return evaluate_files(files, data_set, settings)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001
        return f"{files.probabilities}: {type(error).__name__}: {error}"


def start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
