"""Networks other than nnU-Net's own, chosen as nnU-Net chooses networks: by the class that the plans name.

nnU-Net locates ``nnunet_nacl.paper.networks.AttentionUNet``, say, by import. The classes are loaded when they are asked
for, since they need torch and the extra ``networks``.
"""

from importlib import import_module
from typing import Any

from nnunet_nacl.paper.networks._plans import NETWORKS, add_network

__all__ = ["NETWORKS", "add_network"]


def __getattr__(name: str) -> Any:
    if name not in {"AttentionUNet", "SwinUNETR", "TransUNet", "UNetPlusPlus"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}._classes"), name)
