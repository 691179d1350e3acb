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
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._settings import Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.json_files import parse_json, typed
from nnunet_nacl.metrics import NUM_FINE_BINS, BinCounts
from nnunet_nacl.nnunet import CaseFiles, Region

_TABLES = ("top", "classwise", "fine")
_EXPECTED = ("expected_top", "expected_classwise")
_PARTS = tuple(part.name for part in fields(BinCounts))
_ROUNDING = 1e-6
"""Of sums of confidences."""


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
        header = typed(parse_json(_text(arrays, "header"), "its header"), _Header, "its header", "header")
        origin = Origin.of_json(header.settings, header.versions, header.counting)
        records = [
            typed(parse_json(str(text), f"case {number}"), _Record, f"case {number}", "case")
            for number, text in enumerate(arrays["cases"].reshape(-1))
        ]
        _check_records(records, origin)
        tables = {voxels: _tables(voxels, len(records), origin, arrays) for voxels in origin.settings.voxels}
        cases = [record.case_with({v: rows[n] for v, rows in tables.items()}) for n, record in enumerate(records)]
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} does not exist.") from None
    except Exception as error:  # a damaged one makes zipfile and NumPy raise nearly anything
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{file} cannot be read as bin tables: {reason}") from error
    return cases, origin, header.skipped


@dataclass(frozen=True)
class _Header:
    settings: dict[str, Any]
    versions: dict[str, str]
    counting: int | None = None
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True)
class _Record:
    """What is kept of a case beside its tables."""

    case: str
    reference_file: str
    prediction_file: str
    probabilities_file: str
    states: dict[str, list[str | int] | None]
    segmentation: list[tuple[int | list[int], dict[str, float]]]

    def structures(self) -> dict[int | Region, dict[str, float]]:
        return {tuple(name) if isinstance(name, list) else name: values for name, values in self.segmentation}

    def case_with(self, tables: dict[Voxels, CalibrationTables]) -> Case:
        truth, prediction, probabilities = map(
            Path, (self.reference_file, self.prediction_file, self.probabilities_file)
        )
        return Case(
            CaseFiles(self.case, truth, prediction, probabilities), CaseResult(tables, self.structures()), self.states
        )


def _check_records(records: Sequence[_Record], origin: Origin) -> None:
    """Raise a ValueError unless each case has the metrics of the data set's structures."""
    expected = origin.labels.structures
    needed = {"Dice", "HD95", "NSD"} if origin.settings.surface else {"Dice"}
    for case, following in pairwise(sorted(record.case for record in records)):
        if case == following:
            raise ValueError(f"the case {case} is in it twice")
    for record in records:
        structures = record.structures()
        if list(structures) != expected:
            raise ValueError(f"{record.case}: expected metrics of the structures {expected}; got {list(structures)}")
        for structure, values in structures.items():
            if not needed <= values.keys() or values.keys() != records[0].segmentation[0][1].keys():
                raise ValueError(f"{record.case}: the structure {structure} has other metrics: {', '.join(values)}")
        if set(record.states) != {"reference", "prediction", "probabilities"}:
            raise ValueError(f"{record.case}: expected the states of its three files; got {', '.join(record.states)}")


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


def _tables(voxels: Voxels, cases: int, origin: Origin, arrays: dict[str, NDArray[Any]]) -> list[CalibrationTables]:
    """The tables of each case over a voxel set, once shapes, types and ranges are checked."""
    channels, bins = origin.labels.num_channels, origin.settings.num_bins
    rows = {"top": 1 if origin.labels.has_background else channels, "classwise": channels}
    rows |= {"fine": rows["top"], **{f"expected_{name}": number for name, number in rows.items()}}
    if not cases:
        return []

    def numbers(name: str, *shape: int, kinds: str = "iu") -> NDArray[Any]:
        array = arrays[f"{voxels}_{name}"]
        if array.shape != (cases, *shape) or array.dtype.kind not in kinds:
            expected = "integers" if kinds == "iu" else "numbers"
            raise ValueError(
                f"{voxels}_{name}: expected {expected} of shape {(cases, *shape)}; got {array.dtype} of {array.shape}"
            )
        if not np.isfinite(array).all() or (array < 0).any():
            raise ValueError(f"{voxels}_{name}: expected finite numbers of at least 0")
        return array

    def counts(name: str) -> BinCounts:
        shape = (rows[name], NUM_FINE_BINS if name == "fine" else bins)
        kinds = "iuf" if name in _EXPECTED else "iu"
        table = BinCounts(
            numbers(f"{name}_count", *shape, kinds=kinds),
            numbers(f"{name}_hits", *shape, kinds=kinds),
            numbers(f"{name}_confidence", *shape, kinds="f"),
            numbers(f"{name}_unbinned", rows[name], kinds=kinds),
        )
        for part, most in (("hits", table.hits), ("confidence", table.confidence)):
            if (most > table.count * (1 + _ROUNDING) + _ROUNDING).any():
                raise ValueError(f"{voxels}_{name}_{part}: expected no more than {voxels}_{name}_count")
        return table

    tables = {name: counts(name) for name in _TABLES}
    tables |= {name: counts(name) for name in _EXPECTED if f"{voxels}_{name}_count" in arrays}
    nll, brier = (numbers(name, rows["top"], kinds="f") for name in ("nll", "brier"))
    num_classes = numbers("num_classes")
    if (num_classes > channels).any():
        raise ValueError(f"{voxels}_num_classes: expected at most {channels}")
    image = numbers("image_voxels", rows["top"]) if f"{voxels}_image_voxels" in arrays else None
    return [
        CalibrationTables(
            **{name: table[number] for name, table in tables.items()},
            nll=nll[number],
            brier=brier[number],
            num_classes=int(num_classes[number]),
            has_background=origin.labels.has_background,
            image_voxels=None if image is None else image[number],
        )
        for number in range(cases)
    ]


def _text(arrays: dict[str, NDArray[Any]], name: str) -> str:
    if arrays[name].shape != ():
        raise ValueError(f"{name}: expected one text")
    return str(arrays[name])
