"""Cases in nnU-Net's folders: of raw data, of a planned data set and its splits, of predictions and their folds."""

import glob
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from nnunet_nacl.files import (
    FileState,
    check_input,
    link_or_copy,
    read_json,
    unresolved,
    whole_file,
    write_json,
)
from nnunet_nacl.nnunet._data_set import DataSet, PlansJson, Reader, read_dataset_json
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    cases_in,
    dataset_name,
    dataset_number,
    existing_folder,
    first_channel,
    listed,
    model_folder,
    naming,
    nnunet_folder,
)
from nnunet_nacl.nnunet._provenance import (
    CALIBRATED_NAME,
    DECODED_NAME,
    PROVENANCE_NAME,
    Provenance,
)
from nnunet_nacl.typing import ByName, Labels

SPLITS_NAME = "splits_final.json"


@with_config(ConfigDict(extra="allow"))
class Split(TypedDict):
    """The cases of a fold; what else the file says of it, nnU-Net does not read."""

    train: list[str]
    val: list[str]


def read_splits(file: Path) -> list[Split]:
    """Return the folds of ``splits_final.json``; see ``check_split``."""
    check_input(file, ": which cases a fold is validated on is unknown.")
    return read_json(file, list[Split])


def check_split(file: Path, fold: int, split: Split) -> None:
    """Raise a ValueError if a fold that is used trains on some of its validation cases."""
    if both := sorted({*split["train"]} & {*split["val"]}):
        raise ValueError(
            f"{file}: fold {fold} trains on {len(both)} of its validation cases, such as {both[0]}, which look better "
            "than unseen ones. Take another fold, or correct this one and train it anew."
        )


def fold_split(data_set: Path, cases: Collection[str], fold: int | str) -> Split:
    """Return the cases that nnU-Net trains and validates a fold with, by ``splits_final.json``; for ``all``, all.

    For a fold beyond the end of that file, nnU-Net draws 80 % of ``cases``, the preprocessed ones, by its number.
    """
    if str(fold) == "all":
        return {"train": sorted(cases), "val": sorted(cases)}
    file = data_set / SPLITS_NAME
    splits = read_splits(file)
    if int(fold) < len(splits):
        split = splits[int(fold)]
        check_split(file, int(fold), split)
        return split
    from nnunet_nacl.nnunet.hooks import split_of

    train, val = split_of(data_set, cases, int(fold))
    return {"train": sorted(train), "val": sorted(val)}


def cases_of_other_splits(fold: Path, ending: str, val: Collection[str]) -> set[str]:
    """Cases that a trained fold was validated on, as far as is known, and should not be by ``val``, or the reverse."""
    validation = fold / "validation"
    summary = validation / "summary.json"
    differing = cases_in(validation, ending) - set(val)
    if summary.is_file():  # of all of them, though segmentations are not exported with a model
        evaluated = read_json(summary, ByName)["metric_per_case"]
        files = [re.split(r"[/\\]", case["prediction_file"])[-1] for case in evaluated]
        differing |= {file.removesuffix(ending) for file in files} ^ set(val)
    return differing


class RawCase(NamedTuple):
    """The files of a case in nnU-Net's raw format: images of one channel each, or of several, and the label map."""

    images: list[Path]
    labels: Path

    def named(self, name: str, ending: str) -> dict[Path, Path]:
        """Return the files by the paths that nnU-Net gives them, in folders ``images`` and ``labels``.

        It keeps the spacing of TIFF files beside them.
        """
        files = {Path("labels", f"{name}{ending}"): self.labels}
        spacings = {"labels": str(self.labels)[: -len(ending)]}
        for channel, file in enumerate(self.images):
            files[Path("images", f"{name}_{channel:04d}{ending}")] = file
            spacings["images"] = str(file)[: -len(f"_0000{ending}")]
        for folder, beside in spacings.items():
            if Path(f"{beside}.json").is_file():
                files[Path(folder, f"{name}.json")] = Path(f"{beside}.json")
        return files


