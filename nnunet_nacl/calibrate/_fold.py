"""A fold of a trained model: its cases, the voxels drawn from them, and a checkpoint with another last layer."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._features import FeatureReader, Features, FeatureStore
from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.calibrate._sample import Sample, check_enough, voxels_per_case
from nnunet_nacl.cases import Skipped, each_case
from nnunet_nacl.files import FileState
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.metrics.counting import canonical_labels
from nnunet_nacl.nnunet import (
    DEFAULT_TRAINER,
    DataSet,
    LabelledImages,
    Model,
    PreprocessedCases,
    build_predictor,
    cases_to_predict,
    defines_trainer,
    find_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from nnunet_nacl.trainers import parse_name
from nnunet_nacl.typing import ByName, Floats

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedFold:
    """A fold of a trained model: its network, its checkpoint, and the cases to calibrate it on.

    Attributes:
        folder: ``fold_X`` of the model.
        model: the model that the fold is of.
        meaning: of the model's labels and channels.
        ignore_label: None if there is none.
        settings: how the model predicts.
        cases: the fold's validation cases, or others that it has not seen.
        reader: of the features that the fold's network makes.
        checkpoint: the content of its checkpoint.
    """

    folder: Path
    model: Model
    meaning: LabelMeaning
    ignore_label: int | None
    settings: ByName
    cases: PreprocessedCases
    reader: FeatureReader
    checkpoint: ByName

    @classmethod
    def open(
        cls,
        model_folder: Path,
        fold: int | str,
        *,
        checkpoint: str,
        device: str,
        mirroring: bool,
        unseen: LabelledImages | None = None,
    ) -> "TrainedFold":
        """Look for all that a calibration needs; of it, the checkpoint is loaded, and tried on one patch."""
        source = find_checkpoint(model_folder, fold, checkpoint)
        content = read_checkpoint(source)
        if _MARK in content:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained, such as checkpoint_final.pth."
            )
        predictor = build_predictor(
            model_folder,
            content,
            device,
            use_mirroring=mirroring,
            # Our trainers change no network, and importing them takes seconds
            built_by=DEFAULT_TRAINER if _is_ours(content["trainer_name"]) else None,
        )
        data_set = DataSet.of_model(model_folder)
        state = FileState.of(source)
        settings: ByName = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "checkpoint_file": None if state is None else list(state),  # as JSON has it
            "use_mirroring": mirroring,
        }
        cases = _cases_to_calibrate_on(predictor, model_folder, fold, unseen)
        if unseen is not None:
            settings |= {"images": str(unseen.images), "gt_folder": str(unseen.labels)}
        settings["fold"] = str(fold)
        return cls(
            folder=model_folder / f"fold_{fold}",
            model=Model.of_folder(model_folder, model_folder / "plans.json", data_set),
            meaning=data_set.meaning,
            ignore_label=data_set.ignore_label,
            settings=settings,
            cases=cases,
            reader=FeatureReader(predictor, device),
            checkpoint=content,
        )

    def sample(self, kept: FeatureStore | None = None) -> tuple[Sample, list[Skipped]]:
        """Voxels of the cases, with their features, and the cases that cannot be used; all features may be kept."""
        cases = self.cases
        layer = self.reader.output_layer
        num_values = layer.weight.shape[1] + self.meaning.num_channels
        most = voxels_per_case(num_values, len(cases.names))
        weight, bias = (part.astype(np.float32) for part in layer)

        def sample_of(name: str) -> Sample:
            image, labels, properties = cases.load(name)
            features = self.reader.features(image)

            def values(index: NDArray[np.intp]) -> tuple[Floats, Floats]:
                drawn = features.at(index)
                return weight @ drawn + bias[:, None], drawn

            sample = Sample.draw(
                name,
                self.meaning,
                # −1: outside the crop to what is not 0
                canonical_labels(
                    np.maximum(labels, 0), self.meaning, self.ignore_label, "the ground truth"
                ),
                foreground=self._foreground(features),
                spacing_mm=self.spacing(properties),
                most=most,
                values=values,
            )
            if kept is not None:
                kept.save(name, features)
            return sample

        found, skipped = self._each_case(sample_of, "features")
        check_enough([sample.has_structure for sample in found.values()], skipped)
        # mps has no double precision
        fits_on = str(self.reader.device) if self.reader.device.type == "cuda" else "cpu"
        return replace(Sample.join(list(found.values())), device=fits_on), skipped

    def _foreground(self, features: Features) -> Floats:
        """(1, *spatial) the probability of the foreground, or (R, *spatial) of each region."""
        activation = self.meaning.activation
        tops = self.meaning.num_tops

        def foreground(logits: "Tensor") -> Floats:
            p = activation.probabilities(logits)[:tops]
            return activation.foreground(p.cpu().numpy())

        found = features.map_logits(self.reader.output_layer, foreground, tops, np.float64)
        if not np.isfinite(found).all():
            raise ValueError("the network's output is not finite.")
        return found

    def spacing(self, properties: ByName) -> list[float]:
        """Of a preprocessed case, in mm; a 2D configuration leaves the slices where they are."""
        spacing = list(self.reader.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.reader.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        return spacing

    def _each_case(
        self, work: Callable[[str], Result], doing: str
    ) -> tuple[dict[str, Result], list[Skipped]]:
        names = {name: name for name in self.cases.names}
        return each_case(names, work, doing=f"{self.folder.name}: {doing}")

    def check_labels(self) -> None:
        """Raise a ValueError unless there are enough cases with a structure."""
        structures = [label for label in self.meaning.known if label != 0]

        def has_structure(name: str) -> bool:
            return bool(np.isin(self.cases.labels(name), structures).any())

        found, skipped = self._each_case(has_structure, "labels")
        check_enough(found.values(), skipped, f"{self.folder.name}: ")

    def write(self, layer: Layer, method: str, file: Path) -> None:
        """Copy the checkpoint with another last layer."""
        import torch

        last = self.reader.convolution
        weights = dict(self.checkpoint["network_weights"])
        for key, parameter in self.reader.predictor.network.state_dict(keep_vars=True).items():
            for old, new in zip((last.weight, last.bias), layer, strict=True):
                if parameter is old:  # under several names, perhaps, and in a compiled network
                    weights[key.removeprefix("_orig_mod.")] = (
                        torch.from_numpy(new).to(old.dtype).reshape(old.shape)
                    )
        write_checkpoint({**self.checkpoint, "network_weights": weights, _MARK: method}, file)


def _is_ours(trainer: str) -> bool:
    """Whether it is made from its name here, and nobody wrote a class of that name, which nnU-Net would find."""
    try:
        recipe = parse_name(trainer)
    except ValueError:
        return False
    return recipe is not None and not defines_trainer(trainer)


def _cases_to_calibrate_on(
    predictor: Any, model: Path, fold: int | str, unseen: LabelledImages | None
) -> PreprocessedCases:
    """``cases_to_predict``; a ValueError if a fold has seen an unseen one, as far as the model's data set is here."""
    try:
        cases = cases_to_predict(predictor, model, fold, unseen)
    except FileNotFoundError as error:
        if unseen is not None:
            raise
        raise FileNotFoundError(
            f"{error} Or, without the training data, calibrate predictions: nnunet_nacl calibrate LABELS PREDICTIONS "
            "-o FIT.json."
        ) from error
    if unseen is not None:
        _check_unseen(predictor, cases, unseen)
    return cases


def _check_unseen(predictor: Any, cases: PreprocessedCases, unseen: LabelledImages) -> None:
    """Raise a ValueError if one of the cases is of the model's own data set, as far as that is here."""
    trained: list[str] = []
    with suppress(FileNotFoundError, RuntimeError):  # of a model from elsewhere
        trained = PreprocessedCases.of_fold(predictor, "all").names
    if seen := sorted(set(trained) & set(cases.names)):
        raise ValueError(
            f"{unseen.images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
        )
