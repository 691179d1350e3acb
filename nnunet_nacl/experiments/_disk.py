"""The disk space that probabilities take, estimated before anything starts."""

import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nnunet_nacl.experiments._steps import Job, missing_probabilities
from nnunet_nacl.nnunet import PreprocessedDataSet

BYTES_PER_VALUE = 4.0
"""Of a float32 probability, deflated: 3 to 4 on nnU-Net's predictions, since most differ in all digits."""
_SAMPLED = 10


def bytes_needed(jobs: Sequence[Job], *, at_once: int) -> dict[Path, float]:
    """Upper estimate of the space for the probabilities that are still to be written, by folder.

    With ``keep="summaries"`` only those of the runs that go on at the same time count.
    """
    needed: dict[Path, list[float]] = defaultdict(list)
    for job in jobs:
        each = _voxels(job.data, job.validation_cases) * job.data.num_channels * BYTES_PER_VALUE
        for folder, cases in zip((job.data.results, job.output), missing_probabilities(job), strict=True):
            needed[folder].append(each * cases)
    counted = at_once if jobs[0].keep == "summaries" else len(jobs)
    return {folder: sum(sorted(sizes, reverse=True)[:counted]) for folder, sizes in needed.items()}


def check_disk(jobs: Sequence[Job], *, at_once: int) -> str:
    """Say what the runs need and what is free.

    Raises:
        ValueError: less is free than they need.
    """
    on_device: dict[int, list[tuple[Path, float]]] = defaultdict(list)
    for folder, size in bytes_needed(jobs, at_once=at_once).items():
        existing = _existing(folder)
        on_device[existing.stat().st_dev].append((existing, size))
    texts = []
    for parts in on_device.values():
        needed, free = sum(size for _, size in parts), shutil.disk_usage(parts[0][0]).free
        text = f"about {needed / 1e9:.2f} GB for probabilities, {free / 1e9:.2f} GB are free at {parts[0][0]}"
        if needed > free:
            way_out = "" if jobs[0].keep == "summaries" else " --keep summaries deletes them once they are used."
            raise ValueError(f"Not enough disk space: {text}.{way_out}")
        texts.append(text)
    return f"Disk space: {'; '.join(texts)}."


def _voxels(data: PreprocessedDataSet, cases: Sequence[str]) -> float:
    """Mean voxels of a case, from the headers of some references; 0 if only nnU-Net's own reader can read them."""
    sizes = list(_sizes(data.folder / "gt_segmentations" / f"{case}{data.file_ending}" for case in cases[:_SAMPLED]))
    return sum(sizes) / len(sizes) if sizes else 0.0


def _sizes(files: Iterable[Path]) -> Iterator[int]:
    import SimpleITK as sitk

    for file in files:
        reader: Any = sitk.ImageFileReader()  # type: ignore[no-untyped-call]
        reader.SetFileName(str(file))
        try:
            reader.ReadImageInformation()
        except RuntimeError:
            continue
        yield math.prod(reader.GetSize())


def _existing(folder: Path) -> Path:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder
