"""Fixed splits: a labelled test set, and the folds of training and validation cases.

Cases (or patients) are drawn in the order of the SHA-256 of seed and name: the same seed and names give the same split
on every machine and with every version of Python, and a case more does not shuffle the others.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from nnunet_nacl.datasets._folder import MADE_BY, planned_folder, whole_data_set
from nnunet_nacl.files import link_or_copy, whole_file
from nnunet_nacl.nnunet import SPLITS_NAME, RawDataSet, Split, nnunet_folder


def split_test(
    dataset: int | str,
    *,
    test: int | str,
    output_id: int,
    val: int | str | None = None,
    folds: int | None = None,
    by_patient: bool | str = False,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Make a data set in which some of the labelled cases of another are test cases.

    The new one has the name of the other and another id; the other is left alone. The drawn cases are in ``imagesTs``
    and ``labelsTs``, the rest in ``imagesTr`` and ``labelsTr``, as hard links where the file system has them. Test
    cases and ``splits_final.json`` of the other are not taken over.

    Args:
        dataset: number or name of a data set in ``nnUNet_raw``.
        test: how many cases to draw, or patients, or a share such as ``"20%"``.
        output_id: number of the new data set.
        val: also write the new data set's ``splits_final.json``, as :func:`split_folds` would: both or neither.
        folds: the same, as a cross-validation.
        by_patient: True to draw patients, whose cases differ in what follows the last underscore of their names
            (``patient001_frame01``), or a regular expression whose first group is the patient in a case's name.
        seed: for another draw.
        overwrite: replace an earlier split of that id, once the new one is whole.

    Returns:
        The folder of the new data set.

    Raises:
        FileExistsError: the new id is taken, or has a ``splits_final.json`` already.
        FileNotFoundError: there is no such data set, or files are missing in it.
        RuntimeError: ``nnUNet_raw`` is not set, or ``nnUNet_preprocessed`` is needed and is not.
        ValueError: no training cases would be left, a case's name has no patient, or an argument is not as expected.
    """
    source = RawDataSet.read(dataset)
    folder = planned_folder(None, output_id, source.folder.name.partition("_")[2], overwrite=overwrite)
    patients = _group(source.cases, by_patient)
    order = _draw(patients, seed)
    number = _number("test", test, len(order), by_patient)
    drawn = {case for patient in order[:number] for case in patients[patient]}
    description = {**source.description, "numTraining": len(source.cases) - len(drawn), "split_by": MADE_BY}
    if "numTest" in description:
        description["numTest"] = len(drawn)
    splits = None
    if val is not None or folds is not None:
        training = [case for case in source.cases if case not in drawn]
        splits = _splits(training, val=val, folds=folds, by_patient=by_patient, seed=seed)
        _check_splits_file(folder, overwrite=overwrite)
    with whole_data_set(folder) as partial:
        for case, files in source.cases.items():
            for file in files:
                part = file.parent.name.removesuffix("Tr") + ("Ts" if case in drawn else "Tr")
                (partial / part).mkdir(exist_ok=True)
                link_or_copy(file, partial / part / file.name)
        (partial / "dataset.json").write_text(json.dumps(description, indent=4))
    if splits is not None:
        _write_splits(folder, splits)
    return folder


