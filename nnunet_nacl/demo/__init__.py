"""``nnunet_nacl demo``: the whole way from data to a calibrated model, on data whose truth is known."""

from nnunet_nacl.demo._run import run_demo

__all__ = ["run_demo"]