class LabelledImages(NamedTuple):
    """A folder of images, ``CASE_0000<file_ending>``, and that of their ground truth, ``CASE<file_ending>``."""

    images: Path
    labels: Path

    @classmethod
    def given(cls, images: str | Path | None, labels: str | Path | None) -> "LabelledImages | None":
        """Both folders, or None for neither; a ValueError for one alone, an OSError for what is no folder."""
        if images is None and labels is None:
            return None
        if images is None or labels is None:
            alone = "labels" if images is None else "images"
            raise ValueError(f"images and labels go together; got {alone} alone.")
        return cls(existing_folder(images), existing_folder(labels))


def labelled_cases(images: Path, labels: Path, ending: str) -> dict[str, RawCase]:
    """Return the images that nnU-Net finds in a folder, with their label maps, which need not exist, in another.

    As ``create_lists_from_splitted_dataset_folder``, without forking a process that has threads.
    """
    from nnunetv2.utilities.utils import (
        create_paths_fn,
        get_identifiers_from_splitted_dataset_folder,
    )

    folder = str(existing_folder(images))
    files = sorted(file.name for file in images.glob(f"*{glob.escape(ending)}"))
    cases = {}
    for name in map(str, get_identifiers_from_splitted_dataset_folder(folder, ending)):
        if not name.startswith("."):  # macOS leaves hidden files
            of_case = create_paths_fn(folder, files, ending, name)
            cases[name] = RawCase(list(map(Path, of_case)), labels / f"{name}{ending}")
    return cases


def _listed_cases(folder: Path) -> dict[str, RawCase]:
    """Return the training cases that ``dataset.json`` lists, which may lie anywhere; none if it does not list them."""
    from nnunetv2.utilities.utils import get_filenames_of_train_images_and_targets

    file = folder / "dataset.json"
    described = read_json(file, ByName)
    if "dataset" not in described:
        return {}
    with naming(file):
        found = get_filenames_of_train_images_and_targets(str(folder), described)
    return {
        name: RawCase(list(map(Path, of_case["images"])), Path(of_case["label"]))
        for name, of_case in sorted(found.items())
    }


def raw_cases(dataset: int | str) -> tuple[Path, dict[str, RawCase]]:
    """Find a data set in nnU-Net's raw format by number or name: its folder, and the training cases in it."""
    folder = nnunet_folder("nnUNet_raw") / dataset_name(dataset)
    images = folder / "imagesTr"
    labels = folder / "labelsTr"
    ending = read_dataset_json(folder / "dataset.json")["file_ending"]
    cases = _listed_cases(folder)
    without = set()
    if not cases:
        cases = labelled_cases(images, labels, ending)
        without = cases_in(labels, ending) - set(cases)
    files = [file for case in cases.values() for file in (*case.images, case.labels)]
    for file in (*files, *(images / f"{name}_0000{ending}" for name in without)):
        check_input(file, "; expected images and a label map for each case.")
    return folder, cases


def training_image(dataset: str, label_map: Path, case: str) -> Path:
    """Return the first channel of a case's image, in ``imagesTr`` or where ``dataset.json`` lists it."""
    folder = nnunet_folder("nnUNet_raw") / dataset
    listed = _listed_cases(folder) if (folder / "dataset.json").is_file() else {}
    if case in listed:
        return listed[case].images[0]
    return first_channel(folder / "imagesTr", case, label_map)


