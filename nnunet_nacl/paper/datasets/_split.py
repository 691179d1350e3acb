"""Fixed splits: a labeled test set, and the folds of training and validation cases.

Cases (or patients) are drawn in the order of a hash of their names: the same names give the same split on every machine
and with every version of Python.
"""

import re
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path

from nnunetv2.utilities.crossval_split import generate_crossval_split
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

from nnunet_nacl.files import link_or_copy, read_json, write_json
from nnunet_nacl.nnunet import SPLITS_NAME, RawCase, nnunet_folder, training_cases
from nnunet_nacl.paper.datasets._convert import planned_folder
from nnunet_nacl.patients import cases_of_patients, shuffled
from nnunet_nacl.typing import ByName


def split(
    dataset: int | str,
    *,
    test: int | str | None = None,
    output_id: int | None = None,
    val: int | str | None = None,
    folds: int | None = None,
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
        folds: instead, a cross-validation with so many folds, drawn as nnU-Net draws its five; with as many as there
            are cases or patients, each fold leaves one out.
        by_patient: draw patients instead of cases, see ``nnunet_nacl.patients.cases_of_patients``.

    Returns:
        The folder of the new data set and the file of the splits, if they were written.

    Raises:
        FileExistsError: the new id is taken, or there is a ``splits_final.json`` already.
        FileNotFoundError: there is no such data set, or files are missing in it.
        RuntimeError: ``nnUNet_raw`` is not set, or ``nnUNet_preprocessed`` is needed and is not.
        ValueError: no training cases would be left, a case's name has no patient, or an argument is not as expected.
    """
    is_incomplete = (test is None) != (output_id is None)
    is_empty = test is None and val is None and folds is None
    is_ambiguous = val is not None and folds is not None
    if is_incomplete or is_empty or is_ambiguous:
        raise ValueError(
            "Expected --test with a new id, or --val, or --folds, or the first with one of the others."
        )
    source = nnunet_folder("nnUNet_raw") / str(maybe_convert_to_dataset_name(dataset))
    all_cases = training_cases(source)
    folder = source
    drawn: list[str] = []
    if test is not None and output_id is not None:
        folder = planned_folder(output_id, source.name.partition("_")[2])
        drawn = _draw("test", test, all_cases, by_patient)
    left = [case for case in all_cases if case not in drawn]
    held_out = []
    if val is not None:
        held_out = [_draw("val", val, left, by_patient)]
    elif folds is not None:
        patients = cases_of_patients(left, by_patient)
        for fold in generate_crossval_split(sorted(patients), seed=12345, n_splits=folds):
            held_out.append([case for patient in fold["val"] for case in patients[str(patient)]])
    splits_file = None
    if held_out:
        splits_file = nnunet_folder("nnUNet_preprocessed") / folder.name / SPLITS_NAME
        # nnU-Net copies the second when it plans
        for existing in (splits_file, folder / SPLITS_NAME):
            if existing.exists():
                raise FileExistsError(
                    f"{existing} exists already; models may have been trained by it. Remove it first."
                )
    written = []
    if drawn:
        _write_data_set(source, all_cases, drawn, folder)
        written.append(folder)
    if splits_file is not None:
        splits = [
            {"train": [case for case in left if case not in cases], "val": sorted(cases)}
            for cases in held_out
        ]
        splits_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(splits_file, splits)
        written.append(splits_file)
    return written


def _write_data_set(
    source: Path, cases: dict[str, RawCase], drawn: Collection[str], folder: Path
) -> None:
    description = read_json(source / "dataset.json", ByName)
    description.pop("dataset", None)  # it lists the files of the source
    description |= {"numTraining": len(cases) - len(drawn), "split_by": "nnunet_nacl"}
    if "numTest" in description:
        description["numTest"] = len(drawn)
    for name, case in cases.items():
        part = "Ts" if name in drawn else "Tr"
        for to, file in _files(case, name, description["file_ending"]).items():
            target = folder / f"{to.parent}{part}" / to.name
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
    write_json(folder / "dataset.json", description)


def _files(case: RawCase, name: str, ending: str) -> dict[Path, Path]:
    """Return a case's files by the paths that nnU-Net gives them, in folders ``images`` and ``labels``.

    It keeps the spacing of TIFF files beside them.
    """
    files = {Path("labels", f"{name}{ending}"): case.labels}
    spacings = {"labels": str(case.labels)[: -len(ending)]}
    for channel, file in enumerate(case.images):
        files[Path("images", f"{name}_{channel:04d}{ending}")] = file
        spacings["images"] = str(file)[: -len(f"_0000{ending}")]
    for folder, beside in spacings.items():
        if Path(f"{beside}.json").is_file():
            files[Path(folder, f"{name}.json")] = Path(f"{beside}.json")
    return files


def _draw(
    argument: str, amount: int | str, cases: Collection[str], by_patient: bool | str
) -> list[str]:
    """Return the cases of this many patients; without patients, each case counts as one."""
    patients = cases_of_patients(cases, by_patient)
    share = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", str(amount))
    number = 0
    if share:
        number = int(share[1]) if share[1] else round(Fraction(share[2]) * len(patients) / 100)
    if not 1 <= number < len(patients):
        raise ValueError(
            f"{argument}: expected 1 to {len(patients) - 1} {'patients' if by_patient else 'cases'} or a share such as "
            f'"20%", with one left for training; got {amount}.'
        )
    return [case for patient in shuffled(patients)[:number] for case in patients[patient]]
