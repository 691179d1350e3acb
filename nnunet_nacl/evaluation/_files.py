"""The files of a result: a summary, and beside it the cases in long form and the bin tables."""

import glob
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from nnunet_nacl.cases import Skipped
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._result import Case, FolderResult
from nnunet_nacl.files import check_input, whole_file, write_csv
from nnunet_nacl.metrics import (
    NLL_CLIP,
    CalibrationTables,
    CaseResult,
    Estimate,
    mean_of_known,
)
from nnunet_nacl.nnunet import CaseFiles
from nnunet_nacl.typing import Record

SUMMARY_NAME = "calibration_summary.json"
# An .npz under another name: nnU-Net's ensembling would take it for a case.
BINS = "bins.zip"
_States = dict[str, list[str | int] | None]
_HEADER = TypeAdapter(tuple[Origin, list[tuple[CaseFiles, _States]], list[Skipped], list[str]])


def write_result(result: FolderResult, summary: str | Path) -> None:
    """Write the summary, and beside it the cases in long form and the bin tables; replaces existing files."""
    summary, cases, bins = files_of(Path(summary))
    # The old files are replaced once all new ones are written.
    with (
        whole_file(summary) as to_summary,
        whole_file(cases) as to_cases,
        whole_file(bins) as to_bins,
    ):
        save_tables(result, to_bins)
        rows = result.to_dataframe()
        write_csv(to_cases, [rows.columns, *rows.itertuples(index=False)])
        to_summary.write_text(json.dumps(summary_of(result), indent=2) + "\n")


def read_result(summary: str | Path) -> FolderResult:
    """Read a result from the bin tables beside its summary; errors as for ``load_tables``."""
    return replace(load_tables(_beside(Path(summary), BINS)), file=Path(summary))


def read_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if no such file exists, the results of the parts written under that name.

    Raises a FileNotFoundError if there is neither, a ValueError if a file is damaged.
    """
    summary = Path(summary)
    pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
    parts = [] if _beside(summary, BINS).is_file() else sorted(summary.parent.glob(pattern))
    return [read_result(file) for file in parts or [summary]]


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def files_of(summary: Path) -> tuple[Path, Path, Path]:
    """The summary, the cases in long form, the bin tables."""
    return summary, _beside(summary, "cases.csv"), _beside(summary, BINS)


def _beside(summary: Path, name: str) -> Path:
    """``x_NAME`` for ``x_summary.json``, ``x.NAME`` for ``x.json``: no two summaries share a file."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{name}" if prefix != summary.stem else f"{prefix}.{name}")


# The summary


def summary_of(result: FolderResult) -> Record:
    """The content of ``calibration_summary.json``."""
    mean = _over_cases(lambda values: float(mean_of_known(values)), result.figures)
    interval = _over_cases(
        lambda values: Estimate.of_means(np.array(values)[:, None]).interval, result.figures
    )
    pooled = {}
    for voxels, tables in result.all_voxels.items():
        pooled[voxels] = {**result.pooled(voxels), "classes": result.by_class(tables)}
    cases = []
    for case, figures in zip(result.cases, result.figures, strict=True):
        files = {
            "reference_file": str(case.files.ground_truth),
            "prediction_file": str(case.files.prediction),
            "probabilities_file": str(case.files.probabilities),
        }
        cases.append({"case": case.name, **files, **figures})
    with_voxels = {v: int((~np.isnan(result.values(v, "ECE"))).sum()) for v in result.voxels}
    return {
        "settings": {**result.origin.settings_json(), "nll_clip": NLL_CLIP},
        "versions": result.origin.versions,
        "notes": result.notes,
        "num_cases": {"evaluated": len(result.cases), **with_voxels},
        "mean": mean.get("calibration", {}),
        "interval": interval.get("calibration", {}),
        "pooled": pooled,
        "pooled_interval": {voxels: result.pooled_interval(voxels) for voxels in result.voxels},
        "segmentation": {
            "mean": mean.get("segmentation", {}),
            "interval": interval.get("segmentation", {}),
            "foreground_mean": {
                name: result.foreground_mean(name) for name in result.segmentation_metrics
            },
        },
        "metric_per_case": cases,
        "skipped": [asdict(entry) for entry in result.skipped],
    }


def _over_cases(function: Callable[[Sequence[float]], Any], cases: Sequence[Any]) -> Record:
    """``function`` of the values of all cases, for each value of a nested dictionary."""
    found = {}
    for key, value in (cases[0] if cases else {}).items():
        of_key = [case[key] for case in cases]
        found[key] = _over_cases(function, of_key) if isinstance(value, dict) else function(of_key)
    return found


# The bin tables


def save_tables(result: FolderResult, file: Path) -> None:
    """Write everything that determines the numbers, as NumPy's ``.npz`` with cases as the first axis."""
    files = [(asdict(case.files), case.states) for case in result.cases]
    skipped = [asdict(entry) for entry in result.skipped]
    header = asdict(result.origin), files, skipped, result.segmentation_metrics
    text = json.dumps(header, default=str, ensure_ascii=False).encode(errors="replace").decode()
    segmentation = []
    for case in result.cases:
        of_structures = case.result.segmentation.values()
        segmentation.append([list(metrics.values()) for metrics in of_structures])
    arrays: Record = {"header": np.array(text), "segmentation": segmentation}
    for voxels in result.voxels if result.cases else ():
        tables = [table.arrays() for table in result.tables(voxels)]
        for name in tables[0]:
            arrays[f"{voxels}_{name}"] = [of_case[name] for of_case in tables]
    with file.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_tables(file: Path) -> FolderResult:
    """Read what ``save_tables`` wrote; a ValueError if the file is damaged or something else."""
    check_input(file)
    try:
        with file.open("rb") as stream, np.lib.npyio.NpzFile(stream) as archive:
            arrays = dict(archive)
        origin, files, skipped, metrics = _HEADER.validate_json(str(arrays["header"]))
        cases = []
        for number, (of_case, states) in enumerate(files):
            cases.append(Case(of_case, _read_case(number, arrays, origin, metrics), states))
        return FolderResult(cases, skipped, origin)
    except Exception as error:  # a damaged one makes zipfile and NumPy raise nearly anything
        raise ValueError(f"{file} cannot be read as bin tables: {error}") from error


def _read_case(
    number: int, arrays: dict[str, NDArray[Any]], origin: Origin, metrics: list[str]
) -> CaseResult:
    calibration = {}
    for voxels in origin.settings.voxels:
        prefix = f"{voxels}_"
        of_set = {}
        for name, of_cases in arrays.items():
            if name.startswith(prefix):
                of_set[name.removeprefix(prefix)] = of_cases[number]
        calibration[voxels] = CalibrationTables.of_arrays(of_set, origin.labels.activation)
    values = [dict(zip(metrics, of, strict=True)) for of in arrays["segmentation"][number].tolist()]
    return CaseResult(calibration, dict(zip(origin.labels.structures, values, strict=True)))
