"""Networks beside nnU-Net's own, chosen as nnU-Net chooses networks: by the class that the plans name.

nnU-Net locates ``nnunet_nacl.networks.AttentionUNet``, say, by import. The classes are loaded when they are asked for,
since they need torch and, most of them, the extra ``networks``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nnunet_nacl.networks._catalogue import NETWORKS
from nnunet_nacl.networks._catalogue import network_of_ours as network_of_ours

if TYPE_CHECKING:
    from nnunet_nacl.networks._add import add_network
    from nnunet_nacl.networks._monai import AttentionUNet, SwinUNETR, UNetPlusPlus
    from nnunet_nacl.networks._transunet import TransUNet

__all__ = ["NETWORKS", "AttentionUNet", "SwinUNETR", "TransUNet", "UNetPlusPlus", "add_network"]

_LOADED_LATE = {
    "AttentionUNet": "_monai",
    "SwinUNETR": "_monai",
    "TransUNet": "_transunet",
    "UNetPlusPlus": "_monai",
    "add_network": "_add",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_LOADED_LATE[name]}"), name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in {"monai", "timm"}:
            raise
        raise RuntimeError(
            f"{__name__}.{name} needs {package}, which is not installed: pip install {package}"
        ) from error
