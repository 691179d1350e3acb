"""nnU-Net's predictor with a checkpoint of a trained model."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from nnunet_nacl.files import attributed_to
from nnunet_nacl.nnunet._data_set import PlansJson, read_dataset_json
from nnunet_nacl.typing import ByName, Singles


def build_predictor(
    model: Path,
    content: ByName,
    device: str,
    *,
    use_mirroring: bool = True,
) -> Any:
    """Build nnU-Net's predictor as ``nnUNetv2_predict`` sets it up: half overlap and Gaussian weights.

    It also knows the network's ``num_input_channels``.

    Args:
        model: the model's folder.
        content: of a checkpoint.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: whether it predicts with test-time augmentation.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    where = torch.device(device)
    with redirect_stdout(io.StringIO()):  # Hide nnU-Net's message that there is no CUDA.
        predictor = nnUNetPredictor(
            use_mirroring=use_mirroring,
            perform_everything_on_device=where.type == "cuda",
            device=where,
            allow_tqdm=False,
        )
    # Not nnU-Net's initialize_from_trained_model_folder, which would run what is in a file.
    with attributed_to(model):
        name = content["init_args"]["configuration"]
        trainer = content["trainer_name"]
        plans_json = PlansJson.read(model / "plans.json")
        network, channels = plans_json.build_network(name, trainer, deep_supervision=False)
        weights = content["network_weights"]
        network.load_state_dict(weights)
        plans = PlansManager(plans_json.content)
        predictor.manual_initialization(
            network,
            plans,
            plans.get_configuration(name),
            [weights],
            read_dataset_json(model / "dataset.json"),
            trainer,
            content.get("inference_allowed_mirroring_axes"),
        )
        predictor.configuration_name = name
        predictor.num_input_channels = channels
    return predictor


def save_prediction(predictor: Any, logits: Singles, properties: ByName, file: Path) -> None:
    """Write segmentation and probabilities of logits (C, *spatial) as nnU-Net does; the file's name without ending."""
    import torch
    from nnunetv2.inference.export_prediction import export_prediction_from_logits

    export_prediction_from_logits(
        torch.from_numpy(logits), properties, predictor.configuration_manager, predictor.plans_manager,
        predictor.dataset_json, str(file), True, 1,
    )  # fmt: skip
