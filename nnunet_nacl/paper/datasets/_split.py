"""Fixed splits: a labeled test set, and the folds of training and validation cases.

Cases (or patients) are drawn in the order of a hash of their names: the same names give the same split on every machine
and with every version of Python.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path

from nnunet_nacl.cases import shuffled
from nnunet_nacl.files import link_or_copy, whole_folder, write_json
from nnunet_nacl.nnunet import RawCase, nnunet_folder, raw_cases
from nnunet_nacl.paper.datasets._folder import planned_folder


def split(
    dataset: int | str,
    *,
    test: int | str | None = None,
    output_id: int | None = None,
    val: int | str | None = None,
    by_patient: bool | str = False,
) -> list[Path]:
    """Draw test cases into a new data set, and write the ``splits_final.json`` that nnU-Net trains with.

    The new data set has the old one's name and a new id; the old one stays unchanged. The drawn cases are in
    ``imagesTs`` and ``labelsTs``, the rest in ``imagesTr`` and ``labelsTr``, as hard links where the file system has
    them. Test cases and ``splits_final.json`` of the old data set are not copied.

    Args:
        dataset: number or name of a data set in ``nnUNet_raw``.
        test: how many cases to draw for testing, or patients, or a share such as ``"20%"``.
        output_id: number of the new data set.
        val: one fold with this many validation cases or patients, or a share such as ``"20%"``.
        by_patient: True to draw patients, whose cases differ in what follows the last underscore of their names
            (``patient001_frame01``), or a regular expression whose first group is the patient in a case's name.

    Returns:
        The folder of the new data set and the file of the splits, if they were written.

    Raises:
        FileExistsError: the new id is taken, or there is a ``splits_final.json`` already.
        FileNotFoundError: there is no such data set, or files are missing in it.
        RuntimeError: ``nnUNet_raw`` is not set, or ``nnUNet_preprocessed`` is needed and is not.
        ValueError: no training cases would be left, a case's name has no patient, or an argument is not as expected.
    """
    if (test is None) != (output_id is None):
        raise ValueError("Expected a number of test cases together with a new id.")
    source, all_cases = raw_cases(dataset)
    folder = source
    drawn: list[str] = []
    if test is not None and output_id is not None:
        folder = planned_folder(output_id, folder.name.partition("_")[2])
        drawn = _draw("test", test, all_cases, by_patient)
    splits_file = None
    if val is not None:
        left = [case for case in all_cases if case not in drawn]
        held_out = sorted(_draw("val", val, left, by_patient))
        training = [case for case in left if case not in held_out]
        splits_file = nnunet_folder("nnUNet_preprocessed") / folder.name / "splits_final.json"
        # nnU-Net copies the second when it plans
        for existing in (splits_file, folder / splits_file.name):
            if existing.exists():
                raise FileExistsError(
                    f"{existing} exists already; models may have been trained by it. Remove it first."
                )
    written = []
    if drawn:
        _write_data_set(source, all_cases, drawn, folder)
        written.append(folder)
    if splits_file is not None:
        splits_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(splits_file, [{"train": training, "val": held_out}])
        written.append(splits_file)
    return written


def _write_data_set(
    source: Path, cases: dict[str, RawCase], drawn: Collection[str], folder: Path
) -> None:
    description = json.loads((source / "dataset.json").read_bytes())
    description.pop("dataset", None)  # it lists the files of the source
    description |= {"numTraining": len(cases) - len(drawn), "split_by": "nnunet_nacl"}
    if "numTest" in description:
        description["numTest"] = len(drawn)
    with whole_folder(folder) as partial:
        for name, case in cases.items():
            part = "Ts" if name in drawn else "Tr"
            for to, file in case.named(name, description["file_ending"]).items():
                target = partial / f"{to.parent}{part}" / to.name
                target.parent.mkdir(exist_ok=True)
                link_or_copy(file, target)
        write_json(partial / "dataset.json", description)


def _draw(
    argument: str, amount: int | str, cases: Collection[str], by_patient: bool | str
) -> list[str]:
    """The cases of this many patients; without patients, each case counts as one."""
    pattern = r"^(.+)_[^_]+$" if by_patient is True else by_patient or "(.+)"
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}.") from error
    patients = defaultdict(list)
    for case in cases:
        match = expression.search(case)
        if not match or not match.groups() or not match[1]:
            raise ValueError(
                f"The name of case {case} does not tell its patient; expected it to match {pattern!r}, whose first "
                "group is the patient."
            )
        patients[match[1]].append(case)
    share = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", str(amount))
    if not share:
        raise ValueError(
            f'{argument} must be a number such as 20 or a share such as "20%", got {amount!r}.'
        )
    available = len(patients)
    number = int(share[1]) if share[1] else round(Fraction(share[2]) * available / 100)
    if not 1 <= number < available:
        raise ValueError(
            f"{argument}={amount} would draw {number} of {available} {'patients' if by_patient else 'cases'}; "
            "expected at least one drawn and one left for training."
        )
    return [case for patient in shuffled(patients)[:number] for case in patients[patient]]
