"""The files of a result: a summary, and beside it the cases in long form and the record of what was counted."""

import glob
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from nnunet_nacl.cases import Skipped
from nnunet_nacl.evaluation._origin import COUNTING, Origin
from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.files import check_input, file_state, whole_file, write_csv
from nnunet_nacl.metrics import (
    NLL_CLIP,
    Estimate,
    each_column,
    mean_of_known,
    no_counts,
)
from nnunet_nacl.nnunet import CaseFiles
from nnunet_nacl.typing import Record

SUMMARY_NAME = "calibration_summary.json"
# An .npz under another name: nnU-Net's ensembling would take it for a case.
BINS = "bins.zip"
_States = dict[str, list[str | int] | None]
_HEADER = TypeAdapter(tuple[Origin, list[tuple[CaseFiles, _States]], list[Skipped], list[str]])


def write_result(result: FolderResult, summary: str | Path) -> None:
    """Write the summary, and beside it the cases in long form and the record; replaces existing files."""
    summary, cases, bins = files_of(Path(summary))
    # The old files are replaced once all new ones are written.
    with (
        whole_file(summary) as to_summary,
        whole_file(cases) as to_cases,
        whole_file(bins) as to_bins,
    ):
        save_counts(result, to_bins)
        rows = result.to_dataframe()
        write_csv(to_cases, [rows.columns, *rows.itertuples(index=False)])
        to_summary.write_text(json.dumps(summary_of(result), indent=2) + "\n")


def write_record(result: FolderResult, summary: Path) -> None:
    """Write the record beside a summary; replaces an existing file."""
    with whole_file(_beside(summary, BINS)) as file:
        save_counts(result, file)


def read_result(summary: str | Path) -> FolderResult:
    """Read a result from the record beside its summary; errors as for ``load_counts``."""
    result = read_counts(Path(summary))
    if not result.origin.has_truth:
        raise ValueError(
            f"{_beside(Path(summary), BINS)} was counted without ground truth, by a review. Evaluate the predictions: "
            "nnunet_nacl evaluate."
        )
    return result


def read_counts(summary: Path) -> FolderResult:
    """What ``evaluate`` or a review counted; errors as for ``load_counts``."""
    return replace(
        _moved(load_counts(_beside(summary, BINS)), summary.absolute().parent), file=summary
    )


def _moved(result: FolderResult, home: Path) -> FolderResult:
    """With the paths of the summary's folder, if all predictions lie there: it was moved or renamed since."""
    (folders, *others) = result.origin.folders
    if others or not result.files or Path(folders.pred_folder) == home:
        return result
    moved: list[Record] = []
    for states in result.states:
        at_home = {
            role: file_state(home / Path(states[role][0]).name)
            for role in ("prediction", "probabilities")
        }
        if any(state is None or state[1:] != states[role][1:] for role, state in at_home.items()):
            return result
        moved.append({**states, **at_home})
    folders = replace(folders, pred_folder=str(home))
    return replace(result, states=moved, origin=replace(result.origin, folders=(folders,)))


def read_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if no such file exists, the results of the parts written under that name.

    Raises a FileNotFoundError if there is neither, a ValueError if a file is damaged.
    """
    summary = Path(summary)
    pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
    parts = sorted(summary.parent.glob(pattern))
    is_whole = _beside(summary, BINS).is_file()
    if parts and is_whole:  # a review of the whole folder needs no ground truth
        is_whole = read_counts(summary).origin.has_truth
    return [read_result(file) for file in (parts if parts and not is_whole else [summary])]


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def files_of(summary: Path) -> tuple[Path, Path, Path]:
    """The summary, the cases in long form, the record."""
    return summary, _beside(summary, "cases.csv"), _beside(summary, BINS)


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


# The summary


def summary_of(result: FolderResult) -> Record:
    """The content of ``calibration_summary.json``."""
    mean = result.figures(lambda values: float(mean_of_known(values)))
    interval = result.figures(lambda values: Estimate.of_means(values[:, None]).interval)
    pooled = {}
    for voxels, tables in result.all_voxels.items():
        pooled[voxels] = {**result.pooled(voxels), "classes": result.by_class(tables)}
    cases = []
    for row, files in enumerate(result.files):
        of_case = {
            "case": files.name,
            "reference_file": str(files.ground_truth),
            "prediction_file": str(files.prediction),
            "probabilities_file": str(files.probabilities),
        }
        cases.append(of_case | result.figures_of(row))
    with_voxels = {}
    for voxels in result.voxels if result.files else ():
        with_voxels[voxels] = int((~np.isnan(result.values(voxels, "ECE"))).sum())
    return {
        "settings": {**result.origin.settings_json(), "nll_clip": NLL_CLIP},
        "versions": result.origin.versions,
        "notes": result.notes,
        "num_cases": {"evaluated": len(result.cases), **with_voxels},
        "mean": mean["calibration"],
        "interval": interval["calibration"],
        "pooled": pooled,
        "pooled_interval": {voxels: result.pooled_interval(voxels) for voxels in result.voxels},
        "segmentation": {
            "mean": mean["segmentation"],
            "interval": interval["segmentation"],
            "foreground_mean": {
                name: result.foreground_mean(name) for name in result.segmentation_metrics
            },
        },
        "metric_per_case": cases,
        "skipped": [asdict(entry) for entry in result.skipped],
    }


# The record


def save_counts(result: FolderResult, file: Path) -> None:
    """Write everything that determines the numbers, as NumPy's ``.npz`` of the record's columns."""
    files = list(zip(map(asdict, result.files), result.states, strict=True))
    skipped = [asdict(entry) for entry in result.skipped]
    header = asdict(result.origin), files, skipped, result.segmentation_metrics
    text = json.dumps(header, default=str, ensure_ascii=False).encode(errors="replace").decode()
    arrays: Record = {"header": np.array(text)}

    def add(name: str, column: NDArray[Any]) -> NDArray[Any]:
        arrays[name] = column
        return column

    each_column(add, result.counts)
    with file.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_counts(file: Path) -> FolderResult:
    """Read what ``save_counts`` wrote; a ValueError if the file is damaged, of another version or something else."""
    check_input(file)
    with _reading(file):
        with file.open("rb") as stream, np.lib.npyio.NpzFile(stream) as archive:
            arrays = dict(archive)
        origin, files, skipped, metrics = _HEADER.validate_json(str(arrays["header"]))
    if origin.counting != COUNTING:
        raise ValueError(
            f"{file} was counted by another version of nnunet_nacl. Evaluate again: {origin.evaluate_command}"
        )
    with _reading(file):
        empty = no_counts(origin.labels, origin.settings, has_truth=origin.has_truth)
        like = replace(empty, segmentation_metrics={name: np.zeros(0) for name in metrics})
        counts = each_column(lambda name, _: arrays[name], like)
    of_cases = [of_case for of_case, _ in files]
    states: list[Record] = [dict(of_case) for _, of_case in files]
    return FolderResult(of_cases, states, counts, skipped, origin)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """A damaged file makes zipfile and NumPy raise nearly anything."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file} cannot be read as bin tables: {error}") from error
