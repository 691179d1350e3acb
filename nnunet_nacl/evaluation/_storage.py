"""The bin tables of cases in a file that ``numpy.load`` reads, from which every number can be computed again.

An ``.npz`` in all but name: nnU-Net's ensembling takes every ``.npz`` in a folder of predictions for a case.

Arrays ``VOXELS_TABLE_PART`` have the cases as first axis: VOXELS is a voxel set, TABLE is ``top`` (T, M), ``classwise``
(C, M) or ``fine`` (T, 1538), PART is ``count``, ``hits``, ``confidence`` or ``unbinned``. For foreground and union the
tables ``expected_top`` and ``expected_classwise`` hold what ``top`` and ``classwise`` would hold in expectation under
perfect calibration. Beside them are ``VOXELS_nll`` and ``VOXELS_brier`` (T), ``VOXELS_num_classes`` and
``VOXELS_image_voxels`` (T). Archives of earlier versions lack ``image_voxels`` and the expected tables. ``cases`` has
one JSON text for each case: name, files, their state, the segmentation metrics. ``header`` is a JSON text: settings,
versions, ``counting``, skipped cases.
"""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.nnunet import CaseFiles

_TABLES = ("top", "classwise", "fine")
_EXPECTED = ("expected_top", "expected_classwise")
_PARTS = tuple(field.name for field in fields(BinCounts))


def save_cases(file: Path, cases: Sequence[Case], origin: Origin, skipped: Sequence[Skipped] = ()) -> None:
    """Write cases of one origin."""
    header = {
        "settings": origin.settings_json(),
        "versions": origin.versions,
        "counting": origin.counting,
        "skipped": [asdict(one) for one in skipped],
    }
    arrays: dict[str, NDArray[Any]] = {
        "header": np.array(json.dumps(header)),
        "cases": np.array([json.dumps(_case_json(case)) for case in cases], dtype=np.str_),
    }
    for voxels in cases[0].result.calibration if cases else ():
        tables = [case.result.calibration[voxels] for case in cases]
        for name in (*_TABLES, *_EXPECTED):
            if getattr(tables[0], name) is not None:
                for part in _PARTS:
                    arrays[f"{voxels}_{name}_{part}"] = np.stack([getattr(getattr(one, name), part) for one in tables])
        for name in ("nll", "brier", "num_classes", "image_voxels"):
            if getattr(tables[0], name) is not None:
                arrays[f"{voxels}_{name}"] = np.stack([getattr(one, name) for one in tables])
    with file.open("wb") as stream:
        np.savez_compressed(stream, **cast("dict[str, Any]", arrays))


def load_cases(file: Path) -> tuple[list[Case], Origin, list[Skipped]]:
    """Read what :func:`save_cases` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or something else.
    """
    try:
        arrays = _read_arrays(file)
        header = json.loads(str(arrays["header"]))
        records = [json.loads(str(text)) for text in arrays["cases"]]
        origin = Origin.of_json(header["settings"], header["versions"], header.get("counting"))
        skipped = [Skipped(**entry) for entry in header.get("skipped", ())]
        cases = [_case(record, number, origin, arrays) for number, record in enumerate(records)]
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} does not exist.") from None
    except Exception as error:  # a damaged one makes zipfile and NumPy raise nearly anything
        raise ValueError(f"{file} cannot be read as bin tables: {error}") from error
    return cases, origin, skipped


def _read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()  # numpy.load does not always read on to a member's checksum
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return dict(arrays)


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "reference_file": str(case.files.ground_truth),
        "prediction_file": str(case.files.prediction),
        "probabilities_file": str(case.files.probabilities),
        "states": case.states,
        "segmentation": [[name, values] for name, values in case.result.segmentation.items()],
    }


def _case(record: dict[str, Any], number: int, origin: Origin, arrays: dict[str, NDArray[Any]]) -> Case:
    def counts(prefix: str) -> BinCounts:
        return BinCounts(*(arrays[f"{prefix}_{part}"][number] for part in _PARTS))

    calibration = {
        voxels: CalibrationTables(
            **{name: counts(f"{voxels}_{name}") for name in _TABLES},
            **{name: counts(f"{voxels}_{name}") for name in _EXPECTED if f"{voxels}_{name}_count" in arrays},
            nll=arrays[f"{voxels}_nll"][number],
            brier=arrays[f"{voxels}_brier"][number],
            num_classes=int(arrays[f"{voxels}_num_classes"][number]),
            has_background=origin.labels.has_background,
            image_voxels=arrays[f"{voxels}_image_voxels"][number] if f"{voxels}_image_voxels" in arrays else None,
        )
        for voxels in origin.settings.voxels
    }
    segmentation = {tuple(name) if isinstance(name, list) else name: values for name, values in record["segmentation"]}
    files = (Path(record[f"{role}_file"]) for role in ("reference", "prediction", "probabilities"))
    return Case(CaseFiles(record["case"], *files), CaseResult(calibration, segmentation), record["states"])