def split_folds(
    dataset: int | str,
    *,
    val: int | str | None = None,
    folds: int | None = None,
    by_patient: bool | str = False,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Write the ``splits_final.json`` that nnU-Net trains by, into the data set's folder of ``nnUNet_preprocessed``.

    Works before and after ``nnUNetv2_plan_and_preprocess``.

    Args:
        dataset: number or name of a data set in ``nnUNet_raw``.
        val: one fold with so many validation cases, or patients, or a share such as ``"20%"``.
        folds: instead, a cross-validation with so many folds; with as many as cases, it leaves one out.
        by_patient: as for :func:`split_test`.
        seed: for another draw.
        overwrite: replace a split that is there.

    Returns:
        The file.

    Raises:
        FileExistsError: there is a split already, or the raw data set has one of its own.
        ValueError: as for :func:`split_test`.
    """
    source = RawDataSet.read(dataset)
    splits = _splits(list(source.cases), val=val, folds=folds, by_patient=by_patient, seed=seed)
    _check_splits_file(source.folder, overwrite=overwrite)
    _write_splits(source.folder, splits)
    return splits_file(source.folder)


def splits_file(folder: Path) -> Path:
    """Where nnU-Net looks for the splits of a raw data set.

    Raises:
        RuntimeError: ``nnUNet_preprocessed`` is not set.
    """
    return nnunet_folder("nnUNet_preprocessed") / folder.name / SPLITS_NAME


def _splits(
    cases: Sequence[str], *, val: int | str | None, folds: int | None, by_patient: bool | str, seed: int
) -> list[Split]:
    if (val is None) == (folds is None):
        raise ValueError(f"Expected either val or folds, got val={val} and folds={folds}.")
    patients = _group(cases, by_patient)
    order = _draw(patients, seed)
    if val is not None:
        validation = [order[: _number("val", val, len(order), by_patient)]]
    else:
        assert folds is not None
        if not 2 <= folds <= len(order):
            raise ValueError(
                f"folds must be from 2 to the {_count(len(order), by_patient)} that there are, got {folds}."
            )
        validation = [order[fold::folds] for fold in range(folds)]
    splits = []
    for fold in validation:
        held_out = {case for patient in fold for case in patients[patient]}
        splits.append(Split(train=[case for case in cases if case not in held_out], val=sorted(held_out)))
    return splits


def _check_splits_file(folder: Path, *, overwrite: bool) -> None:
    file = splits_file(folder)
    # nnU-Net copies the second when it plans.
    for existing in (*([] if overwrite else [file]), folder / SPLITS_NAME):
        if existing.exists():
            raise FileExistsError(f"{existing} exists already; models may have been trained by it. Remove it first.")


def _write_splits(folder: Path, splits: list[Split]) -> None:
    file = splits_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(json.dumps(splits, indent=4))


def _group(cases: Iterable[str], by_patient: bool | str) -> dict[str, list[str]]:
    """Patient -> cases; each case is its own patient if they are not told apart."""
    pattern = r"(.+)_[^_]+" if by_patient is True else by_patient or "(.+)"
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"by_patient={pattern!r} is no regular expression: {error}.") from error
    if not expression.groups:
        raise ValueError(f"by_patient={pattern!r} has no group; expected parentheses around the patient.")
    patients = defaultdict(list)
    for case in cases:
        # Our own patterns are about whole names; the user's says itself with ^ and $ what it is about.
        match = expression.search(case) if isinstance(by_patient, str) else expression.fullmatch(case)
        if not match or not match[1]:
            wanted = f"{pattern!r}" if isinstance(by_patient, str) else "PATIENT_FRAME"
            raise ValueError(f"The name of case {case} does not tell its patient; expected it to match {wanted}.")
        patients[match[1]].append(case)
    return dict(patients)


def _draw(patients: Iterable[str], seed: int) -> list[str]:
    return sorted(patients, key=lambda patient: hashlib.sha256(f"{seed} {patient}".encode()).digest())


def _number(argument: str, amount: int | str, available: int, by_patient: bool | str) -> int:
    match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", str(amount).strip())
    if not match:
        raise ValueError(f'{argument} must be a number such as 20 or a share such as "20%", got {amount!r}.')
    number = int(match[1]) if match[1] else round(Fraction(match[2]) * available / 100)
    if not 1 <= number < available:
        raise ValueError(
            f"{argument}={amount} would draw {number} of {_count(available, by_patient)}; "
            "expected at least one drawn and one left for training."
        )
    return number


def _count(number: int, by_patient: bool | str) -> str:
    return f"{number} {'patients' if by_patient else 'cases'}"
