"""The disk space that probabilities take, estimated before anything starts."""

import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nnunet_nacl.experiments._data_set import DataSet
from nnunet_nacl.experiments._steps import Job, next_step

BYTES_PER_VALUE = 4.0
"""Of a float32 probability, deflated: 3 to 4 on nnU-Net's predictions, since most differ in all digits."""
_SAMPLED = 10


def bytes_needed(jobs: Sequence[Job], *, at_once: int) -> float | None:
    """Upper estimate of the space for the probabilities that are still to be written; None if no image size is known.

    With ``keep="summaries"`` only those of the runs that go on at the same time count.
    """
    left = [job for job in jobs if next_step(job) is not None]
    if not left:
        return 0.0
    sizes = [_bytes_of(job) for job in left]
    if any(size is None for size in sizes):
        return None
    known = sorted((size for size in sizes if size is not None), reverse=True)
    return sum(known[:at_once] if left[0].keep == "summaries" else known)


def check_disk(jobs: Sequence[Job], *, at_once: int) -> str:
    """Say what the runs need and what is free.

    Raises:
        ValueError: less is free than they need.
    """
    needed = bytes_needed(jobs, at_once=at_once)
    if needed is None:
        return "Disk space: not estimated, since the sizes of the images cannot be read."
    # Validation goes to nnU-Net's results, test cases to the output: mostly one disk. The smaller one must do.
    free = min(shutil.disk_usage(_existing(folder)).free for folder in (jobs[0].output, jobs[0].data.results))
    text = f"about {needed / 1e9:.2f} GB for probabilities, {free / 1e9:.2f} GB are free"
    if needed > free:
        way_out = "" if jobs[0].keep == "summaries" else " --keep summaries deletes probabilities once they are used."
        raise ValueError(f"Not enough disk space: {text}.{way_out}")
    return f"Disk space: {text}."


def _bytes_of(job: Job) -> float | None:
    data = job.data
    per_case = _mean_voxels(data, job.validation_cases)
    if per_case is None:
        return None
    cases = len(job.validation_cases) + len(data.test_cases)
    return per_case * cases * data.num_channels * BYTES_PER_VALUE


def _mean_voxels(data: DataSet, cases: Sequence[str]) -> float | None:
    """Mean voxels of a case, from the headers of some references."""
    sizes = list(_sizes(data.folder / "gt_segmentations" / f"{case}{data.file_ending}" for case in cases[:_SAMPLED]))
    return sum(sizes) / len(sizes) if sizes else None


def _sizes(files: Iterable[Path]) -> Iterable[int]:
    import SimpleITK as sitk

    for file in files:
        reader: Any = sitk.ImageFileReader()  # type: ignore[no-untyped-call]
        reader.SetFileName(str(file))
        try:
            reader.ReadImageInformation()
        except RuntimeError:  # a format that only nnU-Net's own reader knows
            continue
        yield math.prod(reader.GetSize())


def _existing(folder: Path) -> Path:
    while not folder.is_dir():
        folder = folder.parent
    return folder