@dataclass(frozen=True, eq=False)
class PreprocessedDataSet:
    """A data set that has been planned and preprocessed for a configuration.

    Attributes:
        raw: its folder in ``nnUNet_raw``.
        folder: that in ``nnUNet_preprocessed``.
        results: that in ``nnUNet_results``, with its models.
        cases: those that are preprocessed.
        splits: its folds, not checked yet.
        test_cases: those with labels.
    """

    name: str
    configuration: str
    plans: str
    raw: Path
    folder: Path
    results: Path
    cases: list[str]
    splits: list[Split]
    test_cases: list[str]
    file_ending: str
    reader: Reader
    has_regions: bool

    def model_folder(self, trainer: str) -> Path:
        return self.results / f"{trainer}__{self.plans}__{self.configuration}"

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set that can be trained on; raises a ValueError that says what is still to be done."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        plans_json = PlansJson.find(dataset, configuration, plans)
        folder = plans_json.file.parent
        described = read_dataset_json(folder / "dataset.json")
        with naming(plans_json.file):
            manager = PlansManager(plans_json.content)
            settings = manager.get_configuration(configuration)
            reader = Reader(plans_json.content["image_reader_writer"])
            has_regions = manager.get_label_manager(described).has_regions
            # Validation of a cascade's first stage also predicts on the grid of the second
            stages = [configuration, *(settings.next_stage_names or ())]
            folders = [manager.get_configuration(stage).data_identifier for stage in stages]
        ending = described["file_ending"]
        for stage, data in zip(stages, folders, strict=True):
            expected = cases_in(folder / "gt_segmentations", ending)
            found = preprocessed_cases(folder / data) if (folder / data).is_dir() else []
            if not found or not expected <= set(found):
                of_data_set = ["-d", dataset_number(folder.name), "-plans_name", plans]
                raise ValueError(
                    f"{folder / data} holds {len(found)} of {len(expected)} preprocessed cases. Preprocess them with: "
                    + shlex.join(["nnUNetv2_preprocess", *of_data_set, "-c", stage])
                )
        cases = preprocessed_cases(folder / settings.data_identifier)
        raw = nnunet_folder("nnUNet_raw").absolute() / folder.name
        test_cases = cases_in(raw / "imagesTs", f"_0000{ending}") & cases_in(
            raw / "labelsTs", ending
        )
        return cls(
            name=folder.name,
            configuration=configuration,
            plans=plans,
            raw=raw,
            folder=folder,
            results=nnunet_folder("nnUNet_results").absolute() / folder.name,
            cases=cases,
            splits=_splits(folder / SPLITS_NAME, cases),
            test_cases=sorted(test_cases),
            file_ending=ending,
            reader=reader,
            has_regions=has_regions,
        )


def preprocessed_cases(folder: Path) -> list[str]:
    """Return the cases in a folder of preprocessed data."""
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    with naming(folder):
        return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))


def _splits(file: Path, cases: list[str]) -> list[Split]:
    """Return the splits of the file, or those that nnU-Net would write into it."""
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        with naming(file.parent):  # five folds need five cases
            folds = generate_crossval_split(cases, seed=12345, n_splits=5)
        return [
            Split(train=list(map(str, fold["train"])), val=list(map(str, fold["val"])))
            for fold in folds
        ]
    return read_splits(file)


_HOW_TO_SAVE = (
    "predict with nnUNetv2_predict --save_probabilities, validate with nnUNetv2_train --val --npz, ensemble with "
    "nnUNetv2_ensemble --save_npz, or copy the .npz of before postprocessing beside postprocessed segmentations"
)


