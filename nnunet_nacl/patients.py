"""Draw, group by patient and split cases, by their names alone."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray


def shuffled(names: Iterable[str], seed: int = 0) -> list[str]:
    """Sort names by the SHA-256 of ``SEED NAME``: the same order everywhere, which further names do not change."""
    return sorted(
        names,
        key=lambda name: hashlib.sha256(f"{seed} {name}".encode(errors="surrogateescape")).digest(),
    )


def cases_of_patients(cases: Iterable[str], by_patient: bool | str) -> dict[str, list[str]]:
    """Group cases by patient, by their names.

    Args:
        cases: their names.
        by_patient: False if each case is a patient; True if the cases of a patient differ in what follows the last
            underscore (``patient001_frame01``), or a regular expression whose first group is the patient.

    Raises:
        ValueError: the expression is invalid or finds no patient in the name of a case, or all cases are of one.
    """
    if not by_patient:
        return {case: [case] for case in cases}
    pattern = r"^(.+)_[^_]+$" if by_patient is True else by_patient
    patients = defaultdict(list)
    for case in cases:
        match = None
        with suppress(re.error):
            match = re.search(pattern, case)
        if not match or not match.re.groups or not match[1]:
            raise ValueError(
                f"by_patient: {pattern!r} applied to the name of case {case} does not tell its patient; expected a "
                "regular expression that matches the name, and whose first group is the patient. Without an "
                "expression, put --by_patient last."
            )
        patients[match[1]].append(case)
    if len(patients) == 1:
        ((patient, of_patient),) = patients.items()
        if len(of_patient) > 1:
            raise ValueError(
                f"by_patient: all {len(of_patient)} cases, such as {of_patient[0]}, are of the patient {patient!r}; "
                "expected a regular expression whose first group differs between patients."
            )
    return dict(patients)


def patient_numbers(cases: Sequence[str], by_patient: bool | str) -> NDArray[np.intp]:
    """Return the number of each case's patient, from 0: (cases,); errors as for ``cases_of_patients``."""
    patients = cases_of_patients(cases, by_patient)
    number_of = {case: number for number, own in enumerate(patients.values()) for case in own}
    return np.array([number_of[case] for case in cases], np.intp)


def split_cases(cases: Sequence[str], by_patient: bool | str = False) -> list[list[str]]:
    """Split cases into five parts, or one per case or patient if there are fewer; by name.

    Parts hold nearly the same number of patients, so those of patients with many cases are larger.
    """
    patients = cases_of_patients(cases, by_patient)
    drawn = shuffled(patients)
    parts = min(5, len(drawn))
    return [
        [case for patient in drawn[number::parts] for case in patients[patient]]
        for number in range(parts)
    ]
