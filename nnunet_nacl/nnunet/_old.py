"""What goes once nobody asks for it."""

from pathlib import Path
from typing import TypeAlias

from nnunet_nacl.nnunet._dataset import PlansJson
from nnunet_nacl.nnunet._trained import _fold_folder, checkpoint_name, read_checkpoint

RegionLabels: TypeAlias = list[int]


def declared_shape(file: Path) -> tuple[int, ...] | None:  # noqa: ARG001
    """None: headers are not looked at."""
    return None


def check_no_cascade(model_folder: str | Path, fold: int | str, checkpoint: str = "final") -> None:
    """Raise a ValueError for a second stage."""
    content = read_checkpoint(_fold_folder(model_folder, fold) / checkpoint_name(checkpoint))
    configuration = content["init_args"]["configuration"]
    settings = PlansJson.read(Path(model_folder) / "plans.json").lineage(configuration)
    previous = next((one["previous_stage"] for one in settings if one.get("previous_stage")), None)
    if previous is not None:
        raise ValueError(f"{model_folder}: {configuration} is the second stage of a cascade. Take {previous}.")
