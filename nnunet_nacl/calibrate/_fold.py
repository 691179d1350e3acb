"""A fold of a trained model: its checkpoint, its cases, voxels of them with their features, and another last layer."""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._draw import voxels_per_case
from nnunet_nacl.calibrate._features import FeatureReader, logits_in_blocks
from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.case_loop import Skipped, each_case
from nnunet_nacl.metrics import canonical_labels
from nnunet_nacl.nnunet import (
    DataSet,
    LabelledImages,
    PreprocessedCases,
    Provenance,
    build_predictor,
    cases_to_predict,
    checkpoint_checksum,
    read_checkpoint,
)
from nnunet_nacl.paths import FileState
from nnunet_nacl.typing import ByName, Floats

_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedFold:
    """A fold of a trained model: its network, its checkpoint, and the cases to calibrate it on.

    Attributes:
        folder: ``fold_X`` of the model.
        provenance: the model that the fold is of.
        data_set: the model's labels and channels.
        settings: how the model predicts.
        cases: the fold's validation cases, or others that it has not seen.
        reader: of the features that the fold's network makes.
        checkpoint: the content of its checkpoint.
    """

    folder: Path
    provenance: Provenance
    data_set: DataSet
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
        """Open a fold: look for its inputs, load the checkpoint, run the network on one patch."""
        if str(fold) == "all" and unseen is None:
            raise ValueError(
                "fold all is validated on the cases that it was trained with: give cases that it has not seen with -i "
                "IMAGES -gt LABELS, or calibrate predictions of such cases: nnunet_nacl calibrate LABELS PREDICTIONS "
                "-o FIT.json."
            )
        source = model_folder / f"fold_{fold}" / checkpoint
        content = read_checkpoint(source)
        if _MARK in content:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained."
            )
        predictor = build_predictor(model_folder, content, device, use_mirroring=mirroring)
        data_set = DataSet.read(model_folder / "dataset.json")
        settings: ByName = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "checkpoint_file": list(FileState.now(source)),  # as JSON has it
            "checkpoint_checksum": checkpoint_checksum(source),
            "use_mirroring": mirroring,
        }
        cases = cases_to_predict(predictor, model_folder, fold, unseen)
        if unseen is not None:
            trained: list[str] = []
            with suppress(FileNotFoundError, RuntimeError):  # of a model from elsewhere
                trained = PreprocessedCases.of_fold(predictor, "all").names
            if seen := sorted({*trained} & {*cases.names}):
                raise ValueError(
                    f"{unseen.images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
                )
            settings |= {"images": str(unseen.images), "gt_folder": str(unseen.labels)}
        settings["fold"] = str(fold)
        return cls(
            folder=model_folder / f"fold_{fold}",
            provenance=Provenance.read(model_folder, data_set),
            data_set=data_set,
            settings=settings,
            cases=cases,
            reader=FeatureReader(predictor),
            checkpoint=content,
        )

    def samples(self, keep_in: Path | None = None) -> tuple[dict[str, Sample], list[Skipped]]:
        """Draw voxels of each case, with their features; also return the cases that cannot be used.

        Features may be kept as files in a folder, so that no case is predicted twice. They may take half of what is
        free on the disk; cases beyond that are predicted again.
        """
        names = self.cases.names
        num_values = self.reader.output_layer.weight.shape[1] + self.data_set.meaning.num_channels
        draw = partial(
            self._sample_case, most=voxels_per_case(num_values, len(names)), keep_in=keep_in
        )
        doing = f"{self.folder.name}: features"
        return each_case({name: name for name in names}, draw, doing=doing)

    def _sample_case(self, name: str, *, most: int, keep_in: Path | None) -> Sample:
        """Predict a case and draw voxels of it."""
        import torch

        image, labels, properties = self.cases.load(name)
        features = self.reader.features(image)
        meaning = self.data_set.meaning
        activation = meaning.activation
        layer = self.reader.output_layer
        flat = features.flatten(1)
        foreground = np.empty((meaning.num_predictions, flat.shape[1]))
        for voxels, logits in logits_in_blocks(features, layer):
            p = activation.probabilities(logits)[: meaning.num_predictions]
            foreground[:, voxels] = activation.foreground(p.cpu().numpy())
        if not np.isfinite(foreground).all():
            raise ValueError("the network's output is not finite.")
        if keep_in is not None:
            used = sum(file.stat().st_size for file in keep_in.iterdir())
            if features.nbytes <= (shutil.disk_usage(keep_in).free - used) / 2:
                torch.save(features.cpu().clone(), keep_in / name)  # without nnU-Net's padding
        # −1: outside the crop to what is not 0
        labels = canonical_labels(
            np.maximum(labels, 0), meaning, self.data_set.ignore_label, "the ground truth"
        )

        def values(index: NDArray[np.intp]) -> tuple[Floats, Floats]:
            drawn = flat[:, torch.from_numpy(index).to(flat.device)].cpu().numpy()
            return layer.logits(drawn), drawn

        sample = Sample.draw(
            name,
            meaning,
            labels,
            foreground=foreground.reshape(-1, *features.shape[1:]),
            spacing_mm=self.spacing(properties),
            most=most,
            values=values,
        )
        device = self.reader.predictor.device
        # mps has no double precision
        return replace(sample, device=str(device) if device.type == "cuda" else "cpu")

    def spacing(self, properties: ByName) -> list[float]:
        """Return the spacing of a preprocessed case in mm; a 2D configuration leaves the slices where they are."""
        spacing = list(self.reader.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.reader.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        return spacing

    def cases_with_structure(self) -> tuple[dict[str, bool], list[Skipped]]:
        """Whether each case has a structure, and the cases whose labels cannot be read."""
        structures = [label for label in self.data_set.meaning.known if label != 0]
        return each_case(
            {name: name for name in self.cases.names},
            lambda name: bool(np.isin(self.cases.labels(name), structures).any()),
            doing=f"{self.folder.name}: labels",
        )

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
        torch.save({**self.checkpoint, "network_weights": weights, _MARK: method}, file)
