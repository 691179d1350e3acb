"""A fold's network, the features that it makes of its cases, and the voxels drawn from them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._features import Features, Kept
from nnunet_nacl.calibrate._methods import Layer, flat_layer
from nnunet_nacl.calibrate._sample import Sample, check_enough, voxels_per_case
from nnunet_nacl.cases import Skipped, check_any_used, each_case
from nnunet_nacl.nnunet import (
    DEFAULT_TRAINER,
    DataSet,
    Model,
    PreprocessedCases,
    build_predictor,
    check_as_trained,
    defines_trainer,
    find_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from nnunet_nacl.trainers import parse_name
from nnunet_nacl.typing import Floats, Record, Singles

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""
_LARGEST = 2.0**4
"""What a feature is scaled to have as its largest value in half precision."""
_IN_RANGE = 2.0**-4, 2.0**9
"""Outside, nnU-Net's sums over windows, of features times up to 10, come near what half precision can hold."""


class CaseName(NamedTuple):
    """A case, for ``each_case``."""

    name: str


class Network:
    """One fold's network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        cases: those to calibrate it on: its validation cases, or others that it has not seen.
        weights: that convolution's weight (C, F · kernel) and bias (C,).
        layer: what turns features into logits: the same weight and bias; or, for a convolution larger than 1×1, the
            identity, and its features are then the logits.
    """

    def __init__(
        self,
        model_folder: Path,
        fold: int | str,
        *,
        checkpoint: str,
        device: str,
        mirroring: bool,
        unseen: tuple[str | Path, str | Path] | None = None,
    ) -> None:
        import torch

        self.fold = str(fold)
        self.folder = model_folder / f"fold_{fold}"
        source = find_checkpoint(model_folder, fold, checkpoint)
        self._checkpoint = read_checkpoint(source)
        if _MARK in self._checkpoint:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained, such as checkpoint_final.pth."
            )
        self.predictor = build_predictor(
            model_folder,
            self._checkpoint,
            device,
            use_mirroring=mirroring,
            # Our trainers change no network, and importing them takes seconds
            built_by=DEFAULT_TRAINER if _is_ours(self._checkpoint["trainer_name"]) else None,
        )
        plans = model_folder / "plans.json"
        data_set = DataSet.read(model_folder / "dataset.json", plans, [])
        self.meaning = data_set.meaning
        self.model = Model.of_folder(model_folder, plans, data_set)
        self.settings = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "use_mirroring": mirroring,
        }
        if unseen is None:
            self.cases = PreprocessedCases.of_fold(self.predictor, fold)
            check_as_trained(model_folder, self.predictor, fold, self.cases.names)
        else:
            self.cases = _unseen_cases(self.predictor, *unseen)
            self.settings |= {"images": str(unseen[0]), "gt_folder": str(unseen[1])}
        self._last = last = _last_layer(
            self.predictor.network, self.predictor.configuration_manager.patch_size
        )
        self.weights = flat_layer(last.weight, last.bias)
        self.has_features = set(last.kernel_size) == {1}
        self.layer = self.weights
        if not self.has_features:
            self.layer = np.eye(last.out_channels), np.zeros(last.out_channels)
        where = torch.device(device)
        self._scale = torch.ones(len(self.layer[0][0]), device=where)
        self._largest = torch.zeros_like(self._scale)
        # mps has no double precision
        self.fits_on = device if where.type == "cuda" else "cpu"

    def features(self, image: Singles) -> Features:
        """The last layer's input, averaged over windows and mirrorings as nnU-Net averages logits.

        nnU-Net adds up windows in half precision. Features beyond its range are scaled, and predicted once more.

        Raises:
            ValueError: the image, or what the network makes of it, is not finite.
        """
        import torch

        if not np.isfinite(image).all():
            raise ValueError("the preprocessed image holds a NaN or an infinity.")
        if not self.has_features:
            logits = self.predictor.predict_sliding_window_return_logits(torch.from_numpy(image))
            return Features(logits, self._scale.to(logits.device))
        # Let the last layer return its input, and tell the predictor the input's number of channels.
        label_manager = self.predictor.label_manager
        self.predictor.label_manager = SimpleNamespace(
            num_segmentation_heads=self._last.in_channels
        )
        self._last.forward = lambda features: features
        hook = self.predictor.network.register_forward_hook(self._scaled)
        try:
            values = None
            while values is None:
                values = self._predicted(image)
            # Where a GPU has too little memory, nnU-Net adds up windows on the CPU
            return Features(values, self._scale.to(values.device))
        finally:
            hook.remove()
            del self._last.forward
            self.predictor.label_manager = label_manager

    def _predicted(self, image: Singles) -> "Tensor | None":
        """Scaled features (F, *spatial); None if they were out of range and have another scale from now on."""
        import torch

        try:
            values: Tensor = self.predictor.predict_sliding_window_return_logits(
                torch.from_numpy(image)
            )
        except RuntimeError:  # of an infinity, for one
            if not self._rescale():
                raise
            return None
        return None if self._rescale() else values

    def _scaled(self, _: Any, __: Any, output: "Tensor") -> "Tensor":
        """Measure and scale the features of a window (1, F, *spatial)."""
        largest = output.abs().amax((0, *range(2, output.ndim)))
        self._largest = self._largest.maximum(largest)
        return output * self._scale.reshape(-1, *[1] * (output.ndim - 2)).to(output.dtype)

    def _rescale(self) -> bool:
        """Choose another scale if a feature has been out of range; returns whether it was."""
        low, high = _IN_RANGE
        if not self._largest.isfinite().all():
            self._largest.zero_()
            raise ValueError("the network's features are not finite.")
        scaled = self._largest * self._scale
        if not ((scaled > high) | ((scaled < low) & (scaled > 0))).any():
            return False
        needed = (_LARGEST / self._largest.clamp_min(2.0**-100)).log2().round().exp2()
        self._scale = needed.where(self._largest > 0, 1)
        return True

    def sample(self, kept: Kept | None = None) -> tuple[Sample, list[Skipped]]:
        """Voxels of the cases, with their features, and the cases that cannot be used; all features may be kept."""
        cases = self.cases
        most = voxels_per_case(len(self.layer[0][0]) + self.meaning.num_channels, len(cases.names))
        weight, bias = (part.astype(np.float32) for part in self.layer)

        def sample_of(case: CaseName) -> Sample:
            image, labels, properties = cases.load(case.name)
            features = self.features(image)

            def values(index: NDArray[np.intp]) -> tuple[Floats, Floats]:
                drawn = features.at(index)
                return weight @ drawn + bias[:, None], drawn

            sample = Sample.draw(
                case.name,
                self.meaning,
                np.maximum(labels, 0),  # −1: outside the crop to what is not 0
                foreground=self._foreground(features),
                spacing_mm=self.spacing(properties),
                most=most,
                values=values,
            )
            if kept is not None:
                kept.save(case.name, features)
            return sample

        found, skipped = self._each_case(sample_of, "features")
        check_any_used(found, skipped)
        return replace(Sample.join(list(found.values())), device=self.fits_on), skipped

    def _foreground(self, features: Features) -> Floats:
        """(1, *spatial) the probability of the foreground, or (R, *spatial) of each region."""
        activation = self.meaning.activation
        tops = self.meaning.num_tops
        shape = features.values.shape[1:]
        found = np.empty((tops, shape.numel()), np.float64)
        for where, logits in features.blocks(self.layer):
            p = activation.probabilities(logits)
            found[:, where] = activation.foreground(p[:tops].cpu().numpy())
        if not np.isfinite(found).all():
            raise ValueError("the network's output is not finite.")
        return found.reshape(tops, *shape)

    def spacing(self, properties: Record) -> list[float]:
        """Of a preprocessed case, in mm; a 2D configuration leaves the slices where they are."""
        spacing = list(self.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        return spacing

    def _each_case(
        self, work: Callable[[CaseName], Result], doing: str
    ) -> tuple[dict[str, Result], list[Skipped]]:
        names = [CaseName(name) for name in self.cases.names]
        return each_case(names, work, doing=f"{self.folder.name}: {doing}")

    def check_labels(self) -> None:
        """Raise a ValueError unless there are enough cases with a structure."""
        structures = [label for label in self.meaning.known if label != 0]

        def has_structure(case: CaseName) -> bool:
            return bool(np.isin(self.cases.labels(case.name), structures).any())

        found, _ = self._each_case(has_structure, "labels")
        check_enough(sum(found.values()), len(self.cases.names), f"{self.folder.name}: ")

    def write(self, layer: Layer, method: str, file: Path) -> None:
        """Copy the checkpoint with another last layer."""
        import torch

        weights = dict(self._checkpoint["network_weights"])
        for key, parameter in self.predictor.network.state_dict(keep_vars=True).items():
            for old, new in zip((self._last.weight, self._last.bias), layer, strict=True):
                if parameter is old:  # under several names, perhaps, and in a compiled network
                    weights[key.removeprefix("_orig_mod.")] = (
                        torch.from_numpy(new).to(old.dtype).reshape(old.shape)
                    )
        write_checkpoint({**self._checkpoint, "network_weights": weights, _MARK: method}, file)


def _is_ours(trainer: str) -> bool:
    """Whether it is made from its name here, and nobody wrote a class of that name, which nnU-Net would find."""
    try:
        recipe = parse_name(trainer)
    except ValueError:
        return False
    return recipe is not None and not defines_trainer(trainer)


def _last_layer(network: Any, patch_size: Sequence[int]) -> Any:
    """The convolution whose output is the network's."""
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    convolutions = [module for module in network.modules() if isinstance(module, kinds)]
    done: Record = {}
    hooks = [
        module.register_forward_hook(
            lambda module, _, output: done.update(last=module, output=output)
        )
        for module in convolutions
    ]
    with torch.no_grad():
        image = torch.zeros(
            (1, convolutions[0].in_channels, *patch_size), device=convolutions[0].weight.device
        )
        output = network(image)
    for hook in hooks:
        hook.remove()
    last = done["last"]
    if output is not done["output"] or last.bias is None or last.groups != 1:
        raise ValueError(
            f"The output of {type(network).__name__} is not that of a convolution. Calibrate its predictions instead: "
            "nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
        )
    return last


def _unseen_cases(predictor: Any, images: str | Path, gt_folder: str | Path) -> PreprocessedCases:
    """Cases for which a ValueError would say that a fold was trained on them, as far as that is known here."""
    cases = PreprocessedCases.of_images(predictor, images, gt_folder)
    trained: list[str] = []
    with suppress(FileNotFoundError):  # of a model from elsewhere
        trained = PreprocessedCases.of_fold(predictor, "all").names
    if seen := sorted(set(trained) & set(cases.names)):
        raise ValueError(
            f"{images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
        )
    return cases