@dataclass(frozen=True)
class CaseFiles:
    """A case's name and files, which may be missing: label map, saved segmentation, and probabilities (``CASE.npz``).

    ``ground_truth`` is None where none is looked for. ``thresholds`` holds one threshold per class k ≥ 1, or region, if
    ``nnunet_nacl decode`` wrote the segmentation; None for nnU-Net's segmentation, the argmax.
    """

    name: str
    ground_truth: Path | None
    prediction: Path
    probabilities: Path
    thresholds: tuple[float, ...] | None = None

    @property
    def is_predicted(self) -> bool:
        return self.prediction.exists() or self.probabilities.exists()

    def check_predicted(self) -> None:
        """Raise an OSError that names a file of the prediction that is missing or cannot be read."""
        check_input(self.prediction, ": no predicted segmentation.")
        check_input(self.probabilities, f": no probabilities; {_HOW_TO_SAVE}.")

    def states(self) -> dict[str, FileState | None]:
        """Return the states now of all files that it is read from, those of a TIFF's spacing too; None if missing."""
        files: dict[str, Path | None] = {
            "ground_truth": self.ground_truth,
            "prediction": self.prediction,
            "probabilities": self.probabilities,
            "spacing_of_truth": self.ground_truth and self.ground_truth.with_suffix(".json"),
            "spacing_of_prediction": self.prediction.with_suffix(".json"),
        }
        return {what: None if file is None else FileState.of(file) for what, file in files.items()}

    def write(
        self,
        folder: Path,
        reader: Reader,
        *,
        labels: Labels | None = None,
        probabilities: NDArray[Any] | None = None,
    ) -> None:
        """Write the case into another folder as nnU-Net does: probabilities, properties, and last the segmentation.

        By default, labels (Z, Y, X) and probabilities (C, Z, Y, X) are the case's own.
        """
        target = folder / self.probabilities.name
        if probabilities is None:
            link_or_copy(self.probabilities, target)
        else:
            with whole_file(target) as partial, partial.open("wb") as stream:
                np.savez_compressed(stream, probabilities=probabilities)
        copied = [self.probabilities.with_suffix(".pkl")]
        if labels is None:
            # Of a TIFF file's spacing
            copied += [self.prediction.with_suffix(".json"), self.prediction]
        for file in filter(Path.is_file, copied):
            _copy_file(file, folder / file.name)
        if labels is not None:
            reader.write_labels(labels, self.prediction, folder / self.prediction.name)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with whole_file(target) as partial:
        shutil.copy2(source, partial)


def _check_probabilities(folder: Path) -> None:
    if not cases_in(folder, ".npz"):
        raise ValueError(f"{folder} holds no probabilities (.npz); {_HOW_TO_SAVE}.")


def _description_of(folder: Path) -> Path:
    """Return the ``dataset.json`` of a folder of predictions."""
    described = folder / "dataset.json"
    given = unresolved(folder)
    if given.name.startswith("validation") and not described.is_file():
        described = given.parent.parent / "dataset.json"  # of the model
    copy = "Copy it and plans.json from the model's folder; postprocessed segmentations also need their .npz."
    check_input(described, f": it says what the labels mean. {copy}")
    return described


def _cases_of(folder: Path, gt_folder: Path | None, described: Path) -> list[CaseFiles]:
    """Each case with any of its files."""
    ending = read_dataset_json(described)["file_ending"]
    mark = folder / DECODED_NAME
    decoded: ByName = read_json(mark, ByName)["cases"] if mark.is_file() else {}
    names = cases_in(folder, ending) | cases_in(folder, ".npz")
    looked_for = f"no *{ending} or *.npz in {folder}"
    if gt_folder is not None:
        names |= cases_in(gt_folder, ending)
        looked_for = f"no *{ending} in {gt_folder}, {looked_for}"
    if not names:
        raise ValueError(f"No case found: {looked_for}.")
    return [
        CaseFiles(
            name,
            None if gt_folder is None else gt_folder / f"{name}{ending}",
            folder / f"{name}{ending}",
            folder / f"{name}.npz",
            tuple(decoded[name]["thresholds"]) if name in decoded else None,
        )
        for name in sorted(names)
    ]


