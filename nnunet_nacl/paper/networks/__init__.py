"""Networks other than nnU-Net's own, chosen as nnU-Net chooses networks: by the class that the plans name.

nnU-Net locates ``nnunet_nacl.paper.networks.AttentionUNet``, say, by import. The classes are loaded when they are asked
for, since they need torch and, most of them, the extra ``networks``.
"""

from importlib import import_module
from typing import Any

from nnunet_nacl.paper.networks._plans import NETWORKS, add_network

__all__ = ["NETWORKS", "add_network"]

_LOADED_LATE = {
    "AttentionUNet": "_monai",
    "SwinUNETR": "_monai",
    "TransUNet": "_transunet",
    "UNetPlusPlus": "_monai",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_LOADED_LATE[name]}"), name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        needs = f"{__name__}.{name} needs {package}, which is not installed: pip install {package}"
        raise RuntimeError(needs) from error
