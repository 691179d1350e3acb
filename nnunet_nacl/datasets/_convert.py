"""From a data set as published to nnU-Net's raw format."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.dataset_conversion.generate_dataset_json import generate_dataset_json
from tqdm import tqdm

from nnunet_nacl.datasets._check import find_problems
from nnunet_nacl.datasets._layouts import CONVERTERS, ENDING, LAYOUTS, Layout, SourceCase
from nnunet_nacl.files import whole_folder
from nnunet_nacl.nnunet import new_dataset, place

SHOWN = 10


def convert(name: str, source: str | Path, *, dataset_id: int, output: str | Path | None = None) -> Path:
    """Convert a published data set to nnU-Net's raw format.

    Everything is checked before anything is written: that no file is missing, that a case's images and mask have one
    grid, and that masks hold no other labels than published. Files are hard links or copies of the published ones,
    except for masks whose labels change.

    Args:
        name: one of ``CONVERTERS``.
        source: the folder of the data set as downloaded and unpacked.
        dataset_id: the XXX of ``DatasetXXX_NAME``, from 1 to 999.
        output: where ``DatasetXXX_NAME`` is made; by default in nnU-Net's folder ``nnUNet_raw``.

    Returns:
        The folder ``DatasetXXX_NAME``.

    Raises:
        FileExistsError: the id is taken.
        FileNotFoundError: the source is not laid out as expected.
        RuntimeError: no output is given and ``nnUNet_raw`` is not set.
        ValueError: there is no such converter, or something is wrong with cases: the first ten things are listed.
    """
    if name not in LAYOUTS:
        raise ValueError(f"There is no converter {name!r}; expected one of {', '.join(CONVERTERS)}.")
    layout = LAYOUTS[name]
    source = Path(source)
    folder = new_dataset(output, dataset_id, layout.title)
    for part in layout.folders:
        if not (source / part).is_dir():
            raise FileNotFoundError(f"{source / part} is not a folder; expected in {source}: {layout.expected}.")
    cases = layout.find(source)
    if not any(not case.is_test for case in cases):
        raise FileNotFoundError(f"There is no case in {source}; expected {layout.expected}.")
    _check(source, cases, layout)
    with whole_folder(folder) as partial:
        _write(partial, cases, layout)
    return folder


def _check(source: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    twice = [name for name, times in Counter(case.name for case in cases).items() if times > 1]
    problems = [f"{name} is the name of several cases." for name in twice]
    for case in tqdm(cases, desc="checking", unit="case"):
        problems += find_problems(case, layout.values)
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:SHOWN])
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ValueError(f"{source} cannot be converted; nothing was written.{shown}{more}")


def _write(folder: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    for case in tqdm(cases, desc="converting", unit="case"):
        part = "Ts" if case.is_test else "Tr"
        (folder / f"images{part}").mkdir(exist_ok=True)
        for channel, image in enumerate(case.images):
            place(image, folder / f"images{part}" / f"{case.name}_{channel:04d}{ENDING}")
        if case.mask is not None:
            target = folder / f"labels{part}" / f"{case.name}{ENDING}"
            target.parent.mkdir(exist_ok=True)
            if layout.relabel:
                _relabel(case.mask, target, layout)
            else:
                place(case.mask, target)
    generate_dataset_json(
        str(folder),
        channel_names=dict(enumerate(layout.channels)),
        labels=dict(layout.labels),
        num_training_cases=sum(not case.is_test for case in cases),
        file_ending=ENDING,
        dataset_name=layout.title,
        reference=layout.reference,
        license=layout.licence,
        converted_by="nnunet_nacl",
    )


def _relabel(mask: Path, target: Path, layout: Layout) -> None:
    table = np.zeros(max(layout.relabel) + 1, dtype=np.uint8)
    for old, new in layout.relabel.items():
        table[old] = new
    image = sitk.ReadImage(str(mask))
    relabelled: Any = sitk.GetImageFromArray(table[sitk.GetArrayViewFromImage(image).astype(np.intp)])
    relabelled.CopyInformation(image)
    sitk.WriteImage(relabelled, str(target))