def _validation_cases(
    folder: Path, fold: str, preprocessed: Path, trained: Collection[str]
) -> list[CaseFiles]:
    """Return the cases in a fold's validation folder, and those that it lacks by the splits, if these are known.

    ``trained`` are the cases with ground truth, of which nnU-Net draws a split for a fold that has none. Raises an
    error without probabilities, if the network has changed since, or if there are predictions of training cases:
    nnU-Net never empties a validation folder.
    """
    if not folder.is_dir():
        there = listed(folder.parent.parent, f"fold_*/{folder.name}")
        hint = ""
        if folder.name == "validation" and (folder.parent / "checkpoint_final.pth").is_file():
            hint = f"nnUNetv2_train ... {fold} --val --npz predicts its cases"
        raise FileNotFoundError(f"{folder} is not a folder; there are {there}. {hint}".strip())
    _check_probabilities(folder)
    applied = folder / CALIBRATED_NAME
    state = applied.is_file() and read_json(applied, ByName)["settings"].get("checkpoint_file")
    if state:
        checkpoint = folder.parent / Path(state[0]).name  # the model may have moved
        if checkpoint.is_file() and not FileState(*state[:3]).is_of(checkpoint):
            raise ValueError(
                f"{folder} was calibrated before {checkpoint.name} changed: the fold was trained again since. "
                "Calibrate it again, with --npz --overwrite."
            )
    split = Split(train=[], val=[])
    if fold == "all" or (preprocessed / SPLITS_NAME).is_file():
        split = fold_split(preprocessed, trained, fold)
    gt_folder = preprocessed / "gt_segmentations"
    all_cases = _cases_of(folder, gt_folder, _description_of(folder))
    training = {*split["train"]} - {*split["val"]}
    seen = [case.name for case in all_cases if case.is_predicted and case.name in training]
    if seen:
        command = shlex.join(["nnunet_nacl", "evaluate", str(gt_folder), str(folder)])
        raise ValueError(
            f"{folder} has training cases of fold {fold}, by the splits in {preprocessed}: {', '.join(seen)}. If "
            "the fold was trained with these splits, they are left over from an earlier training: remove them. "
            f"Otherwise, restore its splits, or evaluate the folder by itself: {command}"
        )
    return [case for case in all_cases if case.is_predicted or case.name in split["val"]]


@dataclass(frozen=True)
class Predictions:
    """Segmentations and probabilities that nnU-Net saved, of a folder or of the validation cases of a model's folds.

    Attributes:
        groups: the cases of each fold, by its name, such as ``0`` or ``all``; those of a folder under the empty text.
        pred_folders: the folder of each group.
        gt_folder: the ground truth of all cases; None where none is needed.
        home: where outputs go by default: the folder of the predictions, or for folds that of their model.
        dataset_json: of the data set.
        plans: the ``plans.json`` that says which reader to use, if there is one.
        data_set: how to read the files, and what their labels mean.
        missing: cases with ground truth alone, which ``predicted`` has left out.
    """

    groups: dict[str, list[CaseFiles]]
    pred_folders: tuple[Path, ...]
    gt_folder: Path | None
    home: Path
    dataset_json: Path
    plans: Path | None
    data_set: DataSet
    missing: tuple[str, ...] = ()

    @property
    def cases(self) -> list[CaseFiles]:
        """The cases of all groups, in the order of their names."""
        return list(self.by_name.values())

    @cached_property
    def by_name(self) -> dict[str, CaseFiles]:
        """The cases by their names, in the order of these."""
        by_name = {case.name: case for group in self.groups.values() for case in group}
        return dict(sorted(by_name.items()))

    @classmethod
    def of_folder(cls, gt_folder: str | Path | None, pred_folder: str | Path) -> "Predictions":
        """Pair a folder of predictions (``--save_probabilities``) with one of label maps of the same names, or None.

        Beside the predictions lie the data set's ``dataset.json`` and, if there is one, the ``plans.json`` that says
        which reader to use; a validation folder's lie in that of the model.
        """
        ground_truth = None if gt_folder is None else existing_folder(gt_folder)
        predictions = existing_folder(pred_folder)
        if ground_truth is not None and ground_truth.samefile(predictions):
            raise ValueError(f"{predictions} is given as predictions and as their ground truth.")
        described = _description_of(predictions)
        groups = {"": _cases_of(predictions, ground_truth, described)}
        _check_probabilities(predictions)
        return cls._of(groups, (predictions,), ground_truth, predictions, described)

    @classmethod
    def of_model(
        cls, dataset: str | int, configuration: str, *, trainer: str = DEFAULT_TRAINER, plans: str = "nnUNetPlans",
        folds: Sequence[int | str] = (0, 1, 2, 3, 4), validation: str = "validation",
    ) -> "Predictions":  # fmt: skip
        """Return the validation cases of a model trained with ``nnUNetv2_train ... --npz``, in nnU-Net's folders."""
        model = model_folder(dataset, configuration, trainer=trainer, plans=plans)
        return cls.of_validation(
            model, nnunet_folder("nnUNet_preprocessed") / model.parent.name, folds, validation
        )

    @classmethod
    def of_validation(
        cls,
        model: str | Path,
        preprocessed: str | Path,
        folds: Sequence[int | str],
        validation: str = "validation",
    ) -> "Predictions":
        """Like ``of_model``, but from folders; no case may be in two folds."""
        if not folds or len(set(map(str, folds))) < len(folds):
            raise ValueError(
                f"expected one or more folds, each once; got {', '.join(map(str, folds)) or 'none'}."
            )
        model = existing_folder(model)
        preprocessed = Path(preprocessed)
        ground_truth = existing_folder(preprocessed / "gt_segmentations")
        folders = {str(fold): model / f"fold_{fold}" / validation for fold in folds}
        described = model / "dataset.json"
        trained = cases_in(ground_truth, read_dataset_json(described)["file_ending"])
        groups: dict[str, list[CaseFiles]] = {}
        seen: dict[str, Path] = {}
        for fold, folder in folders.items():
            groups[fold] = _validation_cases(folder, fold, preprocessed, trained)
            for case in groups[fold]:
                if (other := seen.setdefault(case.name, folder)) != folder:
                    raise ValueError(
                        f"the case {case.name} is in {other} and in {folder}: folds must not share cases."
                    )
        return cls._of(groups, tuple(folders.values()), ground_truth, model, described)

    @classmethod
    def _of(
        cls,
        groups: dict[str, list[CaseFiles]],
        pred_folders: tuple[Path, ...],
        gt_folder: Path | None,
        home: Path,
        described: Path,
    ) -> "Predictions":
        beside = described.with_name("plans.json")
        plans = beside if beside.is_file() else None
        cases = chain.from_iterable(groups.values())
        examples = [case.ground_truth or case.prediction for case in cases]
        data_set = DataSet.read(described, plans, examples)
        return cls(groups, pred_folders, gt_folder, home, described, plans, data_set)

    @property
    def provenance(self) -> Provenance:
        """The model that made them, how they were calibrated and decoded, and their cases."""
        found = Provenance.read(self.home, self.plans, self.data_set, self.pred_folders)
        return replace(found, cases=[case.name for case in self.cases])

    @property
    def is_calibrated(self) -> bool:
        """Whether a folder of them is."""
        return any((folder / CALIBRATED_NAME).is_file() for folder in self.pred_folders)

    def predicted(self) -> "Predictions":
        """Keep the cases with a prediction."""
        missing = tuple(case.name for case in self.cases if not case.is_predicted)
        return replace(self._filtered(lambda case: case.is_predicted), missing=missing)

    def to_fit_to(self) -> "Predictions":
        """Keep the cases with prediction and ground truth; if none has both, those with a prediction."""
        predicted = self.predicted()
        both = predicted._filtered(
            lambda case: bool(case.ground_truth and case.ground_truth.exists())
        )
        return both if both.cases else predicted

    def _filtered(self, is_kept: Callable[[CaseFiles], bool]) -> "Predictions":
        kept = {fold: list(filter(is_kept, cases)) for fold, cases in self.groups.items()}
        return replace(self, groups=kept)

    def copy_descriptions(self, folder: Path) -> None:
        """Copy what nnU-Net keeps of a folder of predictions beside its cases: data set, plans, arguments."""
        for source in (
            self.dataset_json,
            self.plans,
            self.pred_folders[0] / "predict_from_raw_data_args.json",
        ):
            if source is not None and source.is_file():
                _copy_file(source, folder / source.name)
        provenance = self.provenance
        names = ("dataset", "trainer", "plans", "configuration")
        write_json(folder / PROVENANCE_NAME, {name: getattr(provenance, name) for name in names})
